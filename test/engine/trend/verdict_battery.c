/*
 * Judges traces with known truth at every epoch, as a process would, and prints for each generator what the verdicts
 * were, whether a leak was ever called, and how long that took. FIRST LAST HOURS: the seeds, and how long a trace is;
 * --peers prints what others would have said instead; --csv GENERATOR SEED prints a trace with its verdicts. Of the
 * generators, ONLY=WORD chooses those whose name contains WORD, ONLY='!WORD' the others.
 */
#include "peers.h"
#include "traces.h"
#include "trend/growth.h"
#include "trend/verdict.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define KINDS 5
#define NEVER INFINITY

enum { RATCHET, PREDICT_LINEAR, MANN_KENDALL, PEERS };

/* What became of one trace. */
struct outcome {
    bool leaks, matters;   /* the truth; and whether the leak is large enough to be called one */
    double hours;          /* from the leak's beginning to the trace's end */
    double formula, needs; /* hours until the leak is told: from noise alone; from all that moves memory, and held */
    double called, false_call; /* hours from the leak's beginning to the first call; hour of the first false call */
    bool right_layer;
    enum memscope_verdict_kind last;
    double peers[PEERS]; /* as `called`; negative if before the leak began; 0 for a false call without a leak */
    double cpu_seconds;
    size_t judgements;
};

static int first_seed = 1, last_seed = 4;
static double trace_hours = 48;
static bool with_peers;
static const char *only; /* generators whose name has this */
static struct outcome *outcomes;
static atomic_int next_job;

static int seeds(void) {
    return last_seed - first_seed + 1;
}

