/*
 * Decides when to sample allocations of objects, and how many allocations a sample represents.
 *
 * The allocations of a process, in their order, are divided into parts. In each part one window, a run of consecutive
 * allocations, is watched, and represents the whole part. The window begins at a random place in the part, so that it
 * cannot stay in step with a loop of the program. Within a window, the distance from one sample to the next is
 * geometric. A sample represents interval × part / window allocations. The first part is no longer than its window.
 *
 * Parts are so long that the mean cost, judged by recent windows, stays within the budget. The first parts are shorter,
 * and may cost twice the budget, so that even a program that ends soon has several windows.
 *
 * The cost of watching an allocation is measured at the start, in a loop. In a large program, whose code and data are
 * not in the processor's caches, watching costs more. So once there have been many windows, the cost is learned from
 * how much longer an allocation takes within a window than in the pause before it. If a program starts its GCs itself,
 * this method underestimates the cost: the GC at which a window begins is counted in the pause.
 *
 * Pure arithmetic: the caller passes counts and times. Allocations are numbered from the start of the profile.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define MEMSCOPE_WINDOW_ALLOCATIONS 20000
#define MEMSCOPE_MAX_REACH 1048576 /* allocations, see memscope_plan_skip */
#define MEMSCOPE_FIRST_INTERVAL 50 /* at which a sample costs about as much as watching the allocations before it */

/* Extra nanoseconds per allocation in a window, compared with the pause before it. Recent windows count more. */
struct memscope_extra_cost {
    double windows, sum, squares;
};

struct memscope_sampling_plan {
    uint64_t random;
    double budget;      /* share of the process's CPU time */
    double watching_ns; /* extra cost of an allocation while it is watched */
    double measured_ns; /* the same cost as measured at the start */
    double interval;    /* mean distance of samples, in allocations */
    double early;       /* pause between the first windows, as a share of the allocations so far */
    double spare_ns;    /* remaining allowance, at twice the budget */
    double window_ns;   /* moving mean of the cost from the end of one window to the end of the next */
    double cpu_ns;      /* moving mean of the process's CPU time over that span */
    double allocations; /* moving mean of the allocations over that span */
    struct memscope_extra_cost extra;
    uint64_t ended_at; /* allocation at which the last window ended */
    uint64_t part_begins, part_length, due;
    uint64_t windows;          /* begun */
    uint64_t last_begins;      /* beginning of the last window's part */
    double last_length;        /* length of that part, as the weights of its samples assume it */
    bool out_of_reach;         /* set once some allocations could not be in any window */
    double unwatched;          /* share of an open last window that is still to come, see memscope_plan_at */
    double stood_for, squares; /* allocations that all windows represent: sum, and sum of squares */
};

/* A window that has ended. Times are in nanoseconds, since the previous window ended. */
struct memscope_window {
    uint64_t ends_at;    /* allocation */
    uint64_t watched;    /* allocations of the skip and the window */
    uint64_t watched_ns; /* CPU time of the process while watching, less its part of spent_ns, 0 if unknown */
    uint64_t spent_ns;   /* on samples, names and the ends of mark phases */
    uint64_t cpu_ns;     /* of the process */
};

/* `cpu_ns` is the process's CPU time before the profile started. The first window is due immediately. */
void memscope_plan_begin(struct memscope_sampling_plan *plan, double budget, double watching_ns, uint64_t cpu_ns,
                         uint64_t seed);

/* Draws other random numbers from now on. Call in a forked child. */
void memscope_plan_reseed(struct memscope_sampling_plan *plan, uint64_t seed);

/* Draws the number of allocations up to and including the next sample, at least 1. */
uint64_t memscope_plan_interval(struct memscope_sampling_plan *plan);

/*
 * Draws the skip: the number of allocations that are watched, but not sampled, before the window. The caller can begin
 * a window only at certain moments, perhaps always right after a GC. `reach` is the number of allocations since the
 * previous such moment. The skip is at most `reach`, so that a window may begin anywhere between two such moments, and
 * at most MEMSCOPE_MAX_REACH.
 */
uint64_t memscope_plan_skip(struct memscope_sampling_plan *plan, uint64_t reach);

bool memscope_plan_coin(struct memscope_sampling_plan *plan);

/*
 * Returns true if the budget leaves room for a skip of mean length now. `cpu_ns` is the process's CPU time since the
 * last window.
 */
bool memscope_plan_affords(const struct memscope_sampling_plan *plan, uint64_t cpu_ns, uint64_t reach);

/*
 * Begins a window after the allocation `now` and the skip. Returns the number of allocations that each allocation in it
 * represents. The part is extended if it would end before the window does. The window then represents the length that
 * the part would have with a mean skip: if a longer skip made it represent more, objects allocated late in each reach
 * would weigh more than others.
 */
double memscope_plan_begin_window(struct memscope_sampling_plan *plan, uint64_t now, uint64_t skip, uint64_t reach);

/*
 * The plan as of the allocation `now`, for estimates. Until the next window begins, the last window represents all
 * allocations since its part began. *last is their number divided by last_length: the factor for the weights of the
 * window's samples. `remaining` is the number of allocations up to the end of an open window, else 0. An open window
 * represents its part times the share of the window that has been watched. Its samples keep their weights, so *last is
 * 1.
 */
struct memscope_sampling_plan memscope_plan_at(const struct memscope_sampling_plan *plan, uint64_t now,
                                               uint64_t remaining, double *last);

/*
 * The effective number of windows: the number of windows with equal parts that would be as precise as all of them
 * ((Σw)² / Σw², Kish). 0 before the first window.
 */
double memscope_plan_equal_windows(const struct memscope_sampling_plan *plan);

/* The share of all allocations that is in windows. */
double memscope_plan_share(const struct memscope_sampling_plan *plan);

/* Accounts for a window, and decides when the next one is due. */
void memscope_plan_end_window(struct memscope_sampling_plan *plan, struct memscope_window window);
