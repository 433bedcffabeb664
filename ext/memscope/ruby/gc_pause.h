/* How long a full garbage collection will stop Ruby. */
#ifndef MEMSCOPE_GC_PAUSE_H
#define MEMSCOPE_GC_PAUSE_H

#include <stdint.h>

/*
 * Predicts the duration of GC.start from the number of objects and the speed of this processor, which a known piece of
 * work of some 50 µs tells: 400 ns an object on an x86-64 of 3 GHz. Caller holds the GVL.
 *
 * There, GC.start took 560 ns an object in a Rails worker with 1.1 million objects, and 440 to 870 ns for as many
 * objects that refer to others all over the heap; 55 to 300 ns in smaller heaps, and where objects refer to those
 * allocated just before (benchmark/purge.rb).
 */
uint64_t memscope_gc_predicted_ns(void);

#endif
