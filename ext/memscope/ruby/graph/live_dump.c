#include "ruby/graph/live_dump.h"

#include "base/mapped_array.h"
#include "fork/forked_child.h"
#include "ruby/graph/named_references.h"
#include "ruby/heap/heap_references.h"

#include <unistd.h>

/* ---- names of edges -------------------------------------------------------------------------------------------- */

struct source {
    struct memscope_heap_references references;
    struct memscope_heap_dump dump;
    uint32_t *places; /* by target node, the last of its edges from nodes named so far */
    uint32_t first;   /* the first edge of the node whose edges are being named */
    uint32_t *ids;
    struct memscope_module_name *modules;
};

/* Keeps an edge's first name. Ignores references that the mark phase does not follow, such as weak ones. */
static void take_name(VALUE to, memscope_edge_name name, void *data) {
    struct source *source = data;
    struct memscope_heap_graph *graph = &source->references.graph;
    uint32_t node = memscope_node_of(&source->references, to),
             edge = node == MEMSCOPE_NO_NODE ? 0 : source->places[node];

    if (node == MEMSCOPE_NO_NODE || edge < source->first || graph->edges[edge] != node)
        return;
    if (graph->edge_names[edge] == MEMSCOPE_EDGE_INTERNAL)
        graph->edge_names[edge] = name;
}

static bool name_edges(struct source *source) {
    struct memscope_heap_graph *graph = &source->references.graph;

    source->places = memscope_array_map(graph->slot_count, sizeof *source->places);
    graph->edge_names = memscope_array_map(graph->edge_count, sizeof *graph->edge_names);
    if (source->places == NULL || graph->edge_names == NULL)
        return false;
    for (uint32_t node = 0; node < graph->slot_count; node++) {
        source->first = graph->first_edge[node];
        for (uint32_t edge = source->first; edge < graph->first_edge[node + 1]; edge++)
            source->places[graph->edges[edge]] = edge;
        if (graph->type[node] != 0)
            memscope_each_named_reference(memscope_object_of(&source->references, node), take_name,
                                          &source->references.class_names, source);
    }
    return true;
}

/* ---- modules and ids ------------------------------------------------------------------------------------------- */

static struct memscope_module_name describe_module(struct source *source, uint32_t node) {
    VALUE module = memscope_object_of(&source->references, node);
    bool singleton = memscope_is_singleton_class(module);

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

    for (uint32_t node = 0; node < graph->slot_count; node++) {
        if (graph->type[node] != MEMSCOPE_TYPE_CLASS && graph->type[node] != MEMSCOPE_TYPE_MODULE)
            continue;
        if (!MEMSCOPE_ARRAY_RESERVE(source->modules, source->dump.module_count + 1))
            return false;
        source->modules[source->dump.module_count++] = describe_module(source, node);
    }
    source->dump.modules = source->modules;
    return true;
}

/* Returns false if there is no memory. If any slot is too far from BasicObject for an id, the dump has no ids. */
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

/* ---- the file -------------------------------------------------------------------------------------------------- */

static void write_file(const struct memscope_live_dump *asked, const struct source *source,
                       struct memscope_dump_result *result) {
    struct memscope_dump_output output;

    if (memscope_dump_output_open(&output, asked->file)) {
        memscope_heap_dump_write(&source->dump, asked->format, &output);
        memscope_dump_output_flush(&output);
    }
    result->error = output.error;
    result->bytes = output.written;
    memscope_dump_output_close(&output);
}

void memscope_live_dump_write(const struct memscope_live_dump *asked, const struct memscope_heap_listing *listing,
                              struct memscope_scratch *scratch, struct memscope_dump_result *result) {
    struct source source = {.dump = {.sizes = asked->sizes, .pid = (uint32_t)getppid(), .time_ns = asked->time_ns}};
    const struct memscope_heap_graph *graph = source.dump.graph = &source.references.graph;

    result->status = memscope_heap_references_fill(&source.references, listing, scratch);
    if (result->status == MEMSCOPE_OK && !(name_edges(&source) && describe_modules(&source) && number_slots(&source)))
        result->status = MEMSCOPE_NO_MEMORY;
    if (result->status == MEMSCOPE_OK) {
        result->objects = graph->object_count;
        result->references = graph->first_edge[graph->slot_count];
        result->lacks_ids = source.dump.ids == NULL;
        write_file(asked, &source, result);
    }
    result->child_bytes = memscope_forked_child_grown_bytes();
}
