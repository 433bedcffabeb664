#include "values.h"

#include "ruby/graph/asked_graph.h"

#include "base/mapped_array.h"
#include "graph/accumulation.h"
#include "ruby/graph/made_at.h"

#include <string.h>

/* What an object holds. */
struct pile {
    uint32_t node;
    struct memscope_held_answer held;
};

struct holders {
    struct memscope_retainer largest[MEMSCOPE_MAX_ROWS];
    struct memscope_accumulation suspects[MEMSCOPE_MAX_ROWS];
    struct pile piles[2 * MEMSCOPE_MAX_ROWS]; /* of both, found before memscope_begin_at_namespaces */
    size_t count, suspect_count, pile_count;
};

struct work {
    struct memscope_asked_graph asked;
    struct memscope_shared_room *room;
    struct memscope_heap_answer *answer;
    struct holders *holders; /* in mapped memory */
};

static bool seeks_suspects(const struct memscope_heap_question *question) {
    return question->object == 0 && question->objects == NULL && question->class == 0 && question->class_name == NULL &&
           question->growth == NULL;
}

static void *take(struct work *work, size_t count, size_t size) {
    return memscope_shared_room_take(work->room, count, size);
}

/* ---- by class -------------------------------------------------------------------------------------------------- */

static enum memscope_status answer_classes(struct work *work) {
    const struct memscope_asked_graph *asked = &work->asked;
    const struct memscope_heap_graph *graph = &asked->references.graph;
    struct memscope_heap_answer *answer = work->answer;
    size_t top = asked->question->top;
    enum memscope_status status = MEMSCOPE_NO_MEMORY;

    answer->retained = take(work, top, sizeof *answer->retained);
    answer->garbage_classes = take(work, top, sizeof *answer->garbage_classes);
    if (answer->retained != NULL && answer->garbage_classes != NULL)
        status = memscope_largest_classes(graph, &asked->paths, &asked->dominators, answer->retained, top,
                                          &answer->retained_count);
    if (status == MEMSCOPE_OK)
        status = memscope_largest_classes(graph, &asked->paths, NULL, answer->garbage_classes, top,
                                          &answer->garbage_class_count);
    return status;
}

static enum memscope_status answer_strings(struct work *work) {
    struct memscope_heap_answer *answer = work->answer;
    uint32_t top = work->asked.question->top;

    if (!work->asked.question->strings)
        return MEMSCOPE_OK;
    answer->duplicates = take(work, top, sizeof *answer->duplicates);
    return answer->duplicates == NULL
               ? MEMSCOPE_NO_MEMORY
               : memscope_duplicate_strings_find(&work->asked.references, &work->asked.paths, answer->duplicates, top,
                                                 &answer->duplicates_count, &answer->strings);
}

static enum memscope_status answer_roots(struct work *work) {
    const struct memscope_heap_graph *graph = &work->asked.references.graph;
    struct memscope_root_row *roots = take(work, graph->category_count, sizeof *roots);

    if (roots == NULL)
        return MEMSCOPE_NO_MEMORY;
    for (uint32_t category = 0; category < graph->category_count; category++) {
        uint32_t node = memscope_graph_category_node(graph, category);

        roots[category] = (struct memscope_root_row){.name = memscope_name_of_node(&work->asked, node),
                                                     .count = graph->first_edge[node + 1] - graph->first_edge[node],
                                                     .retained_bytes = work->asked.dominators.retained[node]};
    }
    work->answer->roots = roots;
    work->answer->root_count = graph->category_count;
    return MEMSCOPE_OK;
}

/* ---- what objects hold ----------------------------------------------------------------------------------------- */

/* NULL if it was not sought. */
static const struct memscope_held_answer *held_by(const struct holders *holders, uint32_t node) {
    for (size_t at = 0; at < holders->pile_count; at++)
        if (holders->piles[at].node == node)
            return &holders->piles[at].held;
    return NULL;
}

static void find_held(struct work *work, uint32_t node, struct memscope_holding *holdings) {
    if (held_by(work->holders, node) == NULL)
        work->holders->piles[work->holders->pile_count++] =
            (struct pile){.node = node, .held = memscope_held_by(&work->asked, node, holdings)};
}

