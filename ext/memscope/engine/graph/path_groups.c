#include "graph/path_groups.h"

#include "base/mapped_array.h"
#include "graph/top_rows.h"

#include <string.h>

#define MAX_PERIOD 3

/*
 * How a signature identifies a step: by the name of its class, by the name of a class or module on the way to the
 * target or, for a category, by its node.
 */
enum step_kind { BY_CLASS, BY_MODULE, BY_NODE };

/* The steps of a path so far: the last step, and the signature of those before it. Four numbers, without padding. */
struct steps {
    uint32_t before; /* a signature's number, 0 before the first */
    uint32_t number; /* the name's, or the node */
    uint32_t kind;   /* enum step_kind */
    memscope_edge_name edge;
};

/* The targets whose paths have these steps. */
struct signature {
    struct steps steps;
    uint32_t count;
    uint32_t shortest; /* a target */
    uint64_t weight;
    uint32_t length; /* of the path to `shortest` */
    uint32_t end;    /* positions below `end` are dominated by one of these targets */
    uint64_t retained;
};

struct path_scan {
    const struct memscope_path_question *asked;
    const struct memscope_heap_graph *graph;
    const struct memscope_shortest_paths *paths;

    uint32_t *signature_of;        /* of each node on the way, 0 if not known yet */
    uint32_t *length_of;           /* the steps from the root to it */
    uint32_t *place_of;            /* the index of each requested node in the caller's list, plus 1 */
    uint32_t *way;                 /* a path, last node first */
    struct memscope_names numbers; /* of signatures, by the bytes of their steps, 0 for none */
    struct signature *signatures;
    uint32_t signature_count;
};

/* ---- Memory */

static uint32_t *map_nodes(const struct path_scan *scan) {
    return memscope_array_map_sparse(scan->graph->node_count, sizeof(uint32_t));
}

static bool map_scan(struct path_scan *scan) {
    scan->signature_of = map_nodes(scan);
    scan->length_of = map_nodes(scan);
    scan->place_of = map_nodes(scan);
    scan->way = map_nodes(scan);
    scan->signature_count = 1;
    return scan->signature_of != NULL && scan->length_of != NULL && scan->way != NULL && scan->place_of != NULL &&
           memscope_names_open(&scan->numbers) == MEMSCOPE_OK;
}

static void close_scan(struct path_scan *scan) {
    memscope_arrays_unmap(scan->signature_of, scan->length_of, scan->place_of, scan->way, scan->signatures);
    memscope_names_close(&scan->numbers);
}

/* ---- Signatures */

/* The number of the signature with these steps, 0 without memory. */
static uint32_t number_of(struct path_scan *scan, const struct steps *steps) {
    uint32_t number = memscope_names_add(&scan->numbers, (const char *)steps, sizeof *steps);

    if (number < scan->signature_count)
        return number;
    if (!MEMSCOPE_ARRAY_RESERVE(scan->signatures, (size_t)number + 1))
        return 0;
    scan->signatures[number].steps = *steps;
    scan->signature_count = number + 1;
    return number;
}

/* Each class or module is a step of its own. */
static bool same_step(const struct steps *one, const struct steps *other) {
    return one->kind == other->kind && one->number == other->number && one->kind != BY_MODULE;
}

/* The signature without the repetition, if the last step completes a repetition of those before, else 0. */
static uint32_t repeated(const struct path_scan *scan, const struct steps *step) {
    uint32_t back[2 * MAX_PERIOD] = {0}; /* the signatures before, from the last on */

    for (uint32_t index = 0, number = step->before; index < 2 * MAX_PERIOD - 1 && number != 0; index++) {
        back[index] = number;
        number = scan->signatures[number].steps.before;
    }
    for (uint32_t period = 1; period <= MAX_PERIOD && back[2 * period - 2] != 0; period++) {
        uint32_t same = same_step(step, &scan->signatures[back[period - 1]].steps);

        while (same > 0 && same < period &&
               same_step(&scan->signatures[back[same - 1]].steps, &scan->signatures[back[same - 1 + period]].steps))
            same++;
        if (same == period)
            return back[period - 1];
    }
    return 0;
}

/* ---- Names of edges */

static memscope_edge_name name_in_graph(const struct memscope_heap_graph *graph, uint32_t from, uint32_t to) {
    for (uint32_t edge = graph->first_edge[from]; edge < graph->first_edge[from + 1]; edge++)
        if (graph->edges[edge] == to)
            return memscope_graph_edge_name(graph, edge);
    return MEMSCOPE_EDGE_INTERNAL;
}

static memscope_edge_name name_edge(const struct path_scan *scan, uint32_t from, uint32_t to) {
    if (scan->asked->namer != NULL)
        return scan->asked->namer(scan->asked->context, from, to);
    return name_in_graph(scan->graph, from, to);
}

