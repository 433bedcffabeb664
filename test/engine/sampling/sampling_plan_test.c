/*
 * What the profile of objects costs in a simulated program in which watching an allocation costs more than it did in
 * the loop at the start: the plan learns that from the windows, and stays within its budget.
 */
#include "sampling/sampling_plan.h"

#include <math.h>
#include <stdio.h>

#define BUDGET 0.01
#define MEASURED_NS 60.0
#define SAMPLE_NS 5000
#define STEP 1000 /* allocations from one moment at which a window may begin to the next */

static uint64_t mixed(uint64_t number) {
    number = (number ^ number >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    number = (number ^ number >> 27) * UINT64_C(0x94D049BB133111EB);
    return number ^ number >> 31;
}

struct program {
    double allocation_ns; /* in the mean: it varies by half, from one thousand allocations to the next */
    double watching_ns;   /* in truth */
    uint64_t phase;       /* allocations; in every second phase, they take ten times as long; 0: no phases */
};

/* CPU time from one allocation to another. */
static double time_between(const struct program *program, uint64_t from, uint64_t to) {
    double ns = 0;

    for (uint64_t at = from; at < to;) {
        uint64_t block = at / STEP, end = (block + 1) * STEP < to ? (block + 1) * STEP : to;
        double times = program->phase && at / program->phase % 2 ? 10 : 1;

        ns += times * program->allocation_ns * (0.5 + (double)(mixed(block) % 1000) / 1000) * (double)(end - at);
        at = end;
    }
    return ns;
}

/* Runs the program; *spent is what the profile took of it. Returns its CPU time. */
static double run(struct memscope_sampling_plan *plan, const struct program *program, uint64_t from, uint64_t to,
                  double *spent) {
    double cpu = 0;

    *spent = 0;
    for (uint64_t at = from; at < to;) {
        double between, watched, samples;
        uint64_t ends_at = at + MEMSCOPE_WINDOW_ALLOCATIONS;

        if (at < plan->due) {
            at += (plan->due - at + STEP - 1) / STEP * STEP;
            continue;
        }
        between = time_between(program, plan->ended_at, at);
        if (!memscope_plan_affords(plan, (uint64_t)between, 0)) {
            at += STEP;
            continue;
        }
        memscope_plan_begin_window(plan, at, 0, 0);
        watched = time_between(program, at, ends_at) + program->watching_ns * MEMSCOPE_WINDOW_ALLOCATIONS;
        samples = SAMPLE_NS * MEMSCOPE_WINDOW_ALLOCATIONS / plan->interval;
        *spent += program->watching_ns * MEMSCOPE_WINDOW_ALLOCATIONS + samples;
        cpu += between + watched + samples;
        memscope_plan_end_window(plan, (struct memscope_window){
                                           .ends_at = ends_at,
                                           .watched = MEMSCOPE_WINDOW_ALLOCATIONS,
                                           .watched_ns = (uint64_t)watched,
                                           .spent_ns = (uint64_t)samples,
                                           .cpu_ns = (uint64_t)(between + watched + samples),
                                       });
        at = ends_at;
    }
    return cpu;
}

/* The share that the profile takes once it has run for a while. */
static double share(struct memscope_sampling_plan *plan, struct program program, double budget) {
    double spent, cpu;

    memscope_plan_begin(plan, budget, MEASURED_NS, 500000000, 1);
    run(plan, &program, 0, 200000000, &spent);
    cpu = run(plan, &program, plan->ended_at, 600000000, &spent);
    return spent / cpu;
}

static void check(const char *what, double found, double least, double most) {
    if (!(found >= least && found <= most))
        printf("%s: %g, allowed: %g to %g\n", what, found, least, most);
}

/* Feeds windows to the plan, after pauses of a million allocations, which take a microsecond each. */
static void feed(struct memscope_sampling_plan *plan, int count, uint64_t watched_ns, uint64_t cpu_ns) {
    for (; count > 0; count--) {
        uint64_t begins_at = plan->ended_at + 1000000;

        memscope_plan_begin_window(plan, begins_at, 0, 0);
        memscope_plan_end_window(plan, (struct memscope_window){
                                           .ends_at = begins_at + MEMSCOPE_WINDOW_ALLOCATIONS,
                                           .watched = MEMSCOPE_WINDOW_ALLOCATIONS,
                                           .watched_ns = watched_ns,
                                           .spent_ns = 1000000,
                                           .cpu_ns = cpu_ns,
                                       });
    }
}

#define DEARER (MEMSCOPE_WINDOW_ALLOCATIONS * 1150) /* nanoseconds, of which watching took 150 each */
#define CPU_NS(watched_ns) (1000000000 + 1000000 + (watched_ns))

static void check_odd_windows(void) {
    struct memscope_sampling_plan plan;

    memscope_plan_begin(&plan, BUDGET, MEASURED_NS, 500000000, 1);
    feed(&plan, 100, UINT64_MAX - 5, 3000000);
    feed(&plan, 100, 6000000, 3000000);
    check("after windows of unknown times", plan.watching_ns, MEASURED_NS, MEASURED_NS);
    for (int count = 0; count < 100; count++) {
        feed(&plan, 1, DEARER, CPU_NS(DEARER));
        feed(&plan, 1, 0, CPU_NS(0));
    }
    check("beside windows of unknown times", plan.watching_ns, 149, 151);
    feed(&plan, 1, 900000000, CPU_NS(900000000));
    check("after one long call", plan.watching_ns, MEASURED_NS, 2.6 * MEASURED_NS);
    feed(&plan, 5000, MEMSCOPE_WINDOW_ALLOCATIONS * 1000, CPU_NS(MEMSCOPE_WINDOW_ALLOCATIONS * 1000));
    check("long after", plan.watching_ns, MEASURED_NS, MEASURED_NS);
    feed(&plan, 300, DEARER, CPU_NS(DEARER));
    check("and in another phase", plan.watching_ns, 80, 151);
}

#define BURSTS 14
#define PROFILES 3000

/*
 * Estimates bursts as long as a window, one after the other, in profiles of a program whose windows may begin anywhere
 * and cost enough for parts of three windows.
 */
static void estimate_bursts(uint64_t seed, double *estimates) {
    struct memscope_sampling_plan plan;
    uint64_t at = 0;

    memscope_plan_begin(&plan, 0.05, MEASURED_NS, 0, seed);
    while (at < (BURSTS + 1) * MEMSCOPE_WINDOW_ALLOCATIONS) {
        double times = memscope_plan_begin_window(&plan, at, 0, 0);
        uint64_t first = at / MEMSCOPE_WINDOW_ALLOCATIONS, begun = at % MEMSCOPE_WINDOW_ALLOCATIONS;
        uint64_t ends_at = at + MEMSCOPE_WINDOW_ALLOCATIONS;

        for (uint64_t burst = first; burst <= first + 1 && burst >= 1 && burst <= BURSTS; burst++)
            estimates[burst - 1] += times * (double)(burst == first ? MEMSCOPE_WINDOW_ALLOCATIONS - begun : begun);
        memscope_plan_end_window(&plan, (struct memscope_window){.ends_at = ends_at,
                                                                 .watched = MEMSCOPE_WINDOW_ALLOCATIONS,
                                                                 .spent_ns = 3000000,
                                                                 .cpu_ns = (ends_at - plan.ended_at) * 1000});
        at = plan.due > ends_at ? plan.due : ends_at;
    }
}

/* Their places are the same in each profile. */
static void check_bursts(void) {
    double estimates[BURSTS] = {0}, largest = 0;

    for (uint64_t seed = 1; seed <= PROFILES; seed++)
        estimate_bursts(mixed(seed), estimates);
    for (int burst = 0; burst < BURSTS; burst++) {
        double error = estimates[burst] / PROFILES / MEMSCOPE_WINDOW_ALLOCATIONS - 1;

        largest = fmax(largest, fabs(error));
        if (burst >= 4)
            check("a burst in the same place of each profile: error", error, -0.08, 0.08);
    }
    check("a burst in the beginning: error", largest, 0, 0.2);
}

int main(void) {
    struct memscope_sampling_plan plan;

    check_bursts();
    check("a large program: share", share(&plan, (struct program){1000, 150, 0}, BUDGET), 0.85 * BUDGET, 1.2 * BUDGET);
    check("what watching costs there", plan.watching_ns, 120, 160);
    check("a loop: share", share(&plan, (struct program){1000, MEASURED_NS, 0}, BUDGET), 0.8 * BUDGET, 1.05 * BUDGET);
    check("what watching costs there", plan.watching_ns, MEASURED_NS, 1.2 * MEASURED_NS);
    check("phases: share", share(&plan, (struct program){300, MEASURED_NS, 30000000}, BUDGET), 0.8 * BUDGET,
          1.2 * BUDGET);
    check("what watching costs there", plan.watching_ns, MEASURED_NS, 1.2 * MEASURED_NS);
    share(&plan, (struct program){1000, 1000, 0}, BUDGET);
    check("more than is believed", plan.watching_ns, 4 * MEASURED_NS, 4 * MEASURED_NS);
    share(&plan, (struct program){1000, 150, 0}, 1);
    check("where all is watched, nothing can be learned", plan.watching_ns, MEASURED_NS, MEASURED_NS);
    check_odd_windows();
    return 0;
}