/* The largest suspects mostly are the largest retainers too, whose references are many. */
static enum memscope_status find_what_they_hold(struct work *work) {
    struct holders *holders = work->holders;
    struct memscope_holding *holdings =
        memscope_array_map((size_t)work->asked.references.graph.names.count + 1, sizeof *holdings);

    for (size_t index = 0; holdings != NULL && index < holders->count; index++)
        find_held(work, holders->largest[index].node, holdings);
    for (size_t index = 0; holdings != NULL && index < holders->suspect_count; index++)
        find_held(work, holders->suspects[index].node, holdings);
    memscope_array_unmap(holdings);
    return holdings != NULL ? MEMSCOPE_OK : MEMSCOPE_NO_MEMORY;
}

/* ---- paths ----------------------------------------------------------------------------------------------------- */

static void answer_path(struct work *work, const struct memscope_path_group *alike,
                        struct memscope_path_answer *answer) {
    answer->path_sums = (struct memscope_path_sums){
        .count = alike->count,
        .retained_bytes = alike->retained,
        .accumulated_bytes = alike->weight == 0 ? MEMSCOPE_UNKNOWN : alike->weight,
        .held_count = MEMSCOPE_UNKNOWN,
        .steps_left_out = alike->steps_left_out,
    };
    answer->step_count = alike->step_count;
    for (uint32_t index = 0; index < alike->step_count; index++)
        answer->steps[index] = memscope_step_named(&work->asked, alike, index);
}

/* Paths are sorted by the weights of their ends or, without weights, by the ends' retained bytes. */
static struct memscope_path_question paths_to(struct work *work, const uint32_t *nodes, const uint64_t *weights,
                                              size_t count) {
    return (struct memscope_path_question){.graph = &work->asked.references.graph,
                                           .paths = &work->asked.paths,
                                           .dominators = &work->asked.dominators,
                                           .nodes = nodes,
                                           .weights = weights,
                                           .node_count = count,
                                           .namer = work->asked.dump == NULL ? memscope_name_live_edge : NULL,
                                           .context = &work->asked};
}

static enum memscope_status answer_found(struct work *work, const struct memscope_path_group *alike,
                                         const struct memscope_paths_found *found) {
    struct memscope_heap_answer *answer = work->answer;

    answer->paths = take(work, found->alike_count, sizeof *answer->paths);
    if (answer->paths == NULL)
        return MEMSCOPE_NO_MEMORY;
    answer->path_count = found->alike_count;
    answer->totals.target_count = found->targets;
    answer->totals.unreachable_target_count = found->not_reached;
    answer->totals.path_count = found->all_alike;
    for (size_t index = 0; index < answer->path_count; index++) {
        uint32_t end = alike[index].steps[alike[index].step_count - 1].last;
        const struct memscope_held_answer *held = held_by(work->holders, end);

        answer_path(work, &alike[index], &answer->paths[index]);
        if (held == NULL || !seeks_suspects(work->asked.question))
            continue;
        answer->paths[index].held_class = held->name;
        answer->paths[index].held_count = held->count;
    }
    return MEMSCOPE_OK;
}

/* Answers with the paths to these nodes. */
static enum memscope_status answer_paths(struct work *work, const uint32_t *nodes, const uint64_t *weights,
                                         size_t count) {
    const struct memscope_path_question question = paths_to(work, nodes, weights, count);
    size_t top = work->asked.question->top;
    struct memscope_path_group *alike = memscope_array_map(top + 1, sizeof *alike);
    struct memscope_paths_found found;
    enum memscope_status status =
        alike == NULL ? MEMSCOPE_NO_MEMORY : memscope_path_groups_find(&question, alike, top, &found);

    if (status == MEMSCOPE_OK)
        status = answer_found(work, alike, &found);
    memscope_array_unmap(alike);
    return status;
}

static enum memscope_status answer_dominator(struct work *work, const struct memscope_retainer *holder,
                                             struct memscope_dominator_answer *answer) {
    const struct memscope_path_question question = paths_to(work, NULL, NULL, 0);
    const struct memscope_held_answer *held = held_by(work->holders, holder->node);
    struct memscope_path_group path;
    enum memscope_status status = memscope_path_find(&question, holder->node, &path);

    answer->name = memscope_name_of_node(&work->asked, holder->node);
    answer->bytes = work->asked.references.graph.bytes[holder->node];
    answer->retained_bytes = holder->retained;
    answer->dominated_count = holder->object_count - 1;
    answer->held_class = held->name;
    answer->held_count = held->count;
    if (status == MEMSCOPE_OK)
        answer_path(work, &path, &answer->path);
    return status;
}

