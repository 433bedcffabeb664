#include "ruby/graph/heap_answer.h"

#include "base/mapped_array.h"
#include "fork/fork_cost.h"
#include "graph/accumulation.h"
#include "ruby/graph/made_at.h"
#include "ruby/graph/named_references.h"
#include "ruby/heap/heap_references.h"

#include <string.h>
#include <sys/mman.h>

static memscope_slot_rate ns_of_1000_slots = 600000; /* first as measured on an idle machine, then by the last answer */

struct work {
    const struct memscope_heap_question *question;
    struct memscope_answer_room *room;
    struct memscope_heap_answer *answer;
    enum memscope_answer_list list;             /* the list that is being written */
    bool full;                                  /* there was no room for its last row */
    struct memscope_heap_references references; /* for a dump, only the graph */
    const struct memscope_heap_dump *dump;      /* NULL: the graph is of this process */
    struct memscope_shortest_paths paths;
    struct memscope_dominators dominators;
};

/* ---- room ------------------------------------------------------------------------------------------------------ */

enum memscope_status memscope_answer_room_open(struct memscope_answer_room *room) {
    void *base = mmap(NULL, MEMSCOPE_ANSWER_ROOM_BYTES, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    *room = (struct memscope_answer_room){.base = base == MAP_FAILED ? NULL : base};
    return room->base == NULL ? MEMSCOPE_NO_MEMORY : MEMSCOPE_OK;
}

void memscope_answer_room_close(struct memscope_answer_room *room) {
    if (room->base != NULL)
        munmap(room->base, MEMSCOPE_ANSWER_ROOM_BYTES);
    room->base = NULL;
}

static void begin_list(struct work *work, enum memscope_answer_list list) {
    work->list = list;
    work->full = false;
}

/* Zeroed memory for a row. NULL if there is no room: then the list ends before that row. */
static void *take(struct work *work, size_t count, size_t size) {
    struct memscope_answer_room *room = work->room;
    size_t start = (room->used + 15) & ~(size_t)15;

    if (start > MEMSCOPE_ANSWER_ROOM_BYTES || count > (MEMSCOPE_ANSWER_ROOM_BYTES - start) / size) {
        work->answer->cut |= 1u << work->list;
        work->full = true;
        return NULL;
    }
    room->used = start + count * size;
    return room->base + start;
}

static struct memscope_text copy_text(struct work *work, const char *text, size_t length) {
    char *copy = length == 0 ? NULL : take(work, length, 1);

    if (copy == NULL)
        return (struct memscope_text){.start = ""};
    memcpy(copy, text, length);
    return (struct memscope_text){.start = copy, .length = length};
}

static struct memscope_text text_of(struct work *work, uint32_t name) {
    size_t length;
    const char *found = memscope_names_get(&work->references.graph.names, name, &length);

    return copy_text(work, found, length);
}

/* Splits a name that memscope_name_by_line has extended. */
static struct memscope_text split_text_of(struct work *work, uint32_t name, struct memscope_text *place) {
    size_t length;
    const char *found = memscope_names_get(&work->references.graph.names, name, &length);
    size_t own = strnlen(found, length);
    size_t rest = own == length ? 0 : length - own - 1;

    *place = copy_text(work, found + length - rest, rest);
    return copy_text(work, found, own);
}

/* ---- by class -------------------------------------------------------------------------------------------------- */

/* No rows if there is no room. */
static struct memscope_class_answer *class_rows(struct work *work, const struct memscope_class_row *rows,
                                                size_t *count) {
    struct memscope_class_answer *answers = take(work, *count, sizeof *answers);

    *count = answers == NULL ? 0 : *count;
    for (size_t index = 0; index < *count; index++) {
        answers[index] = (struct memscope_class_answer){.name = text_of(work, rows[index].class_name),
                                                        .count = rows[index].count,
                                                        .slot_bytes = rows[index].slot_bytes,
                                                        .bytes = rows[index].bytes,
                                                        .retained_bytes = rows[index].retained};
        *count = work->full ? index : *count;
    }
    return answers;
}

static enum memscope_status answer_classes(struct work *work) {
    const struct memscope_heap_graph *graph = &work->references.graph;
    struct memscope_class_row rows[MEMSCOPE_MAX_ROWS];
    size_t top = work->question->top;
    struct memscope_heap_answer *answer = work->answer;
    enum memscope_status status =
        memscope_retained_by_class(graph, &work->dominators, rows, top, &answer->retained_count);

