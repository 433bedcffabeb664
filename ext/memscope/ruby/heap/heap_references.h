/*
 * The heap graph of this process: a node for each slot of a listing, an edge for each reference that the mark phase
 * would follow.
 */
#pragma once

#include <ruby.h>

#include "graph/heap_graph.h"
#include "ruby/class_names.h"
#include "ruby/heap/page_index.h"
#include "ruby/heap/ruby_heap.h"
#include "ruby/held_memory.h"

struct memscope_heap_references {
    struct memscope_heap_graph graph;
    struct memscope_class_names class_names; /* over graph.names */
    struct memscope_page_index pages;
    struct memscope_held_memory held;
};

/*
 * Fills the graph. Runs the mark and size functions of C extensions, as a garbage collection and
 * ObjectSpace.memsize_of_all do. Creates no object. Takes 150 to 300 ns and 40 to 60 bytes of mapped memory per object.
 * Caller holds the GVL, or is the only thread of a forked child. No collection is under way, and no other Ractor is
 * alive. Returns NO_MEMORY, TRUNCATED beyond 2^32 slots or references, or UNSUPPORTED if Ruby does not export
 * references. Always close it.
 *
 * A weak reference is not an edge. From Ruby 4.0 on, an object also has the references of its imemo_fields as its own.
 */
enum memscope_status memscope_heap_references_fill(struct memscope_heap_references *references,
                                                   const struct memscope_heap_listing *listing,
                                                   struct memscope_scratch *scratch);
void memscope_heap_references_close(struct memscope_heap_references *references);

/* The node of an object: the number of its slot. MEMSCOPE_NO_NODE if the object is not in a listed slot. */
static inline uint32_t memscope_node_of(const struct memscope_heap_references *references, VALUE object) {
    return memscope_slot_of(&references->pages, object);
}

/* The slot of a node below graph.slot_count. */
static inline VALUE memscope_object_of(const struct memscope_heap_references *references, uint32_t node) {
    return memscope_object_in_slot(&references->pages, node);
}
