/*
 * What live objects say they hold through malloc, beyond their slots.
 *
 * Each type of a C extension has its own dsize function, which may take long: google-protobuf's visits all messages
 * that were ever joined with the one whose size is asked for. Types whose function is slow are left out.
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
    uint64_t bytes; /* a lower bound if objects were left out */
    uint64_t left_out_objects;
    struct memscope_left_out left_out[MEMSCOPE_LEFT_OUT_NAMES]; /* the first types left out */
    size_t left_out_count;
};

/* Called when the extension is loaded: learns the data types of fibers and threads in this Ruby. */
void memscope_held_memory_learn(void);

/*
 * Asks every object for its memsize: about 11 ms per million objects. Caller holds the GVL. First finishes a sweep in
 * progress, so that no garbage is asked. Runs the dsize functions of C extensions, as ObjectSpace.memsize_of_all does;
 * once slow calls have taken 2 ms in one type or 8 ms in all, it leaves out types with four of them. known is false
 * while other Ractors are alive.
 */
void memscope_heap_held_memory(struct memscope_held_memory *held);

#endif