    if (status != MEMSCOPE_OK)
        return status;
    begin_list(work, MEMSCOPE_LIST_RETAINED);
    answer->retained = class_rows(work, rows, &answer->retained_count);
    begin_list(work, MEMSCOPE_LIST_GARBAGE);
    status = memscope_garbage_by_class(graph, &work->paths, rows, top, &answer->garbage_class_count);
    if (status == MEMSCOPE_OK)
        answer->garbage_classes = class_rows(work, rows, &answer->garbage_class_count);
    return status;
}

static void answer_roots(struct work *work) {
    const struct memscope_heap_graph *graph = &work->references.graph;
    struct memscope_root_answer *roots;

    begin_list(work, MEMSCOPE_LIST_ROOTS);
    roots = take(work, graph->category_count, sizeof *roots);
    for (uint32_t category = 0; roots != NULL && category < graph->category_count; category++) {
        uint32_t node = memscope_graph_category_node(graph, category);
        const char *name = graph->categories[category];

        roots[category] = (struct memscope_root_answer){.name = {.start = name, .length = strlen(name)},
                                                        .count = graph->first_edge[node + 1] - graph->first_edge[node],
                                                        .retained_bytes = work->dominators.retained[node]};
    }
    work->answer->roots = roots;
    work->answer->root_count = roots == NULL ? 0 : graph->category_count;
}

static enum memscope_status answer_strings(struct work *work) {
    struct memscope_duplicates found[MEMSCOPE_MAX_ROWS];
    struct memscope_heap_answer *answer = work->answer;
    uint32_t count;
    enum memscope_status status;

    if (!work->question->strings)
        return MEMSCOPE_OK;
    status = memscope_duplicate_strings_find(&work->references, &work->paths, found, work->question->top, &count,
                                             &answer->strings);
    if (status != MEMSCOPE_OK)
        return status;
    begin_list(work, MEMSCOPE_LIST_STRINGS);
    answer->duplicates = take(work, count, sizeof *answer->duplicates);
    answer->duplicates_count = answer->duplicates == NULL ? 0 : count;
    for (size_t index = 0; index < answer->duplicates_count; index++) {
        answer->duplicates[index] = (struct memscope_duplicates_answer){.name = text_of(work, found[index].class),
                                                                        .count = found[index].count,
                                                                        .length = found[index].length,
                                                                        .saved_bytes = found[index].saved_bytes};
        answer->duplicates_count = work->full ? index : answer->duplicates_count;
    }
    return MEMSCOPE_OK;
}

/* ---- what an object holds -------------------------------------------------------------------------------------- */

struct held {
    uint64_t bytes, count;
};

/* Whether an edge to a class or module leads to the object's own class, which the object does not hold. */
static bool is_own_class(const struct work *work, uint32_t holder, uint32_t edge) {
    const struct memscope_heap_graph *graph = &work->references.graph;

    if (work->dump != NULL)
        return MEMSCOPE_EDGE_KIND(graph->edge_names[edge]) == MEMSCOPE_EDGE_CLASS;
    return RBASIC_CLASS(memscope_object_of(&work->references, holder)) ==
           memscope_object_of(&work->references, graph->edges[edge]);
}

/* A class or module is held by what retains it, and by a collection that leads to it; not by its heirs or methods. */
static bool holds_module(const struct work *work, uint32_t holder, uint32_t edge, bool retained) {
    const struct memscope_heap_graph *graph = &work->references.graph;
    uint8_t type = holder < graph->slot_count ? graph->type[holder] : 0;

    if (holder >= graph->slot_count || is_own_class(work, holder, edge))
        return false;
    return retained || type == MEMSCOPE_TYPE_ARRAY || type == MEMSCOPE_TYPE_HASH || type == MEMSCOPE_TYPE_STRUCT;
}

/* Adds up, by class, what the object retains, and what the search for shortest paths found through it. */
static void add_held(const struct work *work, uint32_t holder, struct held *held, uint32_t *most) {
    const struct memscope_heap_graph *graph = &work->references.graph;

    for (uint32_t edge = graph->first_edge[holder]; edge < graph->first_edge[holder + 1]; edge++) {
        uint32_t node = graph->edges[edge], class = graph->node_class[node];
        uint32_t dominator = work->dominators.dominator[node];
        bool retained = dominator == holder, part = retained || !memscope_graph_holds_dominated(graph, dominator);

        if ((!retained && work->paths.parent[node] != holder) ||
            (memscope_graph_is_module(graph, node) && !holds_module(work, holder, edge, retained)))
            continue;
        held[class].bytes += part ? work->dominators.retained[node] : graph->bytes[node];
        held[class].count++;
        if (*most == 0 || held[class].bytes > held[*most].bytes)
            *most = class;
    }
}

static void forget_held(const struct memscope_heap_graph *graph, uint32_t holder, struct held *held) {
    if (graph->first_edge[holder + 1] - graph->first_edge[holder] > graph->names.count) {
        memset(held, 0, graph->names.count * sizeof *held);
        return;
    }
    for (uint32_t edge = graph->first_edge[holder]; edge < graph->first_edge[holder + 1]; edge++)
        held[graph->node_class[graph->edges[edge]]] = (struct held){0};
}

/* How many Strings these Arrays have, if they are Ruby's table of Symbols, which has the Symbols' texts; else 0. */
static uint64_t symbols_in(const struct work *work, uint32_t holder, uint32_t class) {
    const struct memscope_heap_graph *graph = &work->references.graph;
    uint32_t known =
        work->dump != NULL ? MEMSCOPE_NO_NODE : memscope_node_of(&work->references, rb_id2str(rb_intern("initialize")));
    uint32_t above = work->paths.parent[holder];
    bool found = above >= graph->slot_count && above != memscope_graph_root(graph) &&
                 strcmp(graph->categories[above - graph->slot_count], "global_symbols") == 0;
    uint64_t count = 0;

    for (uint32_t edge = graph->first_edge[holder]; edge < graph->first_edge[holder + 1]; edge++) {
        uint32_t array = graph->edges[edge];

        for (uint32_t text = graph->first_edge[array];
             graph->node_class[array] == class && text < graph->first_edge[array + 1]; text++) {
            count += graph->type[graph->edges[text]] == RUBY_T_STRING;
            found |= graph->edges[text] == known;
        }
    }
    return found ? count : 0;
}

static struct memscope_held_answer held_by(struct work *work, uint32_t holder, struct held *held) {
    const struct memscope_heap_graph *graph = &work->references.graph;
    struct memscope_held_answer answer = {.name = {.start = ""}, .place = {.start = ""}};
    uint32_t most = 0, hidden = memscope_names_find(&graph->names, "T_ARRAY", 7);
    uint64_t symbols = 0;

