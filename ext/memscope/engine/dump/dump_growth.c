#include "dump/dump_growth.h"

#include <string.h>

#include "base/mapped_array.h"

/* ---- matching objects of two dumps ----------------------------------------------------------------------------- */

/* Adds a dump's names to the last dump's. Returns their numbers there, by the dump's own, or NULL without memory. */
static uint32_t *map_names(const struct memscope_names *from, struct memscope_names *to) {
    uint32_t *numbers = memscope_array_map(from->count, sizeof *numbers);

    for (uint32_t name = 1; numbers != NULL && name < from->count; name++) {
        struct memscope_text text = memscope_names_get(from, name);

        numbers[name] = memscope_names_add(to, text.start, text.length);
        if (numbers[name] == 0) {
            memscope_array_unmap(numbers);
            numbers = NULL;
        }
    }
    return numbers;
}

/* Finds an object of the last dump in another: its node there, or MEMSCOPE_NO_NODE. `names` is from map_names. */
static uint32_t find_same(const struct memscope_objspace_reader *last, uint32_t node,
                          const struct memscope_objspace_reader *other, const uint32_t *names) {
    uint64_t address = last->addresses[node], now = last->generations[node];
    uint32_t same = memscope_address_find(&other->index, address);
    const struct memscope_heap_graph *graph = &last->graph, *graph_of_other = &other->graph;

    if (same == MEMSCOPE_NO_NODE || graph->type[node] != graph_of_other->type[same])
        return MEMSCOPE_NO_NODE;
    if (now != 0) /* if nothing was traced when the other dump was written, it states 0, and the object is newer */
        return other->generations[same] == now ? same : MEMSCOPE_NO_NODE;
    return names[graph_of_other->node_class[same]] == graph->node_class[node] ? same : MEMSCOPE_NO_NODE;
}

/* Returns true if the last dump has most of another dump's classes, with the same names at the same addresses. */
static bool are_of_one_process(const struct memscope_objspace_reader *last,
                               const struct memscope_objspace_reader *other, const uint32_t *names) {
    uint32_t named = 0, found = 0;

    for (uint32_t index = 0; index < other->dump.module_count; index++) {
        const struct memscope_module_name *module = &other->modules[index], *same;
        uint32_t node;

        if (!module->named)
            continue;
        named++;
        node = memscope_address_find(&last->index, other->addresses[module->node]);
        same = node == MEMSCOPE_NO_NODE ? NULL : memscope_heap_dump_module(&last->dump, node);
        found += same != NULL && same->named && same->name == names[module->name];
    }
    return named == 0 || found > named / 2;
}

/* ---- new objects ----------------------------------------------------------------------------------------------- */

/* The latest generation of all objects of a dump, 0 if it states none. */
static uint64_t newest_generation(const struct memscope_objspace_reader *dump) {
    uint64_t newest = 0;

    for (uint32_t node = 0; node < dump->graph.slot_count; node++) {
        uint64_t stated = dump->generations[node];

        newest = stated > newest ? stated : newest;
    }
    return newest;
}

/*
 * Returns true if an object of the last dump already existed when the other dump, whose latest generation is `newest`,
 * was written. Every object of an earlier generation did, though a compaction may have moved it since.
 */
static bool was_there(const struct memscope_dump_growth *growth, uint32_t node,
                      const struct memscope_objspace_reader *other, uint64_t newest, const uint32_t *names) {
    uint64_t now = growth->last->generations[node];

    return (now != 0 && now < newest) || find_same(growth->last, node, other, names) != MEMSCOPE_NO_NODE;
}

/* Unmarks the objects that are not in the other dump if in_other, else the objects that are in it. */
static enum memscope_status compare(struct memscope_dump_growth *growth, const struct memscope_objspace_reader *other,
                                    bool in_other, const uint32_t *names) {
    uint32_t count = growth->last->graph.slot_count;
    uint64_t newest;

    if (!are_of_one_process(growth->last, other, names))
        return MEMSCOPE_NOT_FOUND;
    newest = newest_generation(other);
    for (uint32_t node = 0; node < count; node++)
        if (growth->is_new[node])
            growth->is_new[node] = was_there(growth, node, other, newest, names) == in_other;
    return MEMSCOPE_OK;
}

static enum memscope_status compare_second(struct memscope_dump_growth *growth) {
    struct memscope_heap_graph *graph = &growth->last->graph;
    uint32_t *names = map_names(&growth->second->graph.names, &graph->names);
    enum memscope_status status = names == NULL ? MEMSCOPE_NO_MEMORY : compare(growth, growth->second, true, names);

    memscope_array_unmap(names);
    return status;
}

enum memscope_status memscope_dump_growth_open(struct memscope_dump_growth *growth) {
    struct memscope_heap_graph *graph = &growth->last->graph;
    enum memscope_status status;