/* The edge's name if it makes paths differ, as constants and variables do, else MEMSCOPE_EDGE_INTERNAL. */
static memscope_edge_name name_in_signature(const struct path_scan *scan, uint32_t from, uint32_t to) {
    memscope_edge_name name;

    switch (scan->graph->type[from]) {
    case MEMSCOPE_TYPE_ARRAY:
    case MEMSCOPE_TYPE_HASH:
    case MEMSCOPE_TYPE_STRUCT:
    case MEMSCOPE_TYPE_IMEMO:
        return MEMSCOPE_EDGE_INTERNAL;
    default:
        name = name_edge(scan, from, to);
    }
    switch (MEMSCOPE_EDGE_KIND(name)) {
    case MEMSCOPE_EDGE_CONSTANT:
    case MEMSCOPE_EDGE_IVAR:
    case MEMSCOPE_EDGE_CVAR:
    case MEMSCOPE_EDGE_GLOBAL:
    case MEMSCOPE_EDGE_THREAD:
        return name;
    default:
        return MEMSCOPE_EDGE_INTERNAL;
    }
}

/* ---- Paths */

/* The signature of the path to a node other than the root, 0 if memory runs out. `before` is its parent's signature. */
static uint32_t follow(struct path_scan *scan, uint32_t before, uint32_t node, bool target) {
    const struct memscope_heap_graph *graph = scan->graph;
    uint32_t parent = scan->paths->parent[node], earlier;
    bool is_category = node >= graph->slot_count;
    struct steps step = {.before = before, .number = is_category ? node : graph->node_class[node], .kind = BY_CLASS};

    if (is_category)
        step.kind = BY_NODE;
    else if (!target && memscope_graph_is_module(graph, node))
        step.kind = BY_MODULE;
    if ((earlier = repeated(scan, &step)) != 0)
        return earlier;
    step.edge = name_in_signature(scan, parent, node);
    return number_of(scan, &step);
}

/*
 * Sets *signature to the signature of the path to a node, 0 for the root. Remembers the signature of each node on that
 * path. Returns false without memory.
 */
static bool signature_of_way(struct path_scan *scan, uint32_t node, uint32_t *signature) {
    uint32_t root = memscope_graph_root(scan->graph), depth = 0, at = node, before, length;

    for (; at != root && scan->signature_of[at] == 0; at = scan->paths->parent[at])
        scan->way[depth++] = at;
    before = at == root ? 0 : scan->signature_of[at];
    length = scan->length_of[at];
    while (depth > 0) {
        at = scan->way[--depth];
        if ((before = follow(scan, before, at, false)) == 0)
            return false;
        scan->signature_of[at] = before;
        scan->length_of[at] = ++length;
    }
    *signature = before;
    return true;
}

/* The number of the signature that the target was added to, 0 without memory. */
static uint32_t add_target(struct path_scan *scan, uint32_t node) {
    struct signature *signature;
    uint32_t number, parent = scan->paths->parent[node], length;

    if (!signature_of_way(scan, parent, &number) || (number = follow(scan, number, node, true)) == 0)
        return 0;
    signature = &scan->signatures[number];
    length = scan->length_of[parent] + 1;
    if (signature->count++ == 0 || length < signature->length) {
        signature->shortest = node;
        signature->length = length;
    }
    if (scan->asked->weights != NULL)
        signature->weight += scan->asked->weights[scan->place_of[node] - 1];
    return number;
}

static bool is_target(const struct path_scan *scan, uint32_t node) {
    return scan->place_of[node] != 0;
}

/* Visits all nodes in preorder, so that the nodes which a target dominates follow it. */
static bool add_targets(struct path_scan *scan, struct memscope_paths_found *found) {
    const struct memscope_dominators *dominators = scan->asked->dominators;

    for (uint32_t position = 0, end = 0; position < dominators->node_count; position++) {
        uint32_t node = dominators->tree[position].node, after = position + dominators->tree[position].count, number;

        if (!is_target(scan, node))
            continue;
        if ((number = add_target(scan, node)) == 0)
            return false;
        found->targets++;
        if (position >= end) {
            found->retained += dominators->retained[node];
            end = after;
        }
        if (position >= scan->signatures[number].end) {
            scan->signatures[number].retained += dominators->retained[node];
            scan->signatures[number].end = after;
        }
    }
    for (uint32_t slot = 0; slot < scan->graph->slot_count; slot++)
        found->not_reached +=
            scan->graph->type[slot] != 0 && is_target(scan, slot) && !memscope_reaches(scan->paths, slot);
    return true;
}