    add_held(work, holder, held, &most);
    if (most != 0) {
        answer.name = split_text_of(work, most, &answer.place);
        answer.count = held[most].count;
        answer.bytes = held[most].bytes;
        symbols = most == hidden && graph->node_class[holder] == hidden ? symbols_in(work, holder, hidden) : 0;
    }
    if (symbols > 0) {
        answer.name = (struct memscope_text){"Symbol", 6};
        answer.count = symbols;
    }
    forget_held(graph, holder, held);
    return answer;
}

/* ---- paths ----------------------------------------------------------------------------------------------------- */

/*
 * Whether paths begin at this class or module. Sets *name to its own name, for an anonymous class "Order (anonymous
 * subclass)", or 0: a dump lacks singletons' owners.
 */
static bool is_namespace(struct work *work, uint32_t node, uint32_t *name) {
    const struct memscope_module_name *described;
    VALUE module;

    if (work->dump != NULL) {
        described = memscope_heap_dump_module(work->dump, node);
        *name = described == NULL || described->singleton ? 0 : described->name;
        return described != NULL && described->named;
    }
    module = memscope_object_of(&work->references, node);
    *name = memscope_name_of_module(&work->references.class_names, module);
    return memscope_is_named_module(module);
}

/*
 * From here on, node_class of a class or module is its own name, and of a singleton class "#<Class:Owner>". Paths begin
 * at named classes and modules: readers know where to find a class, and need no path from Ruby's roots to it.
 */
static void begin_at_namespaces(struct work *work) {
    struct memscope_heap_graph *graph = &work->references.graph;

    for (uint32_t node = 0; node < graph->slot_count; node++) {
        uint32_t name;

        if ((graph->type[node] != RUBY_T_CLASS && graph->type[node] != RUBY_T_MODULE) ||
            !memscope_reaches(&work->paths, node))
            continue;
        if (is_namespace(work, node, &name))
            work->paths.parent[node] = memscope_graph_root(graph);
        if (name != 0)
            graph->node_class[node] = name;
    }
}

struct search {
    VALUE to;
    memscope_edge_name name;
};

static void match(VALUE to, memscope_edge_name name, void *data) {
    struct search *search = data;

    if (to == search->to && search->name == MEMSCOPE_EDGE_INTERNAL)
        search->name = name;
}

static memscope_edge_name name_of_global(struct work *work, uint32_t category, VALUE to) {
    if (strcmp(work->references.graph.categories[category], "global_tbl") != 0)
        return MEMSCOPE_EDGE_INTERNAL;
    for (size_t index = 0; index < work->question->global_count; index++)
        if (work->question->globals[index].value == to)
            return MEMSCOPE_EDGE_NAME(MEMSCOPE_EDGE_GLOBAL, memscope_name_of_id(&work->references.class_names,
                                                                                work->question->globals[index].name));
    return MEMSCOPE_EDGE_INTERNAL;
}

static bool is_thread_or_fiber(const struct work *work, uint32_t node) {
    return node < work->references.graph.slot_count && work->references.graph.type[node] == MEMSCOPE_TYPE_DATA &&
           RTYPEDDATA_P(memscope_object_of(&work->references, node)) &&
           memscope_is_thread_or_fiber(memscope_object_of(&work->references, node));
}

/* Fiber-locals are variables of a thread or of its fiber; a thread keeps its thread-locals in a Hash. */
static memscope_edge_name name_of_thread_local(struct work *work, uint32_t from, VALUE to, memscope_edge_name other) {
    uint32_t owner = work->references.graph.type[from] == MEMSCOPE_TYPE_HASH ? work->paths.parent[from] : from;
    const struct memscope_thread_local *local =
        is_thread_or_fiber(work, owner) ? memscope_thread_local_of(&work->question->threads, to) : NULL;

    if (local == NULL)
        return other;
    return MEMSCOPE_EDGE_NAME(MEMSCOPE_EDGE_THREAD,
                              local->in_code ? memscope_name_of_id(&work->references.class_names, SYM2ID(local->key))
                                             : 0);
}

static memscope_edge_name name_live_edge(void *context, uint32_t from, uint32_t to) {
    struct work *work = context;
    const struct memscope_heap_graph *graph = &work->references.graph;
    struct search search = {.to = memscope_object_of(&work->references, to), .name = MEMSCOPE_EDGE_INTERNAL};

    if (from >= graph->slot_count)
        return from == memscope_graph_root(graph) ? MEMSCOPE_EDGE_INTERNAL
                                                  : name_of_global(work, from - graph->slot_count, search.to);
    memscope_each_named_reference(memscope_object_of(&work->references, from), match, &work->references.class_names,
                                  &search);
    return name_of_thread_local(work, from, search.to, search.name);
}

static struct memscope_text text_of_node(struct work *work, uint32_t node, struct memscope_text *place) {
    const struct memscope_heap_graph *graph = &work->references.graph;
    const char *category;

