#include "ruby/graph/made_at.h"

#include "ruby/ruby_private.h"

#include <ruby/debug.h>
#include <stdio.h>
#include <string.h>

#define MAX_PLACE 1024

struct makers {
    struct memscope_heap_references *references;
    const struct memscope_thread_list *threads;
    uint32_t proc, fiber; /* names of classes, 0 if there are no such objects */
};

static void append(struct makers *makers, uint32_t node, const char *place, size_t bytes) {
    struct memscope_heap_graph *graph = &makers->references->graph;
    char text[MAX_PLACE];
    struct memscope_text class = memscope_names_get(&graph->names, graph->node_class[node]);
    size_t length = class.length;
    uint32_t name;

    if (bytes == 0 || length + 1 + bytes > sizeof text)
        return;
    memcpy(text, class.start, length);
    text[length] = '\0';
    memcpy(text + length + 1, place, bytes);
    name = memscope_names_add(&graph->names, text, length + 1 + bytes);
    graph->node_class[node] = name != 0 ? name : graph->node_class[node];
}

/* The block of a Proc, 0 if it has none, as for Method#to_proc. */
static VALUE block_of(const struct makers *makers, uint32_t proc) {
    const struct memscope_heap_graph *graph = &makers->references->graph;

    for (uint32_t edge = graph->first_edge[proc]; edge < graph->first_edge[proc + 1]; edge++) {
        VALUE object = memscope_object_of(makers->references, graph->edges[edge]);

        if (MEMSCOPE_IS_CODE(object))
            return object;
    }
    return 0;
}

static void append_block(struct makers *makers, uint32_t node, uint32_t proc) {
    VALUE block = block_of(makers, proc), path, line;
    char place[MAX_PLACE];
    int length;

    if (block == 0)
        return;
    path = rb_profile_frame_path(block);
    line = rb_profile_frame_first_lineno(block);
    if (!RB_TYPE_P(path, T_STRING) || !RB_FIXNUM_P(line) || RSTRING_LEN(path) > MAX_PLACE - 32)
        return;
    length = snprintf(place, sizeof place, "%.*s:%ld", (int)RSTRING_LEN(path), RSTRING_PTR(path), FIX2LONG(line));
    append(makers, node, place, (size_t)length);
}

/*
 * A fiber marks the Proc of its block first (cont.c, fiber_mark), after its class. Returns MEMSCOPE_NO_NODE if that is
 * not a Proc.
 */
static uint32_t proc_of_fiber(const struct makers *makers, uint32_t fiber) {
    const struct memscope_heap_graph *graph = &makers->references->graph;
    uint32_t edge = graph->first_edge[fiber], end = graph->first_edge[fiber + 1];

    while (edge < end && memscope_graph_is_module(graph, graph->edges[edge]))
        edge++;
    if (edge == end || RBASIC_CLASS(memscope_object_of(makers->references, graph->edges[edge])) != rb_cProc)
        return MEMSCOPE_NO_NODE;
    return graph->edges[edge];
}

static void name_fibers(struct makers *makers) {
    const struct memscope_heap_graph *graph = &makers->references->graph;

    for (uint32_t node = 0; makers->fiber != 0 && node < graph->slot_count; node++) {
        uint32_t proc = graph->node_class[node] == makers->fiber && graph->type[node] == RUBY_T_DATA
                            ? proc_of_fiber(makers, node)
                            : MEMSCOPE_NO_NODE;

        if (proc != MEMSCOPE_NO_NODE)
            append_block(makers, node, proc);
    }
}

static bool is_fiber(const struct makers *makers, uint32_t node) {
    const struct memscope_heap_graph *graph = &makers->references->graph;
    struct memscope_text name = memscope_names_get(&graph->names, graph->node_class[node]);

    name.length = strnlen(name.start, name.length); /* a place may follow a NUL */
    return graph->type[node] == RUBY_T_DATA && memscope_text_is(name, "Fiber");
}

/* A thread refers to the fiber in which it began. That fiber has no block, so it first marks objects on its stack. */
static void name_thread(struct makers *makers, const struct memscope_listed_thread *listed) {
    struct memscope_heap_graph *graph = &makers->references->graph;
    uint32_t node = memscope_node_of(makers->references, listed->thread);

    if (node == MEMSCOPE_NO_NODE)
        return;
    for (uint32_t edge = graph->first_edge[node]; edge < graph->first_edge[node + 1]; edge++)
        if (is_fiber(makers, graph->edges[edge]))
            graph->node_class[graph->edges[edge]] = makers->fiber;
    append(makers, node, RSTRING_PTR(makers->threads->texts) + listed->place, listed->place_bytes);
}

void memscope_name_by_line(struct memscope_heap_references *references, const struct memscope_thread_list *threads) {
    const struct memscope_heap_graph *graph = &references->graph;
    struct makers makers = {.references = references, .threads = threads};

    makers.fiber = memscope_names_find(&graph->names, "Fiber", 5);
    makers.proc = memscope_names_find(&graph->names, "Proc", 4);
    name_fibers(&makers);
    for (uint32_t node = 0; makers.proc != 0 && node < graph->slot_count; node++)
        if (graph->node_class[node] == makers.proc && graph->type[node] == RUBY_T_DATA)
            append_block(&makers, node, node);
    for (size_t index = 0; index < threads->thread_count; index++)
        name_thread(&makers,
                    (const struct memscope_listed_thread *)(const void *)RSTRING_PTR(threads->threads) + index);
}
