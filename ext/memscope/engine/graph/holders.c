#include "graph/holders.h"

#include "base/mapped_array.h"
#include "base/merge_sort.h"
#include "graph/largest.h"

#include <string.h>

/* Among how many nearest dominators to look for a list's previous node: Node → Array → Node is a list too. */
#define LINKS_BETWEEN 3

/* ---- By class */

static enum memscope_status map_classes(const struct memscope_heap_graph *graph, struct memscope_largest *largest,
                                        size_t top, struct memscope_class_row **classes) {
    size_t count = graph->names.count;

    memset(largest, 0, sizeof *largest);
    *classes = memscope_array_map(count, sizeof **classes);
    if (*classes == NULL)
        return MEMSCOPE_NO_MEMORY;
    return memscope_largest_open(largest, top < count ? top : count);
}

static void add_object(struct memscope_class_row *classes, const struct memscope_heap_graph *graph, uint32_t node) {
    struct memscope_class_row *row = &classes[graph->node_class[node]];

    row->count++;
    row->bytes += graph->bytes[node];
    if (graph->slot_bytes != NULL)
        row->slot_bytes += graph->slot_bytes[node];
}

static size_t take_largest_classes(const struct memscope_heap_graph *graph, const struct memscope_class_row *classes,
                                   struct memscope_largest *largest, struct memscope_class_row *rows) {
    for (uint32_t name = 0; name < graph->names.count; name++)
        memscope_largest_offer(largest, classes[name].retained, name);
    memscope_largest_sort(largest);
    for (size_t index = 0; index < largest->count; index++) {
        rows[index] = classes[largest->items[index].number];
        rows[index].class_name = largest->items[index].number;
    }
    return largest->count;
}

/* Preorder: while positions are below ends[class], an object of the class dominates them. */
static void add_retained(struct memscope_class_row *classes, uint32_t *ends, const struct memscope_heap_graph *graph,
                         const struct memscope_dominators *dominators) {
    for (uint32_t position = 0; position < dominators->node_count; position++) {
        uint32_t node = dominators->order[position];
        uint32_t class_name = graph->node_class[node];

        if (node >= graph->slot_count)
            continue;
        add_object(classes, graph, node);
        if (position < ends[class_name])
            continue;
        classes[class_name].retained += dominators->retained[node];
        ends[class_name] = position + dominators->dominated[position];
    }
}

enum memscope_status memscope_retained_by_class(const struct memscope_heap_graph *graph,
                                                const struct memscope_dominators *dominators,
                                                struct memscope_class_row *rows, size_t top, size_t *count) {
    struct memscope_largest largest;
    struct memscope_class_row *classes;
    uint32_t *ends = memscope_array_map(graph->names.count, sizeof *ends);
    enum memscope_status status = map_classes(graph, &largest, top, &classes);

    *count = 0;
    if (ends == NULL)
        status = MEMSCOPE_NO_MEMORY;
    if (status == MEMSCOPE_OK) {
        add_retained(classes, ends, graph, dominators);
        *count = take_largest_classes(graph, classes, &largest, rows);
    }
    memscope_largest_close(&largest);
    memscope_array_unmap(classes);
    memscope_array_unmap(ends);
    return status;
}

enum memscope_status memscope_garbage_by_class(const struct memscope_heap_graph *graph,
                                               const struct memscope_shortest_paths *paths,
                                               struct memscope_class_row *rows, size_t top, size_t *count) {
    struct memscope_largest largest;
    struct memscope_class_row *classes;
    enum memscope_status status = map_classes(graph, &largest, top, &classes);

    *count = 0;
    if (status == MEMSCOPE_OK) {
        for (uint32_t slot = 0; slot < graph->slot_count; slot++)
            if (graph->type[slot] != 0 && !memscope_reaches(paths, slot))
                add_object(classes, graph, slot);
        for (uint32_t name = 0; name < graph->names.count; name++)
            classes[name].retained = classes[name].bytes;
        *count = take_largest_classes(graph, classes, &largest, rows);
    }
    memscope_largest_close(&largest);
    memscope_array_unmap(classes);
    return status;
}

/* ---- Lists */