    *place = (struct memscope_text){.start = ""};
    if (node < graph->slot_count)
        return split_text_of(work, graph->node_class[node], place);
    category = graph->categories[node - graph->slot_count];
    return (struct memscope_text){.start = category, .length = strlen(category)};
}

static struct memscope_text name_of_thread(struct work *work, uint32_t node) {
    const struct memscope_thread_list *threads = &work->question->threads;
    const struct memscope_listed_thread *listed =
        work->dump != NULL || node >= work->references.graph.slot_count
            ? NULL
            : memscope_thread_listed(threads, memscope_object_of(&work->references, node));

    if (listed == NULL)
        return (struct memscope_text){.start = ""};
    return copy_text(work, RSTRING_PTR(threads->texts) + listed->name, listed->name_bytes);
}

/* Keys of a Hash do not make paths differ, so the key of a thread-local is that of one path only. */
static memscope_edge_name edge_to(const struct work *work, const struct memscope_path_group *alike, size_t index) {
    memscope_edge_name edge = alike->steps[index].edge;
    const struct memscope_heap_graph *graph = &work->references.graph;

    if (MEMSCOPE_EDGE_KIND(edge) != MEMSCOPE_EDGE_THREAD || alike->count == 1 ||
        graph->type[alike->steps[index - 1].last] != MEMSCOPE_TYPE_HASH)
        return edge;
    return MEMSCOPE_EDGE_NAME(MEMSCOPE_EDGE_VALUE, memscope_names_find(&graph->names, "Symbol", 6));
}

static void answer_step(struct work *work, const struct memscope_path_group *alike, size_t index,
                        struct memscope_step_answer *answer) {
    const struct memscope_path_step *step = &alike->steps[index];
    memscope_edge_name edge = edge_to(work, alike, index);

