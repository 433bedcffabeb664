/*
 * Whether the estimates of a profile of objects are right: simulated programs, sampled as the profile samples them. A
 * program is a sequence of allocations; for each, its line and whether the object stays alive are functions of its
 * number.
 */
#include "sampling/object_groups.h"

#include "../expect.h"

#include <math.h>
#include <string.h>

#ifdef IN_FULL
#define RUNS 1000
#else
#define RUNS 60
#endif

#define ALLOCATIONS 10000000u
#define LINES 9
#define ALLOCATION_NS 100 /* CPU time of the program for each */
#define WATCHING_NS 15    /* more for each that is watched */
#define SAMPLE_NS 1500    /* for each sample, names included */

/* All objects of a line stay, but none of CHURN, half of HALVED, and a tenth of EARLY and LATE. */
enum { CHURN, TENTH, HUNDREDTH, THOUSANDTH, BURSTS, HALVED, IN_STEP, EARLY, LATE };

/*
 * Allocations from one event of the garbage collector to the next: while it sweeps, or if it is run between requests.
 * In each stretch of LONG allocations, objects of EARLY come first, then those of LATE; a tenth of both stays.
 */
enum { SHORT = 3000, LONG = 200000 };
static uint32_t reach = SHORT;

static uint64_t mixed(uint64_t number) {
    number = (number ^ number >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    number = (number ^ number >> 27) * UINT64_C(0x94D049BB133111EB);
    return number ^ number >> 31;
}

/* IN_STEP comes with the period of a window; BURSTS come 100 at once. */
static int line_of(uint32_t number) {
    uint32_t among = (uint32_t)(mixed(number + 1) % 1000);

    if (reach == LONG)
        return number % LONG < LONG / 2 ? EARLY : LATE;
    if (number % MEMSCOPE_WINDOW_ALLOCATIONS < 200)
        return IN_STEP;
    if (mixed(number / 100) % 1000 < 15)
        return BURSTS;
    return among < 100 ? TENTH : among < 110 ? HUNDREDTH : among < 111 ? THOUSANDTH : among < 161 ? HALVED : CHURN;
}

static bool stays(uint32_t number) {
    int line = line_of(number);

    if (line == EARLY || line == LATE)
        return mixed(number + 2) % 10 == 0;
    return line == HALVED ? mixed(number + 2) & 1 : line != CHURN;
}

static double truth[LINES];

static void count_truth(void) {
    for (uint32_t number = 0; number < ALLOCATIONS; number++)
        if (stays(number))
            truth[line_of(number)]++;
}

/* ---- a run ------------------------------------------------------------------------------------------------------ */

static struct memscope_object_samples *samples;
static struct memscope_sampling_plan plan;

static void sample(uint32_t number, double stands_for) {
    char line = (char)('a' + line_of(number));

    memscope_object_samples_add(samples, (struct memscope_object_sample){
                                             .address = number + 1,
                                             .weight = (float)(plan.interval * stands_for),
                                             .stands_for = (float)stands_for,
                                             .window = (uint32_t)plan.windows,
                                             .class_name = (uint16_t)memscope_text_add(&samples->texts, &line, 1),
                                         });
}

/* Watches a window from this allocation on, or after some skipped ones. */
static void watch(uint64_t from, uint64_t passed, uint64_t cpu_ns) {
    uint64_t skip = memscope_plan_skip(&plan, from - passed), taken = 0;
    uint64_t begins_at = from + skip, ends_at = begins_at + MEMSCOPE_WINDOW_ALLOCATIONS;
    double stands_for = memscope_plan_begin_window(&plan, from, skip, from - passed);

    memscope_object_samples_make_room(samples, 1000, &plan);
    for (uint64_t at = begins_at + memscope_plan_interval(&plan) - 1; at < ends_at && at < ALLOCATIONS;
         at += memscope_plan_interval(&plan), taken++)
        sample((uint32_t)at, stands_for);
    memscope_plan_end_window(&plan, (struct memscope_window){
                                        .ends_at = ends_at,
                                        .watched = ends_at - from,
                                        .spent_ns = taken * SAMPLE_NS,
                                        .cpu_ns = cpu_ns + (ends_at - from) * ALLOCATION_NS,
                                    });
}

/* Watches a window from this allocation on if one is due; returns whether it did. */
static bool watches(uint64_t at, uint64_t passed) {
    uint64_t cpu_ns = (at - plan.ended_at) * ALLOCATION_NS;

    if (at < plan.due || !memscope_plan_affords(&plan, cpu_ns, at - passed))
        return false;
    watch(at, passed, cpu_ns);
    return true;
}

/* A window begins when another has just ended, or a few allocations after an event. */
static void run(uint64_t seed, double budget) {
    uint64_t at = 0, passed = 0;

    memscope_object_samples_clear(samples);
    memscope_plan_begin(&plan, budget, WATCHING_NS, 500000000, mixed(seed));
    while (at < ALLOCATIONS) {
        if (watches(at, passed)) {
            while (plan.ended_at < ALLOCATIONS && watches(plan.ended_at, plan.ended_at))
                continue;
            at = plan.ended_at;
            passed = at / reach * reach;
        } else {
            passed = at;
        }
        at = at / reach * reach + reach + mixed(at) % 50;
    }
}

static enum memscope_object_age age_of(uintptr_t address) {
    return stays((uint32_t)address - 1) ? MEMSCOPE_OBJECT_OLD : MEMSCOPE_OBJECT_DEAD;
}

static size_t forty(const struct memscope_object_sample *one) {
    (void)one;
    return 40;
}

/* ---- all runs --------------------------------------------------------------------------------------------------- */

static struct {
    double estimates, squared_errors;
    unsigned runs, judged, within_one, within_three;
} results[LINES];

static void judge(const struct memscope_object_group *group) {
    struct memscope_window_sums sums = {0};
    double error, missed;
    char line[MEMSCOPE_TEXT_LIMIT];
    int index;

    memscope_text_copy(&samples->texts, group->key.class_name, line);
    index = line[0] - 'a';
    for (size_t share = 0; share < group->share_count; share++)
        memscope_window_sums_add(&sums, group->shares[share].objects, group->shares[share].allocations);
    error = sqrt(memscope_window_variance(&sums, &plan, group->samples, group->objects, 0));
    missed = group->objects - truth[index];
    results[index].estimates += group->objects;
    results[index].squared_errors += missed * missed;
    if (group->samples < 30)
        return;
    results[index].judged++;
    results[index].within_one += fabs(missed) <= error;
    results[index].within_three += fabs(missed) <= 3 * error;
}

static void judge_run(void) {
    struct memscope_scratch scratch;
    struct memscope_generations none_yet = {0};
    struct memscope_object_groups groups;
    double last;

    plan = memscope_plan_at(&plan, ALLOCATIONS, 0, &last);
    memscope_object_samples_sweep(samples, false, age_of);
    EXPECT(memscope_scratch_open(&scratch) == MEMSCOPE_OK);
    EXPECT(memscope_object_samples_read(samples, &scratch, forty, &none_yet, (uint32_t)plan.windows, last, 1,
                                        &groups) == MEMSCOPE_OK);
    for (size_t index = 0; index < groups.count; index++)
        judge(&groups.list[index]);
    memscope_object_groups_release(samples, &groups);
    memscope_scratch_close(&scratch);
}

static void judge_line(int line, double worst_error) {
    double bias = results[line].estimates / RUNS / truth[line] - 1;
    double error = sqrt(results[line].squared_errors / RUNS) / truth[line];

    EXPECT(fabs(bias) < 4 * worst_error / sqrt(RUNS));
    EXPECT(error < worst_error * (RUNS < 1000 ? 1.2 : 1)); /* 60 runs tell the error only to a tenth */
}

static void judge_errors(void) {
    unsigned judged = 0, within_one = 0, within_three = 0;

    for (int line = TENTH; line < LINES; line++) {
        judged += results[line].judged;
        within_one += results[line].within_one;
        within_three += results[line].within_three;
    }
    EXPECT(judged >= 4u * RUNS);
    EXPECT(within_one >= 0.60 * judged && within_one <= 0.76 * judged);
    EXPECT(within_three >= (RUNS < 1000 ? 0.97 : 0.99) * judged);
}

static void judge_runs(uint32_t reached, double budget) {
    memset(results, 0, sizeof results);
    memset(truth, 0, sizeof truth);
    reach = reached;
    count_truth();
    for (int seed = 0; seed < RUNS; seed++) {
        run((uint64_t)seed, budget);
        judge_run();
    }
}

static bool is_near(double value, double expected) {
    return fabs(value - expected) <= 1e-9 * expected;
}

/* Fifty samples, of a hundred objects each, in one window. One of them adds nearly all bytes. */
static void judge_unequal_samples(void) {
    struct memscope_sampling_plan one_window = {.windows = 1, .stood_for = 40000, .squares = 40000.0 * 40000};
    struct memscope_window_sums bytes = {0};
    double unsampled = 1 - 50 / 5000.0, one_more = 51 / 50.0, equal = 30000000.0 * 30000000 / 50, largest = 29e6 * 29e6;

    memscope_window_sums_add(&bytes, 30000000, 40000);
    EXPECT(is_near(memscope_window_variance(&bytes, &one_window, 50, 5000, 0), equal * unsampled * one_more));
    EXPECT(is_near(memscope_window_variance(&bytes, &one_window, 50, 5000, equal / 2), equal * unsampled * one_more));
    EXPECT(is_near(memscope_window_variance(&bytes, &one_window, 50, 5000, largest), largest * unsampled * one_more));
}

int main(void) {
    judge_unequal_samples();
    samples = memscope_object_samples_map();
    if (samples == NULL)
        SKIP("no memory");
    judge_runs(SHORT, 0.01);
    judge_line(TENTH, 0.05);
    judge_line(HUNDREDTH, 0.15);
    judge_line(THOUSANDTH, 0.5);
    judge_line(BURSTS, 0.2);
    judge_line(HALVED, 0.1);
    judge_line(IN_STEP, 0.15);
    judge_errors();
    judge_runs(LONG, 0.05);
    judge_line(EARLY, 0.35);
    judge_line(LATE, 0.35);
    judge_runs(LONG, 0.15); /* pauses are shorter than the reach */
    judge_line(EARLY, 0.25);
    judge_line(LATE, 0.25);
    return 0;
}
