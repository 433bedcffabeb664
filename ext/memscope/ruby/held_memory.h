/*
 * What live objects say they hold through malloc, beyond their slots.
 *
 * Each type of a C extension has a size function of its own, which may take long: google-protobuf's visits all messages
 * that were ever joined with the one asked. Types with a slow one are left out.
 */
#ifndef MEMSCOPE_HELD_MEMORY_H
#define MEMSCOPE_HELD_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MEMSCOPE_LEFT_OUT_NAMES 8

struct memscope_left_out {
    const char *name; /* wrap_struct_name of the type, NULL where it has none */
    uint64_t objects;
};

struct memscope_held_memory {
    bool known;
    uint64_t bytes; /* at least, where objects were left out */
    uint64_t left_out_objects;
    struct memscope_left_out left_out[MEMSCOPE_LEFT_OUT_NAMES]; /* the first types of them */
    size_t left_out_count;
};

/* Learns this Ruby's types of fibers and threads, when the extension is loaded. */
void memscope_held_memory_learn(void);

/*
 * Asks every object for its memsize: about 11 ms for a million objects, GVL held; finishes a sweep that is under way
 * first, so that no garbage is asked. Runs the dsize functions of C extensions, as ObjectSpace.memsize_of_all does, for
 * 8 ms at most where they are slow, and the calls under way. Not known beside other Ractors.
 */
void memscope_heap_held_memory(struct memscope_held_memory *held);

#endif