uint32_t memscope_previous_in_list(const struct memscope_heap_graph *graph,
                                   const struct memscope_dominators *dominators, uint32_t node, double times) {
    uint32_t above = node;

    if (memscope_graph_is_module(graph, node))
        return MEMSCOPE_NO_NODE;
    for (int step = 0; step < LINKS_BETWEEN; step++) {
        above = dominators->dominator[above];
        if (above >= graph->slot_count)
            break;
        if (graph->node_class[above] == graph->node_class[node] && graph->type[above] == graph->type[node])
            return (double)dominators->retained[above] < times * (double)dominators->retained[node] ? above
                                                                                                    : MEMSCOPE_NO_NODE;
    }
    return MEMSCOPE_NO_NODE;
}

/* ---- The largest */

static bool by_position(const void *left, const void *right) {
    return ((const struct memscope_weighed *)left)->number <= ((const struct memscope_weighed *)right)->number;
}

static bool by_retained(const void *left, const void *right) {
    return ((const struct memscope_holder *)left)->retained >= ((const struct memscope_holder *)right)->retained;
}

static uint32_t count_children(const struct memscope_dominators *dominators, uint32_t position) {
    uint32_t end = position + dominators->dominated[position], count = 0;

    for (uint32_t child = position + 1; child < end; child += dominators->dominated[child])
        count++;
    return count;
}

static struct memscope_holder describe(const struct memscope_dominators *dominators, uint32_t position) {
    uint32_t node = dominators->order[position];

    return (struct memscope_holder){.node = node,
                                    .dominator = dominators->dominator[node],
                                    .within = MEMSCOPE_NO_NODE,
                                    .child_count = count_children(dominators, position),
                                    .object_count = dominators->dominated[position],
                                    .retained = dominators->retained[node]};
}

/* Holders are sorted by position. around[index] is the nearest holder that dominates holder `index`: the search goes
 * outwards from index - 1. */
static void nest(const struct memscope_dominators *dominators, const struct memscope_weighed *items, uint32_t *around,
                 struct memscope_holder *holders, size_t count) {
    for (uint32_t index = 0; index < count; index++) {
        uint32_t other = index == 0 ? MEMSCOPE_NO_NODE : index - 1;

        while (other != MEMSCOPE_NO_NODE &&
               items[other].number + dominators->dominated[items[other].number] <= items[index].number)
            other = around[other];
        around[index] = other;
        if (other != MEMSCOPE_NO_NODE)
            holders[index].within = holders[other].node;
    }
}

static enum memscope_status take_largest_holders(const struct memscope_dominators *dominators,
                                                 struct memscope_largest *largest, struct memscope_holder *holders) {
    size_t count = largest->count;
    struct memscope_holder *buffer = memscope_array_map(count, sizeof *buffer);
    uint32_t *around = memscope_array_map(count, sizeof *around);
    bool mapped = buffer != NULL && around != NULL;

    if (mapped) {
        memscope_merge_sort((char *)largest->items, count, sizeof *largest->items, (char *)buffer, by_position);
        for (size_t index = 0; index < count; index++)
            holders[index] = describe(dominators, largest->items[index].number);
        nest(dominators, largest->items, around, holders, count);
        memscope_merge_sort((char *)holders, count, sizeof *holders, (char *)buffer, by_retained);
    }
    memscope_array_unmap(buffer);
    memscope_array_unmap(around);
    return mapped ? MEMSCOPE_OK : MEMSCOPE_NO_MEMORY;
}

enum memscope_status memscope_largest_holders(const struct memscope_heap_graph *graph,
                                              const struct memscope_dominators *dominators,
                                              struct memscope_holder *holders, size_t top, size_t *count) {
    struct memscope_largest largest;
    enum memscope_status status =
        memscope_largest_open(&largest, top < dominators->node_count ? top : dominators->node_count);

    *count = 0;
    for (uint32_t position = 0; status == MEMSCOPE_OK && position < dominators->node_count; position++) {
        uint32_t node = dominators->order[position];

        if (node < graph->slot_count && memscope_previous_in_list(graph, dominators, node, 1.1) == MEMSCOPE_NO_NODE)
            memscope_largest_offer(&largest, dominators->retained[node], position);
    }
    if (status == MEMSCOPE_OK)
        status = take_largest_holders(dominators, &largest, holders);
    if (status == MEMSCOPE_OK)
        *count = largest.count;
    memscope_largest_close(&largest);
    return status;
}