    *answer = (struct memscope_step_answer){.times = step->times,
                                            .edge = MEMSCOPE_EDGE_KIND(edge),
                                            .edge_text = {.start = ""},
                                            .edge_number = MEMSCOPE_EDGE_NUMBER(edge),
                                            .thread = {.start = ""}};
    answer->name = text_of_node(work, step->node, &answer->place);
    if (alike->count == 1)
        answer->thread = name_of_thread(work, step->node);
    if (answer->edge != MEMSCOPE_EDGE_INDEX)
        answer->edge_text = text_of(work, answer->edge_number);
}

static void answer_path(struct work *work, const struct memscope_path_group *alike,
                        struct memscope_path_answer *answer) {
    *answer = (struct memscope_path_answer){.count = alike->count,
                                            .retained_bytes = alike->retained,
                                            .held = {.name = {.start = ""}},
                                            .steps_left_out = alike->steps_left_out,
                                            .steps = take(work, alike->step_count, sizeof *answer->steps)};
    answer->step_count = answer->steps == NULL ? 0 : alike->step_count;
    for (size_t index = 0; index < answer->step_count; index++)
        answer_step(work, alike, index, &answer->steps[index]);
}

/* Finds paths, sorted by the weights of their ends or, without weights, by what the ends retain. */
static enum memscope_status find_paths(struct work *work, const uint32_t *nodes, const uint64_t *weights, size_t count,
                                       struct memscope_path_group *alike, size_t top,
                                       struct memscope_paths_found *found) {
    const struct memscope_path_question question = {.graph = &work->references.graph,
                                                    .paths = &work->paths,
                                                    .dominators = &work->dominators,
                                                    .nodes = nodes,
                                                    .weights = weights,
                                                    .node_count = count,
                                                    .namer = work->dump == NULL ? name_live_edge : NULL,
                                                    .context = work};

