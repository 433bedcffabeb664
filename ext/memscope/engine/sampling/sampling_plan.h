/*
 * When to sample allocations of objects, and how many allocations a sample stands for.
 *
 * The sequence of a process's allocations is cut into parts. In each, a window of allocations is watched, which begins
 * at a random place, and stands for the part: a loop of the program cannot stay in step with it. Within a window, the
 * distance from one sample to the next is geometric; a sample stands for interval × part / window allocations. The
 * first part is a window.
 *
 * Parts are as long as the budget requires, by what windows have cost. In the beginning they are shorter, up to twice
 * the budget, so that a program that ends soon is seen several times.
 *
 * Pure arithmetic: the caller passes counts and times. Allocations are numbered from the beginning.
 */
#ifndef MEMSCOPE_SAMPLING_PLAN_H
#define MEMSCOPE_SAMPLING_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#define MEMSCOPE_WINDOW_ALLOCATIONS 20000
#define MEMSCOPE_LONGEST_REACH 1048576 /* allocations: memscope_plan_skip */
#define MEMSCOPE_FIRST_INTERVAL 50     /* a sample then costs about as much as watching the allocations before it */

struct memscope_sampling_plan {
    uint64_t random;
    double budget;      /* share of the process's CPU time */
    double watching_ns; /* what an allocation costs more while it is watched */
    double interval;    /* mean distance of samples, in allocations */
    double spare_ns;    /* what may still be spent, by twice the budget */
    double window_ns;   /* moving means from the end of one window to the next one's: what was spent, */
    double cpu_ns;      /* the process's CPU time, */
    double allocations; /* and its allocations */
    uint64_t ended_at;  /* the last window */
    uint64_t part_begins, part_length, due;
    uint64_t windows;          /* begun */
    uint64_t last_begins;      /* of the part that the last one stands for */
    double last_length;        /* of that part */
    bool out_of_reach;         /* some allocations could not be in any window */
    double unwatched;          /* share of the last window, if it is open: memscope_plan_at */
    double stood_for, squares; /* what all windows stand for, in allocations: sum, and sum of squares */
};

/* What is known when a window ends. Times are in nanoseconds, since the last window ended. */
struct memscope_window {
    uint64_t ends_at;  /* allocation */
    uint64_t watched;  /* allocations: the skipped ones and the window */
    uint64_t spent_ns; /* on samples, names and the ends of mark phases */
    uint64_t cpu_ns;   /* of the process */
};

/* `cpu_ns`: CPU time of the process so far, of which nothing was spent. The first window is due at once. */
void memscope_plan_begin(struct memscope_sampling_plan *plan, double budget, double watching_ns, uint64_t cpu_ns,
                         uint64_t seed);

/* Other random numbers from now on, as in a forked child. */
void memscope_plan_reseed(struct memscope_sampling_plan *plan, uint64_t seed);

/* Allocations up to the next sample, itself included: at least 1. */
uint64_t memscope_plan_interval(struct memscope_sampling_plan *plan);

/*
 * Allocations to let pass, watched but not sampled, before the window. The caller can begin one only where the program
 * lets it, perhaps always after a garbage collection: `reach` allocations after it could last. The window then begins
 * anywhere in as many, up to a limit.
 */
uint64_t memscope_plan_skip(struct memscope_sampling_plan *plan, uint64_t reach);

/* A random bit. */
bool memscope_plan_coin(struct memscope_sampling_plan *plan);

/* Whether what has been spent leaves room for a window, this much CPU time after the last one, and what it may skip. */
bool memscope_plan_affords(const struct memscope_sampling_plan *plan, uint64_t cpu_ns, uint64_t reach);

/*
 * Returns how many allocations each of the window stands for that begins after this one and the skipped ones. If the
 * part has to go on until the window's end, the window stands for what it would with a mean skip: if it stood for more
 * after a longer one, what is allocated late in each reach would count for more.
 */
double memscope_plan_begin_window(struct memscope_sampling_plan *plan, uint64_t now, uint64_t skip, uint64_t reach);

/*
 * The plan as of this allocation, for estimates: until the next window begins, the last one stands for what has been
 * allocated since its part began. Stores that as a share of its part. `remaining`: allocations up to the end of a
 * window that is open, else 0. An open window stands for as much of its part as has been watched of the window; its
 * samples stand for what they always do.
 */
struct memscope_sampling_plan memscope_plan_at(const struct memscope_sampling_plan *plan, uint64_t now,
                                               uint64_t remaining, double *last);

/* How many windows that stand for equal parts are worth as much as all; 0 while nothing has been watched. */
double memscope_plan_equal_windows(const struct memscope_sampling_plan *plan);

/* The share of all allocations that are in windows. */
double memscope_plan_share(const struct memscope_sampling_plan *plan);

/* Decides when the next window is due. */
void memscope_plan_end_window(struct memscope_sampling_plan *plan, struct memscope_window window);

#endif
