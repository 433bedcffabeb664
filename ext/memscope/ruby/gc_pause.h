/* The predicted pause of a full garbage collection. */
#pragma once

#include <stdint.h>

/*
 * Predicts the duration of GC.start from the number of objects and the speed of this processor, measured by a known
 * piece of work of some 50 µs. The prediction is 400 ns per object on an x86-64 of 3 GHz. Caller holds the GVL.
 *
 * On that processor, GC.start took 560 ns per object in a Rails worker with 1.1 million objects. benchmark/purge.rb
 * measured, on Ruby 3.1 and 4.0, 110 to 275 ns of CPU time (440 to 870 on a busy machine) where objects refer to others
 * all over the heap, and 40 to 105 ns where they refer to those allocated just before. A prediction that is too short
 * does more harm than one that is too long.
 */
uint64_t memscope_gc_predicted_ns(void);