    return memscope_path_groups_find(&question, alike, top, found);
}

/* ---- who holds most -------------------------------------------------------------------------------------------- */

/* What a suspect or a large dominator holds, found before begin_at_namespaces changes node_class. */
struct pile {
    uint32_t node;
    struct memscope_held_answer held;
};

static enum memscope_status answer_dominator(struct work *work, const struct memscope_retainer *holder,
                                             const struct pile *pile, struct memscope_dominator_answer *answer) {
    struct memscope_path_group alike;
    struct memscope_paths_found found;
    struct memscope_text place;
    enum memscope_status status = find_paths(work, &holder->node, NULL, 1, &alike, 1, &found);

    *answer = (struct memscope_dominator_answer){.name = text_of_node(work, holder->node, &place),
                                                 .held = pile->held,
                                                 .bytes = work->references.graph.bytes[holder->node],
                                                 .retained_bytes = holder->retained,
                                                 .dominated_count = holder->object_count - 1,
                                                 .path = take(work, 1, sizeof *answer->path)};
    if (status == MEMSCOPE_OK && answer->path != NULL)
        answer_path(work, &alike, answer->path);
    return status;
}

static enum memscope_status answer_dominators(struct work *work, const struct memscope_retainer *holders,
                                              const struct pile *piles, size_t count) {
    struct memscope_heap_answer *answer = work->answer;
    enum memscope_status status = MEMSCOPE_OK;

    begin_list(work, MEMSCOPE_LIST_DOMINATORS);
    answer->dominators = take(work, count, sizeof *answer->dominators);
    answer->dominator_count = answer->dominators == NULL ? 0 : count;
    for (size_t index = 0; status == MEMSCOPE_OK && index < answer->dominator_count; index++) {
        status = answer_dominator(work, &holders[index], &piles[index], &answer->dominators[index]);
        answer->dominator_count = work->full ? index : answer->dominator_count;
    }
    return status;
}

/* ---- what paths lead to ---------------------------------------------------------------------------------------- */

static bool is_instance(VALUE object, VALUE of) {
    int type = RB_BUILTIN_TYPE(object);

    if (type == RUBY_T_IMEMO || type == RUBY_T_ICLASS || type == RUBY_T_NODE)
        return false;
    for (VALUE class = RBASIC_CLASS(object); class != 0; class = rb_class_get_superclass(class))
        if (class == of || (RB_BUILTIN_TYPE(class) == RUBY_T_ICLASS && RBASIC_CLASS(class) == of))
            return true;
    return false;
}

/* All instances, including those of anonymous classes and of subclasses. */
static size_t find_instances(const struct work *work, uint32_t *nodes) {
    const struct memscope_heap_graph *graph = &work->references.graph;
    VALUE class = 0;
    bool are_instances = false;
    size_t count = 0;

    for (uint32_t node = 0; node < graph->slot_count; node++) {
        VALUE object;

        if (graph->type[node] == 0)
            continue;
        object = memscope_object_of(&work->references, node);
        if (RBASIC_CLASS(object) != class || class == 0 || graph->type[node] == RUBY_T_IMEMO ||
            graph->type[node] == RUBY_T_ICLASS) {
            are_instances = is_instance(object, work->question->class);
            class = are_instances || graph->type[node] != RUBY_T_IMEMO ? RBASIC_CLASS(object) : 0;
        }
        if (are_instances)
            nodes[count++] = node;
    }
    return count;
}

/* The nodes of the objects that were asked for, except objects that are not in a listed slot. */
static size_t find_objects(const struct work *work, uint32_t *nodes) {
    size_t count = 0;

    for (size_t index = 0; index < work->question->object_count; index++) {
        nodes[count] = memscope_node_of(&work->references, work->question->objects[index]);
        count += nodes[count] != MEMSCOPE_NO_NODE;
    }
    return count;
}

/* Answers with the paths that were asked for; a path to a suspect comes with what the suspect holds. */
static enum memscope_status answer_paths(struct work *work, const uint32_t *nodes, const uint64_t *weights,
                                         size_t count, const struct pile *piles) {
    struct memscope_heap_answer *answer = work->answer;
    size_t top = work->question->top;
    struct memscope_path_group *alike = memscope_array_map(top + 1, sizeof *alike);
    struct memscope_paths_found found;
    enum memscope_status status =
        alike == NULL ? MEMSCOPE_NO_MEMORY : find_paths(work, nodes, weights, count, alike, top, &found);

    if (status == MEMSCOPE_OK) {
        begin_list(work, MEMSCOPE_LIST_PATHS);
        answer->paths = take(work, found.alike_count, sizeof *answer->paths);
        answer->path_count = answer->paths == NULL ? 0 : found.alike_count;
        answer->target_count = found.targets;
        answer->unreached_target_count = found.not_reached;
        answer->alike_count = found.all_alike;
    }
    for (size_t index = 0; status == MEMSCOPE_OK && index < answer->path_count; index++) {
        uint32_t end = alike[index].steps[alike[index].step_count - 1].last;

        answer_path(work, &alike[index], &answer->paths[index]);
        answer->paths[index].accumulated_bytes = alike[index].weight;
        for (size_t at = 0; piles != NULL && at < count; at++)
            if (piles[at].node == end)
                answer->paths[index].held = piles[at].held;
        answer->path_count = work->full ? index : answer->path_count;
    }
    memscope_array_unmap(alike);
    return status;
}

/*
 * The class of a node, even of a class or module, whose node_class may by now be its own name, or of an object that
 * memscope_name_by_line has named.
 */
static uint32_t class_of_node(struct work *work, uint32_t node) {
    const struct memscope_heap_graph *graph = &work->references.graph;

    if (!memscope_graph_is_module(graph, node) && (work->dump != NULL || graph->type[node] != MEMSCOPE_TYPE_DATA))
        return graph->node_class[node];
    if (work->dump != NULL)
        return graph->type[node] == MEMSCOPE_TYPE_CLASS ? memscope_names_find(&graph->names, "Class", 5)
                                                        : memscope_names_find(&graph->names, "Module", 6);
    return memscope_name_of_class_of(&work->references.class_names, memscope_object_of(&work->references, node));
}

static enum memscope_status answer_asked_paths(struct work *work) {
    const struct memscope_heap_question *question = work->question;
    const struct memscope_heap_graph *graph = &work->references.graph;
    uint32_t *nodes = memscope_array_map((size_t)graph->slot_count + 1, sizeof *nodes), name;
    size_t count = 0;
    enum memscope_status status = MEMSCOPE_OK;

    if (nodes == NULL)
        return MEMSCOPE_NO_MEMORY;
    if (question->object != 0) {
        nodes[0] = memscope_node_of(&work->references, question->object);
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
        status = answer_paths(work, nodes, NULL, count, NULL);
    memscope_array_unmap(nodes);
    return status;
}

static enum memscope_status answer_suspects(struct work *work, const struct memscope_accumulation *suspects,
                                            const struct pile *piles, size_t count) {
    uint32_t nodes[MEMSCOPE_MAX_ROWS];
    uint64_t weights[MEMSCOPE_MAX_ROWS];

    for (size_t index = 0; index < count; index++) {
        nodes[index] = suspects[index].node;
        weights[index] = suspects[index].accumulated;
    }
    return count == 0 ? MEMSCOPE_OK : answer_paths(work, nodes, weights, count, piles);
}

/* Answers with the paths to the tops of the growth, and their weights (memscope_dump_growth_tops). */
static enum memscope_status answer_growth(struct work *work) {
    const struct memscope_dump_growth *growth = work->question->growth;
    uint32_t *nodes = memscope_array_map((size_t)growth->added.count + 1, sizeof *nodes), count = 0;
    uint64_t *weights = memscope_array_map((size_t)growth->added.count + 1, sizeof *weights);
    enum memscope_status status = MEMSCOPE_OK;

