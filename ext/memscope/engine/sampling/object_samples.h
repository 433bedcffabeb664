/*
 * The sampled objects that are still alive, for the profile of Ruby's objects.
 *
 * Fixed room for 65,536 of them. When too little of it is left for another window, each is dropped with probability ½,
 * and the others stand for twice as many. Those that a minor GC cannot free lie apart from the others, so that it looks
 * only at the others. One lasting mapping, inherited by forked children. Functions here neither allocate nor lock: the
 * caller holds the GVL, or runs inside a GC, during which no other thread runs.
 */
#ifndef MEMSCOPE_OBJECT_SAMPLES_H
#define MEMSCOPE_OBJECT_SAMPLES_H

#include "sampling/call_tree.h"
#include "sampling/counted_texts.h"
#include "sampling/sampling_plan.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MEMSCOPE_OBJECT_SAMPLES 65536

/* Objects are known by their addresses. A sample uses the stack and the texts that it names; 0: none. */
struct memscope_object_sample {
    uintptr_t address;
    float weight;     /* allocations that it stands for */
    float stands_for; /* of these, what is due to its window: as memscope_plan_begin_window returned it */
    uint32_t epoch;   /* when it was allocated */
    uint32_t window;  /* in which, counted from 1 */
    uint32_t stack;
    uint16_t pending; /* 1 + the caller's index of what it recorded, until the sample is settled */
    uint16_t class_name, thread, tag, slot_bytes;
};

struct memscope_object_samples {
    struct memscope_object_sample list[MEMSCOPE_OBJECT_SAMPLES];
    uint32_t old; /* the first ones, which only a major GC can free; none is pending */
    uint32_t count;
    uint64_t taken, dropped, thinned;
    struct memscope_call_tree calls;
    struct memscope_counted_texts texts;
};

/* Maps an empty table, once in a process. NULL if the kernel refuses. */
struct memscope_object_samples *memscope_object_samples_map(void);

/* Drops all samples, and gives their memory back to the kernel. */
void memscope_object_samples_clear(struct memscope_object_samples *samples);

/*
 * If there is room for fewer samples than that, thins the table, which doubles the plan's interval. If less than a
 * quarter is taken, halves the interval, down to the first one: samples have their own weights, so they may differ. May
 * take milliseconds, so it is called between windows, not within a hook.
 */
void memscope_object_samples_make_room(struct memscope_object_samples *samples, uint32_t room,
                                       struct memscope_sampling_plan *plan);

/* Adds an unsettled sample. If there is no room, it is dropped and counted. */
void memscope_object_samples_add(struct memscope_object_samples *samples, struct memscope_object_sample sample);

/* Drops the sample at this index; another one takes its place. */
void memscope_object_samples_drop(struct memscope_object_samples *samples, uint32_t index);

enum memscope_object_age { MEMSCOPE_OBJECT_DEAD, MEMSCOPE_OBJECT_YOUNG, MEMSCOPE_OBJECT_OLD };

/* Called when a GC knows which objects survive it: drops the samples of the others. `minor`: it frees no old objects.
 */
void memscope_object_samples_sweep(struct memscope_object_samples *samples, bool minor,
                                   enum memscope_object_age (*age_of)(uintptr_t address));

/* Drops all samples, or all but the old ones: after a GC of which was not known which objects survived it. */
void memscope_object_samples_forget(struct memscope_object_samples *samples, bool minor);

/* Drops the samples of this window. */
void memscope_object_samples_forget_window(struct memscope_object_samples *samples, uint32_t window);

/* Called when objects have moved. */
void memscope_object_samples_move(struct memscope_object_samples *samples, uintptr_t (*moved)(uintptr_t address));

#endif
