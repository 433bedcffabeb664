/*
 * Samples allocations of Ruby objects, and tracks which of the sampled objects are still alive.
 *
 * During a window, an event hook (NEWOBJ) watches all allocations. Its fast path only counts down. The plan
 * (sampling/sampling_plan.h) decides when a window is due. A GC event requests a postponed job, which begins the
 * window: while a program allocates, Ruby sweeps its heap in steps of some thousand slots, and each step is such an
 * event. If the program runs its GCs itself, the events are far apart, so the window first skips a random number of
 * allocations, up to the number between two events. There is neither a thread nor a timer, so nothing runs while a
 * program allocates nothing.
 *
 * A sample keeps its object's address, which does not keep the object alive. The object's mark bit is read at the end
 * of each mark phase, and its new address after a compaction. Frames are pinned from the sample to the next postponed
 * job, which turns them, and the objects' classes, into text. So the profile keeps nothing alive or pinned for longer
 * than a window.
 *
 * Before another Ractor is created, the profile must be stopped: its objects would not be sampled, and hooks beside
 * Ractors are dangerous (ruby/sample/event_hooks.h).
 *
 * Everything here needs the GVL, in the main Ractor.
 */
#pragma once

#include "sampling/generations.h"
#include "sampling/object_samples.h"
#include "sampling/tag_allocations.h"

#include "record_structs.h"

#include <ruby.h>

/*
 * Empties the table. `budget`: a share of the process's CPU time. Allocates objects, to measure the hook's cost.
 * Returns the reason why sampling cannot start, "running" if it has started already, or NULL.
 */
const char *memscope_object_sampler_start(double budget);

/* Removes the hooks. Read the settled samples before allocating objects: a GC that allocation starts is not tracked. */
void memscope_object_sampler_stop(void);

bool memscope_object_sampler_runs(void);

/* Begins another generation, and returns its number. */
uint32_t memscope_object_sampler_next_generation(void);

/*
 * Turns the frames and classes recorded since the last postponed job into text. Call it before reading the samples.
 * Stops the profile if it is lost.
 */
void memscope_object_sampler_settle(void);

/*
 * Returns true if another Ractor, created unnoticed (ruby/ractors.h), has been alive while the profile ran. Then the
 * objects that have died since are unknown.
 */
bool memscope_object_sampler_lost(void);

struct memscope_object_samples *memscope_object_sampler_samples(void);

/* A sampled object as of a reading of the profile: another object may have its address by now. */
struct memscope_sampled_object {
    uint64_t address;
    uint32_t window, epoch;
};

/*
 * Overwrites the array with the VALUEs of the live objects, and returns their number. The GC must be disabled. Call it
 * outside of hooks. Allocates no objects, but may call malloc.
 */
size_t memscope_object_sampler_alive(struct memscope_sampled_object *objects, size_t count);

struct memscope_object_sampler_state {
    struct memscope_sampling_plan plan; /* plan and last: as of now, by memscope_plan_at */
    double last;
    struct memscope_generations generations;
    struct memscope_sampling_overhead overhead; /* since the start or, in a forked child, the fork */
};

struct memscope_object_sampler_state memscope_object_sampler_state(void);

/* The state when a major GC ended its mark phase, or at the start. */
struct memscope_tag_mark {
    struct memscope_sampling_plan plan; /* plan and last: by memscope_plan_at */
    double last;
    uint32_t epoch;                    /* the first epoch afterwards */
    uint64_t half_runs[MEMSCOPE_TAGS]; /* runs by tag, begun + ended, so a run in progress is half */
};

/* Counts by tag. Pointers are valid until the GVL is released or something is allocated. */
struct memscope_object_tags {
    const struct memscope_tag_allocations *allocations;
    double stands_for; /* allocations that one in the last window represents */
    const struct memscope_tag_mark *start;
    const struct memscope_tag_mark *judged; /* the major GC before the last, NULL after fewer than two. The last one has
                                               judged all objects from before it. */
};

/* For a running profile. Settle it first. */
struct memscope_object_tags memscope_object_sampler_tags(void);