    if (nodes != NULL && weights != NULL)
        count = memscope_dump_growth_tops(growth, &work->paths, nodes, weights);
    if (count == 0 && growth->added.count > 0)
        status = MEMSCOPE_NO_MEMORY;
    if (count > 0)
        status = answer_paths(work, nodes, weights, count, NULL);
    memscope_array_unmap(nodes);
    memscope_array_unmap(weights);
    return status;
}

static void find_piles(struct work *work, const struct memscope_retainer *holders, size_t holder_count,
                       const struct memscope_accumulation *suspects, size_t suspect_count, struct held *held,
                       struct pile *piles) {
    begin_list(work, MEMSCOPE_LIST_DOMINATORS);
    for (size_t index = 0; index < holder_count; index++)
        piles[index] = (struct pile){.node = holders[index].node, .held = held_by(work, holders[index].node, held)};
    for (size_t index = 0; index < suspect_count; index++)
        piles[MEMSCOPE_MAX_ROWS + index] =
            (struct pile){.node = suspects[index].node, .held = held_by(work, suspects[index].node, held)};
}

static enum memscope_status answer_piles(struct work *work, struct held *held, struct pile *piles) {
    const struct memscope_heap_graph *graph = &work->references.graph;
    struct memscope_dump_growth *growth = work->question->growth;
    bool suspected = work->question->object == 0 && work->question->objects == NULL && work->question->class == 0 &&
                     work->question->class_name == NULL && growth == NULL;
    struct memscope_retainer holders[MEMSCOPE_MAX_ROWS];
    struct memscope_accumulation suspects[MEMSCOPE_MAX_ROWS];
    size_t holder_count = 0, suspect_count = 0;
    enum memscope_status status =
        memscope_largest_retainers(graph, &work->dominators, holders, work->question->top, &holder_count);

    if (status == MEMSCOPE_OK && suspected)
        status = memscope_accumulations_find(graph, &work->paths, &work->dominators, suspects, work->question->top,
                                             &suspect_count);
    if (status == MEMSCOPE_OK && growth != NULL)
        status = memscope_dump_growth_count(growth, &work->paths);
    if (status != MEMSCOPE_OK)
        return status;
    find_piles(work, holders, holder_count, suspects, suspect_count, held, piles);
    begin_at_namespaces(work);
    if (growth != NULL)
        status = answer_growth(work);
    else
        status = suspected ? answer_suspects(work, suspects, piles + MEMSCOPE_MAX_ROWS, suspect_count)
                           : answer_asked_paths(work);
    return status == MEMSCOPE_OK ? answer_dominators(work, holders, piles, holder_count) : status;
}

static enum memscope_status answer_holders(struct work *work) {
    struct pile *piles = memscope_array_map((size_t)2 * MEMSCOPE_MAX_ROWS, sizeof *piles);
    enum memscope_status status = MEMSCOPE_NO_MEMORY;
    struct held *held;

    if (work->dump == NULL) {
        memscope_thread_locals_find_keys(&work->question->threads, &work->references);
        memscope_name_by_line(&work->references, &work->question->threads);
    }
    held = memscope_array_map(work->references.graph.names.count + 1, sizeof *held);
    if (piles != NULL && held != NULL)
        status = answer_piles(work, held, piles);

    memscope_array_unmap(piles);
    memscope_array_unmap(held);
    return status;
}

/* ---- the answer ------------------------------------------------------------------------------------------------ */

/*
 * Paths lead through the following only if there is no other path: the caller's stack, on which the object that is
 * asked for lies too; threads and fibers; and Ruby's code, with its caches of methods and constants.
 */
static enum memscope_status find_shortest_paths(struct work *work) {
    static const char *const last[] = {"Thread", "Fiber", "imemo_callcache", "imemo_constcache", "imemo_iseq"};
    uint32_t classes[sizeof last / sizeof last[0]];
    struct memscope_search_last search = {.category = "machine_context", .classes = classes};

