/*
 * Reads from the bitmaps of an object's heap page if a mark phase has found the object alive, and if a minor GC can
 * free it. Asking Ruby (ruby_private.h) about tens of thousands of objects takes two to five times as long: for both
 * answers, Ruby reads the object itself, which is in no CPU cache.
 *
 * Ruby documents neither the place nor the meaning of these bitmaps, so they are compared with Ruby's own answers
 * before they are used, and never used again after a single difference:
 *
 * - Ruby's version, its garbage collector, and all sizes in GC::INTERNAL_CONSTANTS must be known.
 * - memscope_mark_bits_begin makes 1,024 objects, and keeps a random half of them. At the end of each mark phase, the
 *   bitmaps must agree with Ruby about every one of them, until hundreds of answers of each kind have agreed: dead,
 *   young, old. A bitmap at another place does not repeat the random pattern.
 * - From then on, every 251st answer is compared too.
 */
#ifndef MEMSCOPE_MARK_BITS_H
#define MEMSCOPE_MARK_BITS_H

#include "sampling/object_samples.h"

#include <stdbool.h>
#include <stdint.h>

/*
 * Begins to compare, unless the bitmaps are proven or refused already. From here on, each end of a mark phase must be
 * followed by memscope_mark_bits_compare, or else by memscope_mark_bits_unseen. Call it with the GVL, outside of a GC.
 * Allocates objects, so a GC may run.
 */
void memscope_mark_bits_begin(void);

/* Call it at the end of a mark phase, inside a GC. Allocates nothing. Returns true if the bitmaps are proven. */
bool memscope_mark_bits_compare(void);

/* Returns true if the bitmaps are proven, and no comparison has failed since. Any context. */
bool memscope_mark_bits_proven(void);

/*
 * The age of an object by the bitmaps. Call it once they are proven, at the end of a mark phase, inside a GC. Allocates
 * nothing. Once an answer has turned out to be wrong, the function reads Ruby's flags instead, and
 * memscope_mark_bits_proven is false: every answer since the proof may have been wrong. An object is old if no minor GC
 * frees it.
 */
enum memscope_object_age memscope_mark_bits_age(uintptr_t object);

/* Prefetches an object's bits. */
void memscope_mark_bits_fetch(uintptr_t object);

/* Call it if a mark phase may have ended without a call of memscope_mark_bits_compare. Works inside a GC too. */
void memscope_mark_bits_unseen(void);

/* Call it when no more calls of memscope_mark_bits_compare follow. With the GVL. */
void memscope_mark_bits_end(void);

#endif
