#include "sampling/sampling_plan.h"

#include <math.h>

#define WINDOW ((double)MEMSCOPE_WINDOW_ALLOCATIONS)
#define MEMORY 16              /* windows in the moving means */
#define MAX_PART 1e9           /* allocations */
#define MAX_WINDOW_COST_NS 2e7 /* nanoseconds, higher costs are cut off as machine noise */
#define SPARE_LIMIT 2e7        /* nanoseconds */
#define FIRST_SPARE 1e7        /* nanoseconds */
#define EARLY 0.25             /* mean pause between the first windows, as a share of the allocations so far */
#define UNEVEN 0.5             /* maximum deviation of a pause from its mean, as a share of it */
#define LEARNING 64            /* minimum windows from which the cost of watching is learned */
#define FORGETTING 256         /* windows, after which each of them counts half */
#define COLDEST 4              /* maximum ratio of the cost of watching to its cost at the start */

static uint64_t draw(struct memscope_sampling_plan *plan) {
    uint64_t bits = plan->random += UINT64_C(0x9E3779B97F4A7C15);

    bits = (bits ^ bits >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    bits = (bits ^ bits >> 27) * UINT64_C(0x94D049BB133111EB);
    return bits ^ bits >> 31;
}

/* Above 0, at most 1. */
static double uniform(struct memscope_sampling_plan *plan) {
    return (double)((draw(plan) >> 11) + 1) * 0x1p-53;
}

/* 1 in the mean, between 1 − UNEVEN and 1 + UNEVEN. */
static double uneven(struct memscope_sampling_plan *plan) {
    return 1 - UNEVEN + 2 * UNEVEN * uniform(plan);
}

void memscope_plan_reseed(struct memscope_sampling_plan *plan, uint64_t seed) {
    plan->random = seed;
}

void memscope_plan_begin(struct memscope_sampling_plan *plan, double budget, double watching_ns, uint64_t cpu_ns,
                         uint64_t seed) {
    double spare = 2 * budget * (double)cpu_ns;

    *plan = (struct memscope_sampling_plan){
        .random = seed,
        .budget = budget,
        .watching_ns = watching_ns,
        .measured_ns = watching_ns,
        .interval = MEMSCOPE_FIRST_INTERVAL,
        .part_length = MEMSCOPE_WINDOW_ALLOCATIONS,
        .spare_ns = fmin(spare, FIRST_SPARE),
    };
    plan->early = EARLY * uneven(plan);
}

uint64_t memscope_plan_interval(struct memscope_sampling_plan *plan) {
    if (plan->interval <= 1)
        return 1;
    return 1 + (uint64_t)(log(uniform(plan)) / log1p(-1 / plan->interval));
}

static double limited(uint64_t reach) {
    return reach < MEMSCOPE_MAX_REACH ? (double)reach : MEMSCOPE_MAX_REACH;
}

uint64_t memscope_plan_skip(struct memscope_sampling_plan *plan, uint64_t reach) {
    return (uint64_t)(uniform(plan) * limited(reach));
}

bool memscope_plan_coin(struct memscope_sampling_plan *plan) {
    return draw(plan) >> 63;
}

bool memscope_plan_affords(const struct memscope_sampling_plan *plan, uint64_t cpu_ns, uint64_t reach) {
    return plan->spare_ns + 2 * plan->budget * (double)cpu_ns >= plan->watching_ns * limited(reach) / 2;
}

static void follow(double *mean, double value, uint64_t count) {
    *mean += (value - *mean) / (double)(count < MEMORY ? count : MEMORY);
}

/*
 * Each window is compared with the pause before it, since an allocation may take ten times as long in one phase of a
 * program as in another. Subtracts one standard error, since costs vary, and must not seem high by chance.
 */
static void learn(struct memscope_sampling_plan *plan, const struct memscope_window *window) {
    struct memscope_extra_cost *extra = &plan->extra;
    double watched = (double)window->watched, others = (double)(window->ends_at - plan->ended_at) - watched;
    double between_ns = (double)window->cpu_ns - (double)window->watched_ns - (double)window->spent_ns, longer, mean;

    if (window->watched_ns == 0 || between_ns <= 0 || others < watched)
        return;
    longer = (double)window->watched_ns / watched - between_ns / others;
    extra->windows++;
    extra->sum += longer;
    extra->squares += longer * longer;
    mean = extra->sum / extra->windows;
    if (extra->windows >= LEARNING) {
        mean -= sqrt(fmax(extra->squares / extra->windows - mean * mean, 0) / extra->windows);
        plan->watching_ns = fmin(fmax(mean, plan->measured_ns), COLDEST * plan->measured_ns);
    }
    if (extra->windows >= FORGETTING)
        *extra = (struct memscope_extra_cost){extra->windows / 2, extra->sum / 2, extra->squares / 2};
}

/* Updates the moving means and the remaining allowance. */
static void account(struct memscope_sampling_plan *plan, const struct memscope_window *window) {
    double spent = (double)window->spent_ns + plan->watching_ns * (double)window->watched;

    spent = spent < MAX_WINDOW_COST_NS ? spent : MAX_WINDOW_COST_NS;
    follow(&plan->window_ns, spent, plan->windows);
    follow(&plan->cpu_ns, (double)window->cpu_ns, plan->windows);
    follow(&plan->allocations, (double)(window->ends_at - plan->ended_at), plan->windows);
    plan->spare_ns = fmin(plan->spare_ns + 2 * plan->budget * (double)window->cpu_ns - spent, SPARE_LIMIT);
}

/* The length of parts at which the mean cost stays within the budget. */
static double affordable_part(const struct memscope_sampling_plan *plan) {
    if (plan->cpu_ns <= 0)
        return MAX_PART;
    return fmin(plan->window_ns / plan->budget / plan->cpu_ns * plan->allocations, MAX_PART);
}

/*
 * Parts differ in length at random, so that their beginnings cannot stay in step with the program either. A window more
 * rarely covers the first and last allocations of its part, so the same allocations must not be first or last in each
 * profile. (With early parts of one length, a burst as long as a window was estimated 14 % too low to 18 % too high on
 * average, depending on where it was.)
 */
static void plan_part(struct memscope_sampling_plan *plan) {
    double mean = fmin(affordable_part(plan), WINDOW + plan->early * (double)plan->ended_at);
    double pause = mean > WINDOW ? (mean - WINDOW) * uneven(plan) : 0;

    plan->part_begins += plan->part_length;
    plan->part_length = (uint64_t)(WINDOW + pause);
    plan->due = plan->part_begins + (uint64_t)(uniform(plan) * pause);
}

/* A part lasts at least until its window ends, however late the window began. */
double memscope_plan_begin_window(struct memscope_sampling_plan *plan, uint64_t now, uint64_t skip, uint64_t reach) {
    uint64_t ends_at = now + skip + MEMSCOPE_WINDOW_ALLOCATIONS;
    double expected = (double)now + limited(reach) / 2 + WINDOW - (double)plan->part_begins;
    double length = fmax(expected, (double)plan->part_length);

    if (ends_at > plan->part_begins + plan->part_length)
        plan->part_length = ends_at - plan->part_begins;
    plan->windows++;
    plan->out_of_reach |= reach > MEMSCOPE_MAX_REACH;
    plan->last_begins = plan->part_begins;
    plan->last_length = length;
    plan->stood_for += length;
    plan->squares += length * length;
    return length / WINDOW;
}

struct memscope_sampling_plan memscope_plan_at(const struct memscope_sampling_plan *plan, uint64_t now,
                                               uint64_t remaining, double *last) {
    struct memscope_sampling_plan then = *plan;
    double length = (double)now - (double)plan->last_begins;

    *last = 1;
    if (plan->windows == 0)
        return then;
    if (remaining > 0) {
        then.unwatched = fmin((double)remaining / WINDOW, 1);
        length = plan->last_length * (1 - then.unwatched);
    } else {
        *last = length / plan->last_length;
    }
    then.stood_for += length - plan->last_length;
    then.squares += length * length - plan->last_length * plan->last_length;
    return then;
}

double memscope_plan_equal_windows(const struct memscope_sampling_plan *plan) {
    return plan->squares > 0 ? plan->stood_for * plan->stood_for / plan->squares : 0;
}

double memscope_plan_share(const struct memscope_sampling_plan *plan) {
    return plan->stood_for > 0 ? fmin(((double)plan->windows - plan->unwatched) * WINDOW / plan->stood_for, 1) : 0;
}

void memscope_plan_end_window(struct memscope_sampling_plan *plan, struct memscope_window window) {
    learn(plan, &window);
    account(plan, &window);
    plan->ended_at = window.ends_at;
    plan_part(plan);
}
