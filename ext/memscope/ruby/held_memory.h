/*
 * The malloc memory that live objects report, beyond their slots.
 *
 * Each type of a C extension has its own dsize function, which may be slow: google-protobuf's visits all arenas that
 * were ever fused with the object's own. A type whose function takes too much time is left out of the rest of this
 * walk.
 */
#pragma once

#include <ruby.h>

#include "ruby/ruby_private.h"

#define MEMSCOPE_LEFT_OUT_NAMES 8
/* An application has about a hundred types. The number is a power of two, so that a remainder is a mask. */
#define MEMSCOPE_ASKED_TYPES 256

struct memscope_left_out {
    char name[96]; /* wrap_struct_name of the type, truncated, "" if it has none */
    uint64_t objects;
};

struct memscope_held_memory {
    bool known;
    uint64_t bytes; /* a lower bound if objects were left out */
    uint64_t left_out_objects;
    uint64_t unasked_stacks; /* fibers and threads: the sizes that they report include whole stacks */
    uint64_t outside_bytes;  /* sizes of IO::Buffers that are not malloc memory, not part of bytes */
    struct memscope_left_out left_out[MEMSCOPE_LEFT_OUT_NAMES]; /* the first types left out */
    size_t left_out_count;
};

/* Called when the extension is loaded: learns the data types of fibers and threads in this Ruby. */
void memscope_held_memory_learn(void);

/*
 * The malloc block with the bytes of an IO::Buffer. NULL for a buffer that maps its bytes, or uses those of a String or
 * of another buffer, and for other objects. *bytes is the size of any buffer, and 0 for other objects.
 */
const void *memscope_block_of_buffer(VALUE object, size_t *bytes);

/* For a typed T_DATA. memscope_held_memory_learn must have been called. */
bool memscope_is_thread_or_fiber(VALUE object);

struct memscope_asked_type {
    const rb_data_type_t *type;
    uint64_t left_out;
    uint64_t spent_ns; /* in slow calls */
    uint32_t calls, slow_calls, watched_calls;
};

/* The state of a walk. */
struct memscope_held_walk {
    struct memscope_held_memory *held;
    /* A hash table, then one entry that all further types share when the table is full. */
    struct memscope_asked_type types[MEMSCOPE_ASKED_TYPES + 1];
    uint64_t spent_ns;
    uint64_t clock_ns;                  /* cost of reading the thread's CPU clock, 0.1 to 2 µs */
    uint64_t type_budget_ns, budget_ns; /* for the slow calls of a type, and of all types */
};

/*
 * Open a walk, visit every object with the bytes of its slot, and close the walk. Takes about 11 ms per million
 * objects. A type with four slow calls is left out once its slow calls have taken 2 ms of CPU time, or those of all
 * types 8 ms. In a forked child, which stops no thread, these limits are 100 ms and 400 ms. Runs the dsize functions of
 * C extensions, as ObjectSpace.memsize_of_all does, so no other Ractor may be alive. Do not visit T_DATA that a sweep
 * in progress may free, or a class that Ruby is still making, as in a hook. Caller holds the GVL, or is the only thread
 * of a forked child.
 */
void memscope_heap_held_open(struct memscope_held_walk *walk, struct memscope_held_memory *held);
void memscope_heap_held_visit(struct memscope_held_walk *walk, VALUE object, size_t slot_bytes);

/*
 * As memscope_held_bytes_of, for an object that, by its flags, may hold more than its slot. Includes the memory of an
 * IO::Buffer that is not malloc's, which the visit leaves out of its sum.
 */
size_t memscope_held_bytes_asked(struct memscope_held_walk *walk, VALUE object, size_t slot_bytes);

/* The bytes that the object reports beyond its slot, 0 if it is left out. */
static inline size_t memscope_held_bytes_of(struct memscope_held_walk *walk, VALUE object, size_t slot_bytes) {
    return memscope_holds_only_its_slot(object) ? 0 : memscope_held_bytes_asked(walk, object, slot_bytes);
}

void memscope_heap_held_close(struct memscope_held_walk *walk);
