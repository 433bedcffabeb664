/*
 * The samples of objects that are still alive, for the profile of Ruby's objects.
 *
 * There is room for 65,536 samples. When too little room is left for another window, each sample is dropped with
 * probability ½, and the weights of the others are doubled. Samples of old objects, which a minor GC cannot free, come
 * first in the list, so that a minor GC visits only the others. A dropped sample keeps its stack and texts until it is
 * released: releasing takes longer than dropping, and one GC may drop many samples. The table is one lasting mapping,
 * which forked children inherit. Functions here neither allocate nor lock: the caller holds the GVL, or runs inside a
 * GC, during which no other thread runs.
 */
#pragma once

#include "sampling/call_tree.h"
#include "sampling/counted_texts.h"
#include "sampling/sampling_plan.h"

#define MEMSCOPE_OBJECT_SAMPLES 65536

/* A sample identifies its object by its address, and is a user of its stack and texts, each 0 if none. */
struct memscope_object_sample {
    uintptr_t address;
    float weight;     /* allocations that it represents */
    float stands_for; /* its window's factor in weight, from memscope_plan_begin_window */
    uint32_t epoch;   /* of the allocation */
    uint32_t window;  /* of the allocation, counted from 1 */
    uint32_t stack;
    uint16_t pending; /* 1 + the index of the caller's record, 0 once the sample is settled */
    uint16_t class_name, thread, tag, slot_bytes;
};

struct memscope_object_samples {
    struct memscope_object_sample list[MEMSCOPE_OBJECT_SAMPLES];
    uint32_t old; /* first samples of the list, whose objects only a major GC can free, none of them pending */
    uint32_t count;
    uint32_t unreleased; /* dropped samples, behind the kept ones, which still use their stacks and texts */
    uint64_t taken, dropped, thinned;
    struct memscope_call_tree calls;
    struct memscope_counted_texts texts;
};

/* Maps an empty table, once in a process. Returns NULL if the kernel refuses. */
struct memscope_object_samples *memscope_object_samples_map(void);

/* Drops all samples, and gives their memory back to the kernel. */
void memscope_object_samples_clear(struct memscope_object_samples *samples);

/*
 * If fewer than `room` more samples fit, thins the table: drops half of the samples at random, and doubles the plan's
 * interval. If less than a quarter of the table is in use, halves the interval, but not below MEMSCOPE_FIRST_INTERVAL.
 * Each sample has its own weight, so the interval may change between samples. Releases dropped samples. May take
 * milliseconds, so it is called between windows, not within a hook.
 */
void memscope_object_samples_make_room(struct memscope_object_samples *samples, uint32_t room,
                                       struct memscope_sampling_plan *plan);

/* Adds an unsettled sample. If there is no room, it is dropped and counted. */
void memscope_object_samples_add(struct memscope_object_samples *samples, struct memscope_object_sample sample);

#define MEMSCOPE_RELEASED_AT_ONCE 8192

/*
 * Releases up to MEMSCOPE_RELEASED_AT_ONCE dropped samples, which takes about a millisecond. Releases more while the
 * tables of stacks and texts are so full that new ones may find no room.
 */
void memscope_object_samples_release(struct memscope_object_samples *samples);

enum memscope_object_age { MEMSCOPE_OBJECT_DEAD, MEMSCOPE_OBJECT_YOUNG, MEMSCOPE_OBJECT_OLD };

/*
 * Drops the samples whose objects do not survive a GC. Call at the end of a mark phase, when the survivors are known.
 * With `minor`, skips the old objects, since a minor GC frees none of them.
 */
void memscope_object_samples_sweep(struct memscope_object_samples *samples, bool minor,
                                   enum memscope_object_age (*age_of)(uintptr_t address));

/* Drops all samples, or all but the old ones if the GC was minor. Call after a GC whose survivors are unknown. */
void memscope_object_samples_forget(struct memscope_object_samples *samples, bool minor);

void memscope_object_samples_forget_window(struct memscope_object_samples *samples, uint32_t window);

/* Call when objects have moved. */
void memscope_object_samples_move(struct memscope_object_samples *samples, uintptr_t (*moved)(uintptr_t address));