static double cpu_seconds(void) {
    struct timespec time;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* A slope is told from none at 4 standard errors: 12 noise^2 / (n (n interval)^2) is its variance. */
static double formula_hours(const struct trace *trace) {
    double points = cbrt(192 * pow(trace->noise / (trace->slope * EPOCH_HOURS), 2));

    return fmax(fmax(points, 12) * EPOCH_HOURS, trace->burst_hours);
}

static void know_the_truth(const struct trace *trace, struct outcome *outcome) {
    struct memscope_trend_noise noise;

    outcome->leaks = trace->leaks;
    outcome->last = MEMSCOPE_VERDICT_TOO_EARLY;
    outcome->called = outcome->false_call = NEVER;
    for (int peer = 0; peer < PEERS; peer++)
        outcome->peers[peer] = NEVER;
    if (!trace->leaks)
        return;
    noise = (struct memscope_trend_noise){trace->noise, 0.005 * trace->base, 1.5};
    outcome->hours = trace->count == 0 ? 0 : trace->hours[trace->count - 1] - trace->began;
    outcome->formula = formula_hours(trace);
    /*
     * Noise and bursts each take a time to average out. Variances add: after the sum of both times, they are small
     * enough together.
     */
    outcome->needs = memscope_growth_needs(trace->slope * MEMSCOPE_DETECTION_ERRORS / 4, trace->began, EPOCH_HOURS,
                                           trace->base, &noise) -
                     trace->began + trace->burst_hours + MEMSCOPE_PERSISTENCE_HOURS;
    /* With a margin, since the size of RSS at the end counts. */
    outcome->matters = trace->slope * 24 > 1.25 * fmax(16, 0.02 * (trace->base * 1.3 + trace->slope * outcome->hours));
}

static void watch(double *called, bool says, const struct trace *trace, size_t point) {
    double hours = trace->hours[point] - trace->began;

    if (says && *called == NEVER) /* a call before the leak began is a false one */
        *called = trace->leaks ? hours : 0;
}

static void ask_peers(const struct trace *trace, const double *rss, struct outcome *outcome) {
    struct ratchet ratchet = {0, 0};

    for (size_t point = 0; point < trace->count; point++) {
        watch(&outcome->peers[RATCHET], ratchet_says_leak(&ratchet, rss[point]), trace, point);
        watch(&outcome->peers[PREDICT_LINEAR], predict_linear_says_leak(trace, rss, point + 1), trace, point);
        if (point % 3 == 0)
            watch(&outcome->peers[MANN_KENDALL], mann_kendall_says_leak(rss, point + 1), trace, point);
    }
}

static void print_point(const struct trace *trace, const double *rss, size_t point,
                        const struct memscope_verdict *now) {
    printf("%.2f,%.2f,%d,%d,%d,%.2f,%.2f,%.2f,%.2f\n", trace->hours[point], rss[point] / BYTES_OF_MIB, now->kind,
           now->grows, now->layer, now->bytes_per_hour / BYTES_OF_MIB, now->bytes_per_hour_low / BYTES_OF_MIB,
           now->detectable_bytes_per_hour / BYTES_OF_MIB, now->needs_seconds / 3600);
}

static void judge_trace(const struct trace *trace, const double *seconds, const double *rss, bool print,
                        struct outcome *outcome) {
    struct memscope_verdict_memory memory = {0};
    struct memscope_verdict verdict;
    struct memscope_trend trend = {.seconds = seconds, .rss = rss, .limit_bytes = trace->limit * BYTES_OF_MIB};
    double started = cpu_seconds();

    for (int layer = 0; layer < MEMSCOPE_LAYERS; layer++)
        trend.layers[layer] = trace->layers[layer];
    for (size_t point = 0; point < trace->count; point++) {
        trend.count = point + 1;
        trend.working_set_bytes = rss[point] + trace->file_cache[point] * BYTES_OF_MIB;
        if (memscope_verdict_judge(&trend, &memory, &verdict) != MEMSCOPE_OK)
            abort();
        if (print)
            print_point(trace, rss, point, &verdict);
        outcome->last = verdict.kind;
        if (verdict.kind != MEMSCOPE_VERDICT_LEAK)
            continue;
        if (!trace->leaks || trace->hours[point] < trace->began)
            outcome->false_call = fmin(outcome->false_call, trace->hours[point]);
        else if (outcome->called == NEVER) {
            outcome->called = trace->hours[point] - trace->began;
            outcome->right_layer = verdict.layer == trace->layer;
        }
    }
    outcome->cpu_seconds = cpu_seconds() - started;
    outcome->judgements = trace->count;
}

static void run(int generator, int seed, bool print, struct outcome *outcome) {
    struct trace *trace = malloc(sizeof *trace);
    double *seconds = malloc(2 * MOST_POINTS * sizeof *seconds);

    if (trace == NULL || seconds == NULL)
        abort();
    generate(trace, generator, (uint64_t)seed, trace_hours, seconds, seconds + MOST_POINTS);
    know_the_truth(trace, outcome);
    if (print)
        printf("# base %.0f limit %.0f slope %.2f began %.1f noise %.2f formula %.1f needs %.1f\n", trace->base,
               trace->limit, trace->slope, trace->began, trace->noise, outcome->formula, outcome->needs);
    if (with_peers)
        ask_peers(trace, seconds + MOST_POINTS, outcome);
    else
        judge_trace(trace, seconds, seconds + MOST_POINTS, print, outcome);
    free(seconds);
    free(trace);
}

/* Whether a generator's name contains ONLY, or does not contain what follows a "!". */
static bool is_chosen(int generator) {
    if (only == NULL)
        return true;
    return *only == '!' ? strstr(generators[generator].name, only + 1) == NULL
                        : strstr(generators[generator].name, only) != NULL;
}

static void *work(void *unused) {
    int job;

    (void)unused;
    while ((job = atomic_fetch_add(&next_job, 1)) < GENERATORS * seeds())
        if (is_chosen(job / seeds()))
            run(job / seeds(), first_seed + job % seeds(), false, &outcomes[job]);
    return NULL;
}

static double percent(double part, double whole) {
    return whole > 0 ? 100 * part / whole : NAN;
}

static int by_value(const void *one, const void *other) {
    double left = *(const double *)one, right = *(const double *)other;

    return (left > right) - (left < right);
}

/* The value that this share of the values does not exceed; reorders them. */
static double quantile(double *values, size_t count, double share) {
    qsort(values, count, sizeof *values, by_value);
    return count == 0 ? NAN : values[(size_t)(share * (double)(count - 1))];
}

struct totals {
    double nulls, false_nulls, false_early, leaks, called; /* leaks: that matter */
    double due_formula, in_formula, due_needs, in_needs, right_layers;
};

static void count_outcome(const struct outcome *outcome, struct totals *totals) {
    if (!outcome->leaks) {
        totals->nulls++;
        totals->false_nulls += outcome->false_call < NEVER;
        return;
    }
    totals->false_early += outcome->false_call < NEVER;
    totals->called += outcome->called < NEVER;
    totals->right_layers += outcome->called < NEVER && outcome->right_layer;
    if (!outcome->matters)
        return;
    totals->leaks++;
    if (1.5 * outcome->formula <= outcome->hours) {
        totals->due_formula++;
        totals->in_formula += outcome->called <= 1.5 * outcome->formula;
    }
    if (1.5 * outcome->needs <= outcome->hours) {
        totals->due_needs++;
        totals->in_needs += outcome->called <= 1.5 * outcome->needs;
    }
}

static void add(const struct totals *of_one, struct totals *totals) {
    const double *from = (const double *)of_one;
    double *to = (double *)totals;

    for (size_t index = 0; index < sizeof *totals / sizeof(double); index++)
        to[index] += from[index];
}

static void print_row(int generator, const struct outcome *of, struct totals *totals) {
    struct totals row = {0};
    double last[KINDS] = {0}, *delays = malloc(3 * (size_t)seeds() * sizeof *delays);
    double *by_formula = delays + seeds(), *by_needs = by_formula + seeds();
    size_t called = 0;

    for (int seed = 0; seed < seeds(); seed++) {
        count_outcome(&of[seed], &row);
        last[of[seed].last]++;
        if (of[seed].leaks && of[seed].matters && of[seed].called < NEVER) {
            delays[called] = of[seed].called;
            by_formula[called] = of[seed].called / of[seed].formula;
            by_needs[called++] = of[seed].called / of[seed].needs;
        }
    }
    printf("%-26s", generators[generator].name);
    for (int kind = 0; kind < KINDS; kind++)
        printf(" %6.1f", percent(last[kind], seeds()));
    printf(" | %6.1f", percent(row.false_nulls + row.false_early, seeds()));
    if (of[0].leaks)
        printf(" | %6.1f %6.1f %6.1f %6.2f %6.2f | %6.1f", percent(row.called, seeds()),
               percent(row.in_formula, row.due_formula), percent(row.in_needs, row.due_needs),
               quantile(by_formula, called, 0.5), quantile(by_needs, called, 0.5),
               percent(row.right_layers, row.called));
    printf("\n");
    add(&row, totals);
    free(delays);
}

/* Prints the runs whose verdict was wrong, or late. */
static void print_wrong(void) {
    for (int job = 0; job < GENERATORS * seeds(); job++) {
        const struct outcome *of = &outcomes[job];
        bool late = of->leaks && of->matters && 1.5 * of->needs <= of->hours && of->called > 1.5 * of->needs;

        if (of->judgements > 0 && (of->false_call < NEVER || late))
            printf("%s, --csv %d %d: %s at %.1f h, needed %.1f\n", generators[job / seeds()].name, job / seeds(),
                   first_seed + job % seeds(), late ? "late" : "false", late ? of->called : of->false_call, of->needs);
    }
}

/* The blind generators have figures of their own too: those that the verdict was made with must not hide them. */
static void print_figures(const char *prefix, const struct totals *totals) {
    printf("%sfalse_leaks %.2f %% of null runs\n", prefix, percent(totals->false_nulls, totals->nulls));
    printf("%sfalse_early %.2f %% of leaks, called before they began\n", prefix,
           percent(totals->false_early, totals->leaks));
    printf("%sprecision %.2f %%\n", prefix,
           percent(totals->called, totals->called + totals->false_nulls + totals->false_early));
    printf("%srecall_formula %.2f %% within 1.5 x 4 sigma of noise alone\n", prefix,
           percent(totals->in_formula, totals->due_formula));
    printf("%srecall_needs %.2f %% within 1.5 x 4 sigma beside what else moves memory\n", prefix,
           percent(totals->in_needs, totals->due_needs));
    printf("%slayer_right %.2f %%\n", prefix, percent(totals->right_layers, totals->called));
}

static void print_verdicts(void) {
    struct totals totals = {0}, blind = {0};
    double cpu = 0, judgements = 0;

    printf("%-26s %41s | %6s | %34s | %6s\n", "", "verdict at the end, % of runs", "false", "called", "layer");
    printf("%-26s %6s %6s %6s %6s %6s | %6s | %6s %6s %6s %6s %6s | %6s\n", "", "early", "steady", "fills", "step",
           "leak", "leak", "ever", "1.5f", "1.5n", "t/f", "t/n", "right");
    for (int generator = 0; generator < GENERATORS; generator++) {
        const struct outcome *of = outcomes + (ptrdiff_t)generator * seeds();

        if (!is_chosen(generator))
            continue;
        print_row(generator, of, generators[generator].blind ? &blind : &totals);
        for (int seed = 0; seed < seeds(); seed++) {
            cpu += of[seed].cpu_seconds;
            judgements += (double)of[seed].judgements;
        }
    }
    if (getenv("VERBOSE") != NULL)
        print_wrong();
    print_figures("", &totals);
    print_figures("blind_", &blind);
    add(&blind, &totals);
    print_figures("all_", &totals);
    printf("judgement_us %.1f\n", cpu / judgements * 1e6);
}

static void print_peers(void) {
    static const char *const names[PEERS] = {"ratchet", "predict_linear", "Mann-Kendall"};
    double falsely[PEERS] = {0}, nulls = 0, leaks = 0, rightly[PEERS] = {0}, in_time[PEERS] = {0};

    for (int job = 0; job < GENERATORS * seeds(); job++) {
        const struct outcome *of = &outcomes[job];

        nulls += !of->leaks;
        leaks += of->leaks && of->matters;
        for (int peer = 0; peer < PEERS; peer++) {
            falsely[peer] += of->peers[peer] < NEVER && (!of->leaks || of->peers[peer] < 0);
            rightly[peer] += of->leaks && of->matters && of->peers[peer] >= 0 && of->peers[peer] < NEVER;
            in_time[peer] += of->leaks && of->matters && of->peers[peer] >= 0 && of->peers[peer] <= 1.5 * of->needs;
        }
    }
    printf("%-16s %12s %12s %12s %12s\n", "", "false leaks", "precision", "recall", "in 1.5 needs");
    for (int peer = 0; peer < PEERS; peer++)
        printf("%-16s %10.1f %% %10.1f %% %10.1f %% %10.1f %%\n", names[peer], percent(falsely[peer], nulls),
               percent(rightly[peer], rightly[peer] + falsely[peer]), percent(rightly[peer], leaks),
               percent(in_time[peer], leaks));
}

int main(int count, char **arguments) {
    pthread_t threads[2];
    int at = 1;

    only = getenv("ONLY");
    if (count > at && strcmp(arguments[at], "--peers") == 0)
        with_peers = at++ > 0;
    if (count > at + 2 && strcmp(arguments[at], "--csv") == 0) {
        struct outcome outcome = {0};

        trace_hours = getenv("HOURS") != NULL ? atof(getenv("HOURS")) : 168;
        run(atoi(arguments[at + 1]), atoi(arguments[at + 2]), true, &outcome);
        return 0;
    }
    if (count > at + 2) {
        first_seed = atoi(arguments[at]);
        last_seed = atoi(arguments[at + 1]);
        trace_hours = atof(arguments[at + 2]);
    }
    outcomes = calloc((size_t)GENERATORS * (size_t)seeds(), sizeof *outcomes);
    if (outcomes == NULL)
        return 1;
    for (int thread = 0; thread < 2; thread++)
        if (pthread_create(&threads[thread], NULL, work, NULL) != 0)
            return 1;
    for (int thread = 0; thread < 2; thread++)
        pthread_join(threads[thread], NULL);
    if (with_peers)
        print_peers();
    else
        print_verdicts();
    free(outcomes);
    return 0;
}
