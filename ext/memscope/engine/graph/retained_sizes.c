#include "graph/retained_sizes.h"

#include "base/mapped_array.h"
#include "graph/top_rows.h"

/* The number of nearest dominators to search for a list's previous node: Node → Array → Node is a list too. */
#define LINKS_BETWEEN 3

/* ---- By class */

static void add_object(struct memscope_class_row *classes, const struct memscope_heap_graph *graph, uint32_t node) {
    struct memscope_class_row *row = &classes[graph->node_class[node]];

    row->count++;
    row->bytes += graph->bytes[node];
    if (graph->slot_bytes != NULL)
        row->slot_bytes += graph->slot_bytes[node];
}

/* Adds the reachable objects, or the garbage. */
static void add_objects(struct memscope_class_row *classes, const struct memscope_heap_graph *graph,
                        const struct memscope_shortest_paths *paths, bool reachable) {
    for (uint32_t slot = 0; slot < graph->slot_count; slot++)
        if (graph->type[slot] != 0 && memscope_reaches(paths, slot) == reachable)
            add_object(classes, graph, slot);
}

static size_t take_largest_classes(const struct memscope_heap_graph *graph, const struct memscope_class_row *classes,
                                   struct memscope_top_rows *largest, struct memscope_class_row *rows) {
    for (uint32_t name = 0; name < graph->names.count; name++)
        memscope_top_rows_offer(largest, classes[name].retained_bytes, name);
    memscope_top_rows_sort(largest);
    for (size_t index = 0; index < largest->count; index++) {
        rows[index] = classes[largest->items[index].number];
        rows[index].name = largest->items[index].number;
        rows[index].slot_bytes = memscope_stated_slot_bytes(rows[index].slot_bytes, rows[index].count);
    }
    return largest->count;
}

/* In preorder: an object of the class dominates each node whose position is below ends[class]. */
static void add_retained(struct memscope_class_row *classes, uint32_t *ends, const struct memscope_heap_graph *graph,
                         const struct memscope_dominators *dominators) {
    for (uint32_t position = 0; position < dominators->node_count; position++) {
        uint32_t node = dominators->tree[position].node, ahead = memscope_dominated_ahead(dominators, position);
        uint32_t class_name = graph->node_class[node];

        __builtin_prefetch(&graph->node_class[ahead]);
        __builtin_prefetch(&dominators->retained[ahead]);
        if (node >= graph->slot_count || position < ends[class_name])
            continue;
        classes[class_name].retained_bytes += dominators->retained[node];
        ends[class_name] = position + dominators->tree[position].count;
    }
}

enum memscope_status memscope_largest_classes(const struct memscope_heap_graph *graph,
                                              const struct memscope_shortest_paths *paths,
                                              const struct memscope_dominators *dominators,
                                              struct memscope_class_row *rows, size_t top, size_t *count) {
    size_t class_count = graph->names.count;
    struct memscope_top_rows largest = {0};
    struct memscope_class_row *classes = memscope_array_map(class_count, sizeof *classes);
    uint32_t *ends = memscope_array_map(class_count, sizeof *ends);
    enum memscope_status status = MEMSCOPE_NO_MEMORY;

    *count = 0;
    if (classes != NULL && ends != NULL)
        status = memscope_top_rows_open(&largest, top < class_count ? top : class_count);
    if (status == MEMSCOPE_OK) {
        add_objects(classes, graph, paths, dominators != NULL);
        if (dominators != NULL)
            add_retained(classes, ends, graph, dominators);
        for (size_t name = 0; dominators == NULL && name < class_count; name++)
            classes[name].retained_bytes = classes[name].bytes;
        *count = take_largest_classes(graph, classes, &largest, rows);
    }
    memscope_top_rows_close(&largest);
    memscope_arrays_unmap(classes, ends);
    return status;
}

/* ---- Lists */

uint32_t memscope_previous_in_list(const struct memscope_heap_graph *graph,
                                   const struct memscope_dominators *dominators, uint32_t node, double times) {
    double limit = times * (double)dominators->retained[node];
    uint32_t above = node;

    for (int step = 0; step < LINKS_BETWEEN; step++) {
        above = dominators->dominator[above];
        /* A node above a dominator retains as much as it, or more. */
        if (above >= graph->slot_count || (double)dominators->retained[above] >= limit)
            break;
        if (graph->node_class[above] == graph->node_class[node] && graph->type[above] == graph->type[node])
            return memscope_graph_is_module(graph, node) ? MEMSCOPE_NO_NODE : above;
    }
    return MEMSCOPE_NO_NODE;
}

/* ---- The largest retainers */

static struct memscope_retainer describe(const struct memscope_dominators *dominators, uint32_t position) {
    uint32_t node = dominators->tree[position].node;

    return (struct memscope_retainer){
        .node = node, .object_count = dominators->tree[position].count, .retained = dominators->retained[node]};
}

enum memscope_status memscope_largest_retainers(const struct memscope_heap_graph *graph,
                                                const struct memscope_dominators *dominators,
                                                struct memscope_retainer *holders, size_t top, size_t *count) {
    struct memscope_top_rows largest;
    enum memscope_status status =
        memscope_top_rows_open(&largest, top < dominators->node_count ? top : dominators->node_count);

    *count = 0;
    for (uint32_t position = 0; status == MEMSCOPE_OK && position < dominators->node_count; position++) {
        uint32_t node = dominators->tree[position].node;

        __builtin_prefetch(&dominators->retained[memscope_dominated_ahead(dominators, position)]);
        if (node < graph->slot_count && memscope_top_rows_may_take(&largest, dominators->retained[node]) &&
            memscope_previous_in_list(graph, dominators, node, 1.1) == MEMSCOPE_NO_NODE)
            memscope_top_rows_offer(&largest, dominators->retained[node], position);
    }
    memscope_top_rows_sort(&largest);
    for (; *count < largest.count; ++*count)
        holders[*count] = describe(dominators, largest.items[*count].number);
    memscope_top_rows_close(&largest);
    return status;
}
