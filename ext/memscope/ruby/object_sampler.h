/*
 * Samples allocations of Ruby objects, and knows which of the sampled objects are still alive.
 *
 * Windows of allocations are watched by an event hook, whose body is a countdown; when they are, engine/sampling/
 * sampling_plan.h says. A window begins in a postponed job, which an event of the GC requests: while a program
 * allocates, Ruby sweeps its heap in steps of some thousand slots. If the program runs its GCs itself, such events are
 * far apart: the window then skips as many allocations as may lie between two of them. So nothing runs while a program
 * allocates nothing, and there is no thread and no timer.
 *
 * Of a sampled object, only its address is kept. The mark bits at the end of each mark phase tell whether it is alive,
 * and compaction tells its new address. Frames are pinned from the sample to the next postponed job; there they become
 * text. Classes become text there too. So nothing stays alive, or where it is, for longer than a window.
 *
 * Everything here needs the GVL, in the main Ractor.
 */
#ifndef MEMSCOPE_OBJECT_SAMPLER_H
#define MEMSCOPE_OBJECT_SAMPLER_H

#include "sampling/object_samples.h"

#include <ruby.h>

/* Why sampling cannot start. */
enum memscope_object_sampler_obstacle {
    MEMSCOPE_OBJECTS_READY,
    MEMSCOPE_OBJECTS_RUNNING,
    MEMSCOPE_OBJECTS_NO_MEMORY,
    MEMSCOPE_OBJECTS_NO_MARKS, /* this Ruby does not tell which objects are marked */
    MEMSCOPE_OBJECTS_NO_JOBS,  /* all of Ruby's postponed jobs are taken */
};

/* Begins with an empty table. `budget`: share of the process's CPU time. Allocates objects, to measure the hook. */
enum memscope_object_sampler_obstacle memscope_object_sampler_start(double budget);

/* Removes the hooks. Settled samples can be read until an object is allocated: then it is unknown who is alive. */
void memscope_object_sampler_stop(void);

bool memscope_object_sampler_runs(void);

/* Begins another generation; returns its number. */
uint32_t memscope_object_sampler_next_generation(void);

/* Turns what was recorded since the last postponed job into text. To be called before the samples are read. */
void memscope_object_sampler_settle(void);

struct memscope_object_samples *memscope_object_sampler_samples(void);

/* The generation that an epoch of a sample belongs to: the number of its first epoch. */
uint32_t memscope_object_generation_of(uint32_t epoch);

/* A sampled object as it was when the profile was read: its address may be another object's by now. */
struct memscope_sampled_object {
    uint64_t address;
    uint32_t window, epoch;
};

/*
 * Writes those that are still there, in place, as VALUEs; returns how many. The GC must be disabled. Outside hooks;
 * allocates no objects, but may call malloc.
 */
size_t memscope_object_sampler_alive(struct memscope_sampled_object *objects, size_t count);

struct memscope_object_sampler_state {
    struct memscope_sampling_plan plan; /* as of now, and `last` with it: memscope_plan_at */
    double last;
    uint64_t allocations, watched;    /* allocations since the start; of a forked child, its own */
    uint64_t spent_ns, gc_ns, cpu_ns; /* gc_ns: the part of spent_ns at the end of mark phases */
    uint64_t rearmed, missed;         /* hooks that Ruby had switched off; GCs that no hook has seen */
    bool shared;                      /* another Ractor was alive: what was allocated since is not in the plan */
    uint32_t generation, unjudged_generation;
    size_t bytes;
};

struct memscope_object_sampler_state memscope_object_sampler_state(void);

#endif