/* ---- targets of paths ------------------------------------------------------------------------------------------ */

static bool is_instance(VALUE object, VALUE of) {
    if (!memscope_has_class(RB_BUILTIN_TYPE(object)))
        return false;
    for (VALUE class = RBASIC_CLASS(object); class != 0; class = rb_class_get_superclass(class))
        if (class == of || (RB_BUILTIN_TYPE(class) == RUBY_T_ICLASS && RBASIC_CLASS(class) == of))
            return true;
    return false;
}

/* All instances, including those of anonymous classes and of subclasses. */
static size_t find_instances(const struct work *work, uint32_t *nodes) {
    const struct memscope_heap_graph *graph = &work->asked.references.graph;
    VALUE class = 0;
    bool are_instances = false;
    size_t count = 0;

    for (uint32_t node = 0; node < graph->slot_count; node++) {
        VALUE object;

        if (graph->type[node] == 0)
            continue;
        object = memscope_object_of(&work->asked.references, node);
        if (RBASIC_CLASS(object) != class || class == 0 || graph->type[node] == RUBY_T_IMEMO ||
            graph->type[node] == RUBY_T_ICLASS) {
            are_instances = is_instance(object, work->asked.question->class);
            class = are_instances || graph->type[node] != RUBY_T_IMEMO ? RBASIC_CLASS(object) : 0;
        }
        if (are_instances)
            nodes[count++] = node;
    }
    return count;
}

/* The nodes of the question's objects, except objects that are not in a listed slot. */
static size_t find_objects(const struct work *work, uint32_t *nodes) {
    size_t count = 0;

    for (size_t index = 0; index < work->asked.question->object_count; index++) {
        nodes[count] = memscope_node_of(&work->asked.references, work->asked.question->objects[index]);
        count += nodes[count] != MEMSCOPE_NO_NODE;
    }
    return count;
}

/*
 * The class of a node, even of a class or module, whose node_class may by now be its own name, or of an object that
 * memscope_name_by_line has named.
 */
static uint32_t class_of_node(struct work *work, uint32_t node) {
    const struct memscope_heap_graph *graph = &work->asked.references.graph;

    if (!memscope_graph_is_module(graph, node) && (work->asked.dump != NULL || graph->type[node] != MEMSCOPE_TYPE_DATA))
        return graph->node_class[node];
    if (work->asked.dump != NULL)
        return graph->type[node] == MEMSCOPE_TYPE_CLASS ? memscope_names_find(&graph->names, "Class", 5)
                                                        : memscope_names_find(&graph->names, "Module", 6);
    return memscope_name_of_class_of(&work->asked.references.class_names,
                                     memscope_object_of(&work->asked.references, node));
}

static enum memscope_status answer_asked_paths(struct work *work) {
    const struct memscope_heap_question *question = work->asked.question;
    const struct memscope_heap_graph *graph = &work->asked.references.graph;
    uint32_t *nodes = memscope_array_map((size_t)graph->slot_count + 1, sizeof *nodes), name;
    size_t count = 0;
    enum memscope_status status = MEMSCOPE_OK;

    if (nodes == NULL)
        return MEMSCOPE_NO_MEMORY;
    if (question->object != 0) {
        nodes[0] = memscope_node_of(&work->asked.references, question->object);
        count = nodes[0] == MEMSCOPE_NO_NODE ? 0 : 1;
    } else if (question->objects != NULL) {
        count = find_objects(work, nodes);
    } else if (question->class != 0) {
        count = find_instances(work, nodes);
    } else {
        name = memscope_names_find(&graph->names, question->class_name, strlen(question->class_name));
        for (uint32_t node = 0; name != 0 && node < graph->slot_count; node++)
            if (graph->type[node] != 0 && class_of_node(work, node) == name)
                nodes[count++] = node;
    }
    if (count > 0)
        status = answer_paths(work, nodes, NULL, count);
    memscope_array_unmap(nodes);
    return status;
}

