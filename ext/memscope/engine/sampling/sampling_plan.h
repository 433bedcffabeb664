/*
 * When to sample allocations of objects, and how many allocations a sample stands for.
 *
 * The allocations of a process, in their order, are divided into parts. In each part one window, a run of consecutive
 * allocations, is watched, and stands for the whole part. The window begins at a random place in the part, so that it
 * cannot stay in step with a loop of the program. Within a window, the distance from one sample to the next is
 * geometric; a sample stands for interval × part / window allocations. The first part is no longer than its window.
 *
 * Parts are so long that the mean cost, judged by recent windows, stays within the budget. The first parts are shorter,
 * and may cost twice the budget, so that even a program that ends soon has several windows.
 *
 * What watching an allocation costs is measured at the start, in a loop. In a large program, whose code and data are
 * not in the processor's caches, it costs more; so once there have been many windows, the cost is learned from how much
 * longer an allocation takes within a window than in the pause before it. If a program starts its GCs itself, this
 * method underestimates the cost: the GC at which a window begins is counted in the pause.
 *
 * Pure arithmetic: the caller passes counts and times. Allocations are numbered from the start of the profile.
 */
#ifndef MEMSCOPE_SAMPLING_PLAN_H
#define MEMSCOPE_SAMPLING_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#define MEMSCOPE_WINDOW_ALLOCATIONS 20000
#define MEMSCOPE_MAX_REACH 1048576 /* allocations; see memscope_plan_skip */
#define MEMSCOPE_FIRST_INTERVAL 50 /* a sample then costs about as much as watching the allocations before it */

/* How many nanoseconds longer an allocation takes in a window than before it. Recent windows count more. */
struct memscope_extra_cost {
    double windows, sum, squares;
};

struct memscope_sampling_plan {
    uint64_t random;
    double budget;      /* share of the process's CPU time */
    double watching_ns; /* the extra cost of an allocation while it is watched */
    double measured_ns; /* that extra cost as measured at the start */
    double interval;    /* mean distance of samples, in allocations */
    double early;       /* the pause between windows in the beginning, as a share of the allocations so far */
    double spare_ns;    /* what may still be spent, at twice the budget */
    double window_ns;   /* moving mean of the cost from the end of one window to the end of the next */
    double cpu_ns;      /* likewise of the process's CPU time over that span, */
    double allocations; /* and of its allocations */
    struct memscope_extra_cost extra;
    uint64_t ended_at; /* allocation at which the last window ended */
    uint64_t part_begins, part_length, due;
    uint64_t windows;          /* begun */
    uint64_t last_begins;      /* where the part of the last window begins */
    double last_length;        /* length of that part, as the weights of its samples assume it */
    bool out_of_reach;         /* some allocations could not be in any window */
    double unwatched;          /* the share of an open last window that is still to come; see memscope_plan_at */
    double stood_for, squares; /* what all windows stand for, in allocations: sum, and sum of squares */
};

/* A window that has ended. Times are in nanoseconds, since the previous window ended. */
struct memscope_window {
    uint64_t ends_at;    /* allocation */
    uint64_t watched;    /* allocations: the skip and the window */
    uint64_t watched_ns; /* CPU time of the process while watching, less its part of spent_ns; 0: unknown */
    uint64_t spent_ns;   /* on samples, names and the ends of mark phases */
    uint64_t cpu_ns;     /* of the process */
};

/* `cpu_ns`: the process's CPU time so far, none of which the profile took. The first window is due at once. */
void memscope_plan_begin(struct memscope_sampling_plan *plan, double budget, double watching_ns, uint64_t cpu_ns,
                         uint64_t seed);

/* Draws other random numbers from now on, as a forked child has to. */
void memscope_plan_reseed(struct memscope_sampling_plan *plan, uint64_t seed);

/* Draws the number of allocations up to and including the next sample: at least 1. */
uint64_t memscope_plan_interval(struct memscope_sampling_plan *plan);

/*
 * Draws the skip: how many allocations are watched, but not sampled, before the window. The caller can begin a window
 * only at certain moments, perhaps always right after a GC. `reach` is the number of allocations since the previous
 * such moment. The skip is at most `reach`, so that a window may begin anywhere between two such moments; it is also at
 * most MEMSCOPE_MAX_REACH.
 */
uint64_t memscope_plan_skip(struct memscope_sampling_plan *plan, uint64_t reach);

/* A random bit. */
bool memscope_plan_coin(struct memscope_sampling_plan *plan);

/*
 * Whether the budget leaves room for a skip of mean length now. `cpu_ns`: the process's CPU time since the last
 * window.
 */
bool memscope_plan_affords(const struct memscope_sampling_plan *plan, uint64_t cpu_ns, uint64_t reach);

/*
 * Begins a window after the allocation `now` and the skip. Returns how many allocations each of its allocations stands
 * for. The part is extended if it would end before the window does. The window then stands for the length that the part
 * would have with a mean skip: if a longer skip made it stand for more, objects allocated late in each reach would
 * weigh more than others.
 */
double memscope_plan_begin_window(struct memscope_sampling_plan *plan, uint64_t now, uint64_t skip, uint64_t reach);

/*
 * The plan as of the allocation `now`, for estimates: until the next window begins, the last window stands for all
 * allocations since its part began. *last is their number divided by last_length: the factor for the weights of the
 * window's samples. `remaining`: allocations up to the end of an open window, else 0. An open window
 * stands for its part times the share of the window that has been watched; its samples keep their weights, so *last is
 * 1.
 */
struct memscope_sampling_plan memscope_plan_at(const struct memscope_sampling_plan *plan, uint64_t now,
                                               uint64_t remaining, double *last);

/*
 * The effective number of windows: how many windows with equal parts would be as precise as all of them ((Σw)² / Σw²,
 * Kish); 0 before the first window.
 */
double memscope_plan_equal_windows(const struct memscope_sampling_plan *plan);

/* The share of all allocations that is in windows. */
double memscope_plan_share(const struct memscope_sampling_plan *plan);

/* Accounts for a window, and decides when the next one is due. */
void memscope_plan_end_window(struct memscope_sampling_plan *plan, struct memscope_window window);

#endif