    growth->is_new = memscope_array_map(graph->slot_count, 1);
    growth->first_names = map_names(&growth->first->graph.names, &graph->names);
    if (growth->is_new == NULL || growth->first_names == NULL)
        return MEMSCOPE_NO_MEMORY;
    memset(growth->is_new, 1, graph->slot_count);
    status = compare(growth, growth->first, false, growth->first_names);
    if (status == MEMSCOPE_OK && growth->second != NULL)
        status = compare_second(growth);
    growth->knows_sites = newest_generation(growth->last) > 0;
    growth->knows_generations = growth->knows_sites && newest_generation(growth->first) > 0 &&
                                (growth->second == NULL || newest_generation(growth->second) > 0);
    return status;
}

/* ---- sums ------------------------------------------------------------------------------------------------------ */

static void add_new(struct memscope_growth_row *row, uint32_t bytes) {
    row->new_count++;
    row->new_bytes += bytes;
}

static void count_last(struct memscope_dump_growth *growth, const struct memscope_shortest_paths *paths) {
    const struct memscope_heap_graph *graph = &growth->last->graph;
    const uint32_t *sites = growth->last->sites;

    for (uint32_t node = 0; node < graph->slot_count; node++) {
        struct memscope_growth_row *row = &growth->classes[graph->node_class[node]];

        row->count++;
        row->later_count++;
        row->bytes += graph->bytes[node];
        growth->bytes += graph->bytes[node];
        if (!growth->is_new[node])
            continue;
        growth->is_new[node] = memscope_reaches(paths, node);
        memscope_heap_part_add(growth->is_new[node] ? &growth->added : &growth->garbage, graph, node);
        if (growth->is_new[node]) {
            add_new(row, graph->bytes[node]);
            add_new(&growth->sites[sites[node]], graph->bytes[node]);
            growth->untraced_count += growth->last->generations[node] == 0;
        }
    }
}

static void subtract_first(struct memscope_dump_growth *growth) {
    const struct memscope_heap_graph *graph = &growth->first->graph;

    for (uint32_t node = 0; node < graph->slot_count; node++) {
        struct memscope_growth_row *row = &growth->classes[growth->first_names[graph->node_class[node]]];

        row->count--;
        row->bytes -= graph->bytes[node];
        growth->bytes -= graph->bytes[node];
    }
}

enum memscope_status memscope_dump_growth_count(struct memscope_dump_growth *growth,
                                                const struct memscope_shortest_paths *paths) {
    const struct memscope_heap_graph *graph = &growth->last->graph;

    growth->name_count = graph->names.count;
    growth->classes = memscope_array_map(growth->name_count, sizeof *growth->classes);
    growth->sites = memscope_array_map(growth->name_count, sizeof *growth->sites);
    if (growth->classes == NULL || growth->sites == NULL)
        return MEMSCOPE_NO_MEMORY;
    count_last(growth, paths);
    subtract_first(growth);
    growth->count = (int64_t)graph->slot_count - growth->first->graph.slot_count;
    return MEMSCOPE_OK;
}

/* ---- the tops of the growth ------------------------------------------------------------------------------------ */

static bool hangs_from_new(const struct memscope_dump_growth *growth, const struct memscope_shortest_paths *paths,
                           uint32_t node) {
    uint32_t parent = paths->parent[node];

    return parent < growth->last->graph.slot_count && growth->is_new[parent];
}

/* The top that reaches a new node. `tops` holds each node's top, plus 1, and is set for all nodes on the way. */
static uint32_t top_of(const struct memscope_dump_growth *growth, const struct memscope_shortest_paths *paths,
                       uint32_t *tops, uint32_t node) {
    uint32_t top = node;

    while (tops[top] == 0 && hangs_from_new(growth, paths, top))
        top = paths->parent[top];
    top = tops[top] == 0 ? top : tops[top] - 1;
    for (uint32_t at = node; tops[at] == 0; at = paths->parent[at]) {
        tops[at] = top + 1;
        if (at == top)
            break;
    }
    return top;
}

uint32_t memscope_dump_growth_tops(const struct memscope_dump_growth *growth,
                                   const struct memscope_shortest_paths *paths, uint32_t *nodes, uint64_t *weights) {
    const struct memscope_heap_graph *graph = &growth->last->graph;
    uint32_t *tops = memscope_array_map(graph->slot_count, sizeof *tops), count = 0;
    uint64_t *bytes = memscope_array_map(graph->slot_count, sizeof *bytes);

    if (tops != NULL && bytes != NULL) {
        for (uint32_t node = 0; node < graph->slot_count; node++)
            if (growth->is_new[node])
                bytes[top_of(growth, paths, tops, node)] += graph->bytes[node];
        for (uint32_t node = 0; node < graph->slot_count; node++)
            if (growth->is_new[node] && tops[node] == node + 1) {
                nodes[count] = node;
                weights[count++] = bytes[node];
            }
    }
    memscope_arrays_unmap(tops, bytes);
    return count;
}

void memscope_dump_growth_close(struct memscope_dump_growth *growth) {
    memscope_arrays_unmap(growth->is_new, growth->first_names, growth->classes, growth->sites);
    memset(growth, 0, sizeof *growth);
}