static enum memscope_status answer_suspects(struct work *work) {
    uint32_t nodes[MEMSCOPE_MAX_ROWS];
    uint64_t weights[MEMSCOPE_MAX_ROWS];
    size_t count = work->holders->suspect_count;

    for (size_t index = 0; index < count; index++) {
        nodes[index] = work->holders->suspects[index].node;
        weights[index] = work->holders->suspects[index].accumulated;
    }
    return count == 0 ? MEMSCOPE_OK : answer_paths(work, nodes, weights, count);
}

/* Answers with the paths to the tops of the growth, and their weights (memscope_dump_growth_tops). */
static enum memscope_status answer_growth(struct work *work) {
    const struct memscope_dump_growth *growth = work->asked.question->growth;
    uint32_t *nodes = memscope_array_map((size_t)growth->added.count + 1, sizeof *nodes), count = 0;
    uint64_t *weights = memscope_array_map((size_t)growth->added.count + 1, sizeof *weights);
    enum memscope_status status = MEMSCOPE_OK;

    if (nodes != NULL && weights != NULL)
        count = memscope_dump_growth_tops(growth, &work->asked.paths, nodes, weights);
    if (count == 0 && growth->added.count > 0)
        status = MEMSCOPE_NO_MEMORY;
    if (count > 0)
        status = answer_paths(work, nodes, weights, count);
    memscope_arrays_unmap(nodes, weights);
    return status;
}

/* ---- largest retainers ----------------------------------------------------------------------------------------- */

static enum memscope_status find_holders(struct work *work) {
    struct holders *holders = work->holders;
    const struct memscope_heap_graph *graph = &work->asked.references.graph;
    const struct memscope_heap_question *question = work->asked.question;
    enum memscope_status status =
        memscope_largest_retainers(graph, &work->asked.dominators, holders->largest, question->top, &holders->count);

    if (status == MEMSCOPE_OK && seeks_suspects(question))
        status = memscope_accumulations_find(graph, &work->asked.paths, &work->asked.dominators, holders->suspects,
                                             question->top, &holders->suspect_count);
    return status;
}

static enum memscope_status answer_dominators(struct work *work) {
    size_t count = work->holders->count;
    struct memscope_dominator_answer *answers = take(work, count, sizeof *answers);
    enum memscope_status status = answers != NULL ? MEMSCOPE_OK : MEMSCOPE_NO_MEMORY;

    for (size_t index = 0; status == MEMSCOPE_OK && index < count; index++)
        status = answer_dominator(work, &work->holders->largest[index], &answers[index]);
    work->answer->dominators = answers;
    work->answer->dominator_count = answers != NULL ? count : 0;
    return status;
}

static enum memscope_status answer_holders(struct work *work) {
    struct memscope_dump_growth *growth = work->asked.question->growth;
    enum memscope_status status = find_holders(work);

    if (status == MEMSCOPE_OK && growth != NULL)
        status = memscope_dump_growth_count(growth, &work->asked.paths);
    if (status == MEMSCOPE_OK)
        status = find_what_they_hold(work);
    if (status != MEMSCOPE_OK)
        return status;
    memscope_begin_at_namespaces(&work->asked);
    if (growth != NULL)
        status = answer_growth(work);
    else
        status = seeks_suspects(work->asked.question) ? answer_suspects(work) : answer_asked_paths(work);
    return status == MEMSCOPE_OK ? answer_dominators(work) : status;
}

/* ---- the answer ------------------------------------------------------------------------------------------------ */

/*
 * Searches last through the caller's stack, which also refers to the question's object, through threads and fibers, and
 * through Ruby's code, with its caches of methods and constants.
 */
static enum memscope_status find_shortest_paths(struct work *work) {
    static const char *const last[] = {"Thread", "Fiber", "imemo_callcache", "imemo_constcache", "imemo_iseq"};
    uint32_t classes[sizeof last / sizeof last[0]];
    struct memscope_search_last search = {.category = "machine_context", .classes = classes};

    for (size_t index = 0; index < sizeof last / sizeof last[0]; index++) {
        uint32_t name = memscope_names_find(&work->asked.references.graph.names, last[index], strlen(last[index]));

        if (name != 0)
            classes[search.class_count++] = name;
    }
    return memscope_shortest_paths_find(&work->asked.paths, &work->asked.references.graph, &search);
}

