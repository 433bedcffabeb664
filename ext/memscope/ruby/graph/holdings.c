#include "ruby/graph/asked_graph.h"

#include <string.h>

/* Returns true if an edge to a class or module leads to the object's own class, which the object does not hold. */
static bool is_own_class(const struct memscope_asked_graph *asked, uint32_t holder, uint32_t edge) {
    const struct memscope_heap_graph *graph = &asked->references.graph;

    if (asked->dump != NULL)
        return MEMSCOPE_EDGE_KIND(graph->edge_names[edge]) == MEMSCOPE_EDGE_CLASS;
    return RBASIC_CLASS(memscope_object_of(&asked->references, holder)) ==
           memscope_object_of(&asked->references, graph->edges[edge]);
}

/* Returns true for a retainer of the class or module, and for a collection that refers to it, but not for its heirs. */
static bool holds_module(const struct memscope_asked_graph *asked, uint32_t holder, uint32_t edge, bool retained) {
    const struct memscope_heap_graph *graph = &asked->references.graph;
    uint8_t type = holder < graph->slot_count ? graph->type[holder] : 0;

    if (holder >= graph->slot_count || is_own_class(asked, holder, edge))
        return false;
    return retained || type == MEMSCOPE_TYPE_ARRAY || type == MEMSCOPE_TYPE_HASH || type == MEMSCOPE_TYPE_STRUCT;
}

/* Inlined, since a compiler may leave out a call of a function that only prefetches. */
static inline __attribute__((always_inline)) void prefetch(const struct memscope_asked_graph *asked, uint32_t node) {
    __builtin_prefetch(&asked->references.graph.node_class[node]);
    __builtin_prefetch(&asked->references.graph.type[node]);
    __builtin_prefetch(&asked->dominators.dominator[node]);
    __builtin_prefetch(&asked->dominators.retained[node]);
}

/* Adds up, by class, the object's retained objects, and those found through it by the search for shortest paths. */
static uint32_t add_up(const struct memscope_asked_graph *asked, uint32_t holder, struct memscope_holding *holdings) {
    const struct memscope_heap_graph *graph = &asked->references.graph;
    uint32_t most = 0;

    for (uint32_t edge = graph->first_edge[holder]; edge < graph->first_edge[holder + 1]; edge++) {
        uint32_t node = graph->edges[edge], class = graph->node_class[node];
        uint32_t dominator = asked->dominators.dominator[node];
        bool retained = dominator == holder, part = retained || !memscope_graph_holds_dominated(graph, dominator);

        if (graph->first_edge[holder + 1] - edge > MEMSCOPE_NODES_AHEAD)
            prefetch(asked, graph->edges[edge + MEMSCOPE_NODES_AHEAD]);
        if ((!retained && asked->paths.parent[node] != holder) ||
            (memscope_graph_is_module(graph, node) && !holds_module(asked, holder, edge, retained)))
            continue;
        holdings[class].bytes += part ? asked->dominators.retained[node] : graph->bytes[node];
        holdings[class].count++;
        if (most == 0 || holdings[class].bytes > holdings[most].bytes)
            most = class;
    }
    return most;
}

static void forget(const struct memscope_heap_graph *graph, uint32_t holder, struct memscope_holding *holdings) {
    if (graph->first_edge[holder + 1] - graph->first_edge[holder] > graph->names.count) {
        memset(holdings, 0, graph->names.count * sizeof *holdings);
        return;
    }
    for (uint32_t edge = graph->first_edge[holder]; edge < graph->first_edge[holder + 1]; edge++)
        holdings[graph->node_class[graph->edges[edge]]] = (struct memscope_holding){0};
}

/* The number of Strings in these Arrays if they are Ruby's table of Symbols, which has the Symbols' texts, else 0. */
static uint64_t symbols_in(const struct memscope_asked_graph *asked, uint32_t holder, uint32_t class) {
    const struct memscope_heap_graph *graph = &asked->references.graph;
    uint32_t known = asked->dump != NULL ? MEMSCOPE_NO_NODE
                                         : memscope_node_of(&asked->references, rb_id2str(rb_intern("initialize")));
    uint32_t above = asked->paths.parent[holder];
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

struct memscope_held_answer memscope_held_by(struct memscope_asked_graph *asked, uint32_t holder,
                                             struct memscope_holding *holdings) {
    struct memscope_heap_graph *graph = &asked->references.graph;
    uint32_t most = add_up(asked, holder, holdings), hidden = memscope_names_find(&graph->names, "T_ARRAY", 7);
    struct memscope_held_answer answer = {.name = most, .count = most == 0 ? MEMSCOPE_UNKNOWN : holdings[most].count};
    uint64_t symbols =
        most != 0 && most == hidden && graph->node_class[holder] == hidden ? symbols_in(asked, holder, hidden) : 0;

    forget(graph, holder, holdings);
    if (symbols > 0) {
        answer.name = memscope_names_add(&graph->names, "Symbol", 6);
        answer.count = symbols;
    }
    return answer;
}