    for (size_t index = 0; index < sizeof last / sizeof last[0]; index++) {
        uint32_t name = memscope_names_find(&work->references.graph.names, last[index], strlen(last[index]));

        if (name != 0)
            classes[search.class_count++] = name;
    }
    return memscope_shortest_paths_find(&work->paths, &work->references.graph, &search);
}

static uint64_t count_saturated(const struct memscope_heap_graph *graph) {
    uint64_t count = 0;

    for (uint32_t node = 0; node < graph->slot_count; node++)
        count += graph->bytes[node] == UINT32_MAX;
    return count;
}

/* The graph must have been filled. */
static enum memscope_status answer_all(struct work *work) {
    enum memscope_status status = find_shortest_paths(work);

    if (status == MEMSCOPE_OK)
        status = memscope_dominators_find(&work->dominators, &work->references.graph);
    if (status == MEMSCOPE_OK)
        status = answer_classes(work);
    if (status == MEMSCOPE_OK)
        status = answer_strings(work);
    if (status != MEMSCOPE_OK)
        return status;
    answer_roots(work);
    work->answer->reachable = work->paths.reachable;
    work->answer->garbage = work->paths.garbage;
    work->answer->saturated_count = count_saturated(&work->references.graph);
    work->answer->reference_count = work->references.graph.first_edge[work->references.graph.slot_count];
    work->answer->held = work->references.held;
    return answer_holders(work);
}

void memscope_heap_answer_took(const struct memscope_heap_listing *listing, const struct memscope_heap_answer *answer) {
    if (answer->status == MEMSCOPE_OK) /* an answer that failed may have taken much less time */
        memscope_slot_rate_learn(&ns_of_1000_slots, listing->slots, answer->spent_ns);
}

uint64_t memscope_heap_answer_predicted_ns(uint64_t slots) {
    return memscope_slot_rate_predict(&ns_of_1000_slots, slots);
}

void memscope_heap_answer(const struct memscope_heap_question *question, const struct memscope_heap_listing *listing,
                          struct memscope_scratch *scratch, struct memscope_answer_room *room,
                          struct memscope_heap_answer *answer) {
    struct work work = {.question = question, .room = room, .answer = answer};
    uint64_t start = memscope_thread_ns();
    enum memscope_status status;

    memset(answer, 0, sizeof *answer);
    status = memscope_heap_references_fill(&work.references, listing, scratch);
    if (status == MEMSCOPE_OK)
        status = answer_all(&work);
    if (status != MEMSCOPE_OK)
        answer->status = status;
    memscope_dominators_close(&work.dominators);
    memscope_shortest_paths_close(&work.paths);
    memscope_heap_references_close(&work.references);
    answer->spent_ns = memscope_thread_ns() - start;
    memscope_heap_answer_took(listing, answer);
}

void memscope_heap_answer_of_dump(const struct memscope_heap_question *question, const struct memscope_heap_dump *dump,
                                  struct memscope_answer_room *room, struct memscope_heap_answer *answer) {
    struct work work = {.question = question, .room = room, .answer = answer, .dump = dump};
    uint64_t start = memscope_thread_ns();
    enum memscope_status status;

    memset(answer, 0, sizeof *answer);
    work.references.graph = *dump->graph;
    status = answer_all(&work);
    if (status != MEMSCOPE_OK)
        answer->status = status;
    *dump->graph = work.references.graph; /* names may have moved */
    memscope_dominators_close(&work.dominators);
    memscope_shortest_paths_close(&work.paths);
    answer->spent_ns = memscope_thread_ns() - start;
}

/* ---- in a forked child ----------------------------------------------------------------------------------------- */

static bool answer_in_child(void *argument, int answer) {
    struct memscope_answer_child *child = argument;
    struct memscope_scratch scratch;

    if ((child->found.status = memscope_scratch_open(&scratch)) != MEMSCOPE_OK)
        return memscope_forked_child_answer(answer, &child->found, sizeof child->found);
    memscope_heap_answer(child->question, child->listing, &scratch, child->room, &child->found);
    child->found.child_bytes = memscope_forked_child_grown_bytes();
    return memscope_forked_child_answer(answer, &child->found, sizeof child->found);
}

enum memscope_status memscope_answer_child_start(struct memscope_answer_child *child, unsigned deadline_ms) {
    struct memscope_scratch *pages = (struct memscope_scratch *)&child->listing->scratch;
    enum memscope_status status;

    memscope_scratch_inherit(pages, true);
    status = memscope_forked_child_start(&child->process, answer_in_child, child, -1, deadline_ms);
    memscope_scratch_inherit(pages, false);
    return status;
}

void memscope_answer_child_end(struct memscope_answer_child *child) {
    memscope_forked_child_end(&child->process);
}