static uint64_t count_saturated(const struct memscope_heap_graph *graph) {
    uint64_t count = 0;

    for (uint32_t node = 0; node < graph->slot_count; node++)
        count += graph->bytes[node] == UINT32_MAX;
    return count;
}

static void answer_totals(struct work *work) {
    const struct memscope_heap_graph *graph = &work->asked.references.graph;
    const struct memscope_heap_part *reachable = &work->asked.paths.reachable, *garbage = &work->asked.paths.garbage;
    struct memscope_heap_answer *answer = work->answer;

    answer->totals = (struct memscope_graph_totals){
        .reachable_count = reachable->count,
        .reachable_slot_bytes = memscope_stated_slot_bytes(reachable->slot_bytes, reachable->count),
        .reachable_bytes = reachable->bytes,
        .garbage_count = garbage->count,
        .garbage_slot_bytes = memscope_stated_slot_bytes(garbage->slot_bytes, garbage->count),
        .garbage_bytes = garbage->bytes,
        .reference_count = graph->first_edge[graph->slot_count],
        .pause_ms = NAN,
    };
    answer->saturated_count = count_saturated(graph);
    answer->held = work->asked.references.held;
}

/* The graph must have been filled. */
static enum memscope_status answer_all(struct work *work) {
    struct memscope_asked_graph *asked = &work->asked;
    enum memscope_status status;

    work->holders = memscope_array_map(1, sizeof *work->holders);
    status = work->holders == NULL ? MEMSCOPE_NO_MEMORY : find_shortest_paths(work);
    if (status == MEMSCOPE_OK)
        status = memscope_dominators_find(&asked->dominators, &asked->references.graph);
    if (status == MEMSCOPE_OK)
        status = answer_classes(work);
    if (status == MEMSCOPE_OK)
        status = answer_strings(work);
    if (status == MEMSCOPE_OK)
        status = answer_roots(work);
    if (status == MEMSCOPE_OK) {
        answer_totals(work);
        if (asked->dump == NULL) {
            memscope_thread_locals_find_keys(&asked->question->threads, &asked->references);
            memscope_name_by_line(&asked->references, &asked->question->threads);
        }
        status = answer_holders(work);
    }
    if (status == MEMSCOPE_OK && !memscope_names_copy(&asked->references.graph.names, work->room, &work->answer->names))
        status = MEMSCOPE_NO_MEMORY;
    memscope_array_unmap(work->holders);
    return status;
}

static void finish(struct work *work, enum memscope_status status, uint64_t start_ns) {
    memscope_dominators_close(&work->asked.dominators);
    memscope_shortest_paths_close(&work->asked.paths);
    work->answer->status = status;
    work->answer->spent_ns = memscope_clock_ns(CLOCK_THREAD_CPUTIME_ID) - start_ns;
}

void memscope_heap_answer(const struct memscope_heap_question *question, const struct memscope_heap_listing *listing,
                          struct memscope_scratch *scratch, struct memscope_shared_room *room,
                          struct memscope_heap_answer *answer) {
    struct work work = {.asked = {.question = question}, .room = room, .answer = answer};
    uint64_t start = memscope_clock_ns(CLOCK_THREAD_CPUTIME_ID);
    enum memscope_status status;

    memset(answer, 0, sizeof *answer);
    status = memscope_heap_references_fill(&work.asked.references, listing, scratch);
    if (status == MEMSCOPE_OK)
        status = answer_all(&work);
    memscope_heap_references_close(&work.asked.references);
    finish(&work, status, start);
}

void memscope_heap_answer_of_dump(const struct memscope_heap_question *question, const struct memscope_heap_dump *dump,
                                  struct memscope_shared_room *room, struct memscope_heap_answer *answer) {
    struct work work = {.asked = {.question = question, .dump = dump}, .room = room, .answer = answer};
    uint64_t start = memscope_clock_ns(CLOCK_THREAD_CPUTIME_ID);
    enum memscope_status status;

    memset(answer, 0, sizeof *answer);
    work.asked.references.graph = *dump->graph;
    status = answer_all(&work);
    *dump->graph = work.asked.references.graph; /* names may have moved */
    finish(&work, status, start);
}