static void note_places(struct path_scan *scan) {
    for (size_t index = scan->asked->node_count; index > 0; index--)
        if (scan->asked->nodes[index - 1] < memscope_graph_root(scan->graph))
            scan->place_of[scan->asked->nodes[index - 1]] = (uint32_t)index;
}

/* ---- The answer */

/*
 * Returns true if a new step begins at this node: objects of one class in a row are one step, but each class or module
 * is a step of its own.
 */
static bool begins_step(const struct path_scan *scan, uint32_t node, uint32_t before) {
    const struct memscope_heap_graph *graph = scan->graph;

    return before >= graph->slot_count || graph->node_class[node] != graph->node_class[before] ||
           graph->type[node] != graph->type[before] || memscope_graph_is_module(graph, node);
}

static uint32_t count_steps(const struct path_scan *scan, uint32_t length) {
    uint32_t steps = 0;

    for (uint32_t left = length; left > 0; left--)
        steps += left == length || begins_step(scan, scan->way[left - 1], scan->way[left]);
    return steps;
}

/* The way from the category to the target, with the middle left out if it has too many steps. */
static void describe(struct path_scan *scan, uint32_t target, struct memscope_path_group *alike) {
    uint32_t root = memscope_graph_root(scan->graph), length = 0, steps, index = 0;
    struct memscope_path_step *step = NULL;

    for (uint32_t node = target; node != root; node = scan->paths->parent[node])
        scan->way[length++] = node;
    steps = count_steps(scan, length);
    alike->steps_left_out = steps > MEMSCOPE_PATH_STEPS ? steps - MEMSCOPE_PATH_STEPS : 0;
    for (uint32_t left = length; left > 0; left--) {
        uint32_t node = scan->way[left - 1];
        bool begins = left == length || begins_step(scan, node, scan->way[left]);

        if (begins && index++ - MEMSCOPE_PATH_STEPS / 2 < alike->steps_left_out)
            step = NULL;
        else if (begins) {
            step = &alike->steps[alike->step_count++];
            *step = (struct memscope_path_step){.node = node};
            if (left != length)
                step->edge = name_edge(scan, scan->way[left], node);
        }
        if (step != NULL) {
            step->last = node;
            step->times++;
        }
    }
}

static uint64_t rank_of(const struct path_scan *scan, const struct signature *signature) {
    return (scan->asked->weights != NULL ? signature->weight : signature->retained) + 1;
}

static size_t take_largest(struct path_scan *scan, struct memscope_top_rows *largest, struct memscope_path_group *alike,
                           struct memscope_paths_found *found) {
    for (uint32_t number = 1; number < scan->signature_count; number++) {
        const struct signature *signature = &scan->signatures[number];

        if (signature->count == 0)
            continue;
        found->all_alike++;
        memscope_top_rows_offer(largest, rank_of(scan, signature), number);
    }
    memscope_top_rows_sort(largest);
    for (size_t index = 0; index < largest->count; index++) {
        const struct signature *signature = &scan->signatures[largest->items[index].number];

        memset(&alike[index], 0, sizeof alike[index]);
        alike[index].count = signature->count;
        alike[index].weight = signature->weight;
        alike[index].retained = signature->retained;
        describe(scan, signature->shortest, &alike[index]);
    }
    return largest->count;
}

enum memscope_status memscope_path_groups_find(const struct memscope_path_question *question,
                                               struct memscope_path_group *alike, size_t top,
                                               struct memscope_paths_found *found) {
    struct path_scan scan = {.asked = question, .graph = question->graph, .paths = question->paths};
    struct memscope_top_rows largest;
    uint32_t most = question->graph->slot_count;
    enum memscope_status status = memscope_top_rows_open(&largest, top < most ? top : most);

    memset(found, 0, sizeof *found);
    if (status != MEMSCOPE_OK || !map_scan(&scan)) {
        status = MEMSCOPE_NO_MEMORY;
    } else {
        note_places(&scan);
        if (add_targets(&scan, found))
            found->alike_count = take_largest(&scan, &largest, alike, found);
        else
            status = MEMSCOPE_NO_MEMORY;
    }
    memscope_top_rows_close(&largest);
    close_scan(&scan);
    return status;
}

enum memscope_status memscope_path_find(const struct memscope_path_question *question, uint32_t node,
                                        struct memscope_path_group *path) {
    struct path_scan scan = {.asked = question, .graph = question->graph, .paths = question->paths};

    scan.way = map_nodes(&scan);
    if (scan.way == NULL)
        return MEMSCOPE_NO_MEMORY;
    *path = (struct memscope_path_group){.count = 1, .retained = question->dominators->retained[node]};
    describe(&scan, node, path);
    memscope_array_unmap(scan.way);
    return MEMSCOPE_OK;
}
