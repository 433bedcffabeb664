#include "ruby/graph/dump_child.h"

#include "base/mapped_array.h"
#include "ruby/graph/named_references.h"
#include "ruby/heap/heap_references.h"
#include "ruby/ruby_private.h"

#include <string.h>
#include <unistd.h>

/* As measured on heaps of one to six million objects, with three references each. */
#define BYTES_OF_A_SLOT 90
#define NS_PER_SLOT 1000

uint64_t memscope_dump_child_bytes(uint64_t slots) {
    return slots * BYTES_OF_A_SLOT;
}

uint64_t memscope_dump_child_ns(uint64_t slots) {
    return slots * NS_PER_SLOT;
}

/* ---- names of edges -------------------------------------------------------------------------------------------- */

struct source {
    struct memscope_heap_references references;
    struct memscope_heap_dump dump;
    uint32_t *places; /* by target node: 1 + the index of an edge to it, among the edges being named; may be stale */
    uint32_t *ids;
    struct memscope_module_name *modules;

    /* The node whose edges are being named: */
    const uint32_t *edges;
    uint32_t edge_count;
    memscope_edge_name *names;
};

/* Keeps an edge's first name. Ignores references that the mark phase does not follow, such as weak ones. */
static void take_name(VALUE to, memscope_edge_name name, void *data) {
    struct source *source = data;
    uint32_t node = memscope_node_of(&source->references, to), place;

    if (node == MEMSCOPE_NO_NODE)
        return;
    place = source->places[node];
    if (place == 0 || place > source->edge_count || source->edges[place - 1] != node)
        return;
    if (source->names[place - 1] == MEMSCOPE_EDGE_INTERNAL)
        source->names[place - 1] = name;
}

static void name_edges(void *context, uint32_t node, memscope_edge_name *names) {
    struct source *source = context;
    const struct memscope_heap_graph *graph = &source->references.graph;

    source->edges = graph->edges + graph->first_edge[node];
    source->edge_count = graph->first_edge[node + 1] - graph->first_edge[node];
    source->names = names;
    for (uint32_t edge = 0; edge < source->edge_count; edge++) {
        source->places[source->edges[edge]] = edge + 1;
        names[edge] = MEMSCOPE_EDGE_INTERNAL;
    }
    memscope_each_named_reference(memscope_object_of(&source->references, node), take_name,
                                  &source->references.class_names, source);
}

/* ---- what a dump has besides its graph ------------------------------------------------------------------------- */

static bool is_module(const struct memscope_heap_graph *graph, uint32_t node) {
    return graph->type[node] == MEMSCOPE_TYPE_CLASS || graph->type[node] == MEMSCOPE_TYPE_MODULE;
}

static struct memscope_module_name describe_module(struct source *source, uint32_t node) {
    VALUE module = memscope_object_of(&source->references, node);
    bool singleton = RB_BUILTIN_TYPE(module) == RUBY_T_CLASS && RB_FL_TEST_RAW(module, RUBY_FL_SINGLETON);

    if (singleton)
        module = rb_class_real(module);
    return (struct memscope_module_name){
        .node = node,
        .name = module == 0 ? 0 : memscope_name_of_module(&source->references.class_names, module),
        .singleton = singleton,
        .named = !singleton && module != 0 && memscope_is_named_module(module)};
}

static bool describe_modules(struct source *source) {
    const struct memscope_heap_graph *graph = &source->references.graph;
    uint32_t count = 0;

    for (uint32_t node = 0; node < graph->slot_count; node++)
        count += is_module(graph, node);
    source->modules = memscope_array_map(count, sizeof *source->modules);
    if (source->modules == NULL)
        return false;
    source->dump.modules = source->modules;
    for (uint32_t node = 0; node < graph->slot_count; node++)
        if (is_module(graph, node))
            source->modules[source->dump.module_count++] = describe_module(source, node);
    return true;
}

/* False if there is no memory. If any slot is too far from BasicObject for an id, the dump has no ids. */
static bool number_slots(struct source *source) {
    const struct memscope_heap_listing *listing = source->references.pages.listing;
    uint32_t node = 0;

    source->ids = memscope_array_map(source->references.graph.slot_count, sizeof *source->ids);
    if (source->ids == NULL)
        return false;
    for (size_t page = 0; page < listing->count; page++) {
        uintptr_t slot = listing->pages[page].start + listing->pages[page].slots_offset;

        for (uint32_t left = listing->pages[page].slot_count; left > 0; left--, slot += listing->pages[page].slot_bytes)
            if ((source->ids[node++] = memscope_heap_dump_id((int64_t)(slot - rb_cBasicObject))) == 0)
                return true;
    }
    source->dump.ids = source->ids;
    return true;
}

static enum memscope_status prepare(struct source *source, const struct memscope_dump_child *child) {
    source->places = memscope_array_map(source->references.graph.slot_count, sizeof *source->places);
    source->dump.graph = &source->references.graph;
    source->dump.name_edges = name_edges;
    source->dump.context = source;
    source->dump.sizes = child->sizes;
    source->dump.pid = (uint32_t)getppid();
    source->dump.time_ns = child->time_ns;
    return source->places != NULL && describe_modules(source) && number_slots(source) ? MEMSCOPE_OK
                                                                                      : MEMSCOPE_NO_MEMORY;
}

static uint32_t count_references(const struct memscope_heap_graph *graph) {
    return graph->first_edge[graph->slot_count];
}

/* ---- in the child ---------------------------------------------------------------------------------------------- */

static void write_file(struct memscope_dump_child *child, struct source *source) {
    struct memscope_dump_output output;

    if (memscope_dump_output_open(&output, child->file)) {
        memscope_heap_dump_write(&source->dump, child->format, &output);
        memscope_dump_output_flush(&output);
    }
    child->result.error = output.error;
    child->result.bytes = output.written;
    memscope_dump_output_close(&output);
}

/* The child exits soon, so its mapped memory need not be unmapped. */
static bool dump_and_answer(void *argument, int answer) {
    struct memscope_dump_child *child = argument;
    struct memscope_scratch scratch;
    struct source source = {.dump = {.graph = NULL}};

    if (memscope_scratch_open(&scratch) != MEMSCOPE_OK)
        return false;
    child->result.status = memscope_heap_references_fill(&source.references, child->listing, &scratch);
    if (child->result.status == MEMSCOPE_OK)
        child->result.status = prepare(&source, child);
    if (child->result.status == MEMSCOPE_OK) {
        child->result.objects = source.references.graph.object_count;
        child->result.references = count_references(&source.references.graph);
        child->result.lacks_ids = source.dump.ids == NULL;
        write_file(child, &source);
    }
    child->result.child_bytes = memscope_forked_child_grown_bytes();
    return memscope_forked_child_answer(answer, &child->result, sizeof child->result);
}

/* ---- in the parent --------------------------------------------------------------------------------------------- */

enum memscope_status memscope_dump_child_start(struct memscope_dump_child *child) {
    enum memscope_status status;

    memscope_scratch_inherit(&child->listing->scratch, true);
    status = memscope_forked_child_start(&child->child, dump_and_answer, child, child->file, child->deadline_ms);
    memscope_scratch_inherit(&child->listing->scratch, false);
    return status;
}

void memscope_dump_child_end(struct memscope_dump_child *child) {
    memscope_forked_child_end(&child->child);
}
