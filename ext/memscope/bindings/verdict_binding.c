/*
 * Native.judge: the verdict on the history of this process.
 *
 * The memory between verdicts belongs to one process: a forked child begins without it. All uses hold the GVL. The
 * verdict on a week takes some milliseconds.
 */
#include "bindings/reasons.h"

#include "bindings/history_rings.h"
#include "init.h"
#include "trend/verdict.h"

#include <math.h>
#include <unistd.h>

static const char *const kinds[] = {"too_early", "steady", "filling", "step", "leak"};
/* Memory that became private was shared: one layer for people, two for the verdict, since only one is part of RSS. */
static const char *const layers[MEMSCOPE_LAYERS] = {"objects", "native", "free",         "stacks",
                                                    "code",    "shared", "unattributed", "shared"};

static struct memscope_verdict_memory *memory_of_this_process(void) {
    static struct memscope_verdict_memory memory;
    static pid_t owner;

    if (owner != getpid()) {
        memory = (struct memscope_verdict_memory){0};
        owner = getpid();
    }
    return &memory;
}

static VALUE integer_or_nil(double number) {
    return isfinite(number) ? LL2NUM((long long)llround(number)) : Qnil;
}

/* Milliseconds since 1970. */
static VALUE time_or_nil(double seconds) {
    return isfinite(seconds) ? LL2NUM((memscope_boot_second() + llround(seconds)) * 1000) : Qnil;
}

static VALUE rounded(double number, double digits) {
    return DBL2NUM(round(number * digits) / digits);
}

static VALUE shares_to_hash(const struct memscope_verdict *verdict) {
    VALUE hash = rb_hash_new();

    for (int layer = 0; layer < MEMSCOPE_LAYERS; layer++) {
        VALUE known = rb_hash_lookup(hash, memscope_symbol(layers[layer]));

        memscope_hash_set(hash, layers[layer],
                          rounded(verdict->shares[layer] + (NIL_P(known) ? 0 : NUM2DBL(known)), 1e4));
    }
    return hash;
}

static VALUE reason_of(const struct memscope_history *history, enum memscope_history_series series) {
    VALUE name = rb_utf8_str_new_cstr(memscope_history_names[series]);
    VALUE minutes = UINT2NUM(history->unsampled_epochs[series] * history->epoch_seconds / 60);

    if (history->uses[series] == MEMSCOPE_HISTORY_UNSAMPLED)
        return memscope_reason_of("series_unsampled", name);
    if (history->uses[series] == MEMSCOPE_HISTORY_BEGAN_LATE)
        return memscope_reason_of("series_began_late", name, minutes);
    return memscope_reason_of("series_ended", name, minutes);
}

/* Reasons why layers, or parts of them, are unknown: by layer, with the missing series. */
static VALUE reasons_to_hash(const struct memscope_history *history) {
    VALUE hash = rb_hash_new();

    for (int layer = 0; layer < MEMSCOPE_LAYERS; layer++)
        if (history->missing[layer] != MEMSCOPE_HISTORY_SERIES)
            memscope_hash_set(hash, layers[layer], reason_of(history, history->missing[layer]));
    return hash;
}

/* The rows that have grown or shrunk since all of them were known. */
static void set_growth(VALUE hash) {
    const struct memscope_rings *rings = memscope_rings_of_this_process();
    int64_t bytes[MEMSCOPE_HISTORY_ROWS];
    uint64_t since;
    VALUE growth = rb_hash_new();

    if (rings == NULL || !memscope_history_growth(rings, bytes, &since))
        return;
    for (int row = 0; row < MEMSCOPE_HISTORY_ROWS; row++)
        memscope_hash_set(growth, memscope_history_names[MEMSCOPE_HISTORY_FIRST_ROW + row], LL2NUM(bytes[row]));
    memscope_hash_add(hash, {"growth", growth}, {"growth_since", time_or_nil((double)since)});
}

static VALUE evidence_to_hash(const struct memscope_history *history, const struct memscope_verdict *verdict,
                              const struct memscope_verdict_memory *memory) {
    const struct memscope_rings *rings = memscope_rings_of_this_process();
    double lasting_seconds = history->last_seconds + history->epoch_seconds - verdict->since_seconds;
    VALUE hash = memscope_hash_of(
        {"points", SIZET2NUM(history->trend.count)}, {"epoch_seconds", UINT2NUM(history->epoch_seconds)},
        {"span_seconds", integer_or_nil(history->last_seconds - history->first_seconds)},
        {"lasting_seconds", integer_or_nil(lasting_seconds)}, {"rss_bytes", integer_or_nil(history->rss_bytes)},
        {"unshared_bytes", integer_or_nil(history->unshared_bytes)}, {"p_value", rounded(verdict->p_value, 1e6)},
        {"noise_bytes", integer_or_nil(memory->noise.white * 1048576.0)},
        {"step_bytes", integer_or_nil(verdict->step_bytes)},
        {"ends_near_bytes", integer_or_nil(verdict->ends_near_bytes)});
    uint64_t first, last;
    int64_t change;

    if (rings == NULL || !memscope_rings_span(rings, &first, &last))
        return hash;
    if (memscope_history_change(rings, MEMSCOPE_HISTORY_rss, first, &change))
        memscope_hash_set(hash, "grown_bytes", LL2NUM(change));
    if (isfinite(verdict->since_seconds) &&
        memscope_history_change(rings, MEMSCOPE_HISTORY_requests, (uint64_t)verdict->since_seconds, &change))
        memscope_hash_set(hash, "requests", LL2NUM(change));
    return hash;
}

/* Seconds from now until the needed epochs have ended. Before the first epoch has ended: seconds from its beginning. */
static double until_complete(const struct memscope_history *history, double now, double needs) {
    double length = history->epoch_seconds;

    if (history->ended == 0 || !isfinite(needs))
        return needs;
    return fmax(needs - fmin(fmax(now - (double)history->ended, -length), length), 1);
}

static VALUE verdict_to_hash(const struct memscope_history *history, double now, const struct memscope_verdict *verdict,
                             const struct memscope_verdict_memory *memory) {
    struct memscope_verdict_figures figures = verdict->verdict_figures;
    bool grows = verdict->layer != MEMSCOPE_LAYER_NONE, steps = verdict->kind == MEMSCOPE_VERDICT_STEP;
    VALUE hash;

    figures.needs_seconds = until_complete(history, now, verdict->needs_seconds);
    figures.confidence = round(verdict->confidence * 1e4) / 1e4;
    hash = memscope_verdict_figures_hash(&figures);
    memscope_hash_add(hash, {"verdict", memscope_symbol(kinds[verdict->kind])},
                      {"layer", grows ? memscope_symbol(layers[verdict->layer]) : Qnil},
                      {"shares", shares_to_hash(verdict)},
                      {"since", time_or_nil(steps ? verdict->step_seconds : verdict->since_seconds)},
                      {"evidence", evidence_to_hash(history, verdict, memory)});
    set_growth(hash);
    return hash;
}

/* Judges the last epochs in turn: one, or all that began in the last `replayed` seconds. */
static enum memscope_status judge(const struct memscope_history *history, double replayed,
                                  struct memscope_verdict_memory *memory, struct memscope_verdict *verdict) {
    struct memscope_trend trend = history->trend;
    enum memscope_status status = MEMSCOPE_OK;
    size_t count = trend.count;

    while (trend.count > 1 && trend.seconds[trend.count - 2] >= trend.seconds[count - 1] - replayed)
        trend.count--;
    for (; status == MEMSCOPE_OK && trend.count <= count; trend.count++)
        status = memscope_verdict_judge(&trend, memory, verdict);
    return status;
}

/*
 * Native.judge(spacing, limit, working_set, now, replayed) -> the fields of a verdict.
 *
 * spacing: seconds between the samples of a series, by its name. limit, working_set: bytes, 0 for none. now: seconds of
 * CLOCK_BOOTTIME. replayed: nil continues from this process's last verdict, a number judges from scratch each epoch of
 * so many seconds.
 */
VALUE native_judge(VALUE self, VALUE spacing, VALUE limit, VALUE working_set, VALUE now, VALUE replayed) {
    struct memscope_verdict_memory fresh = {0}, *memory = NIL_P(replayed) ? memory_of_this_process() : &fresh;
    struct memscope_verdict verdict;
    struct memscope_history history = {0};
    struct memscope_scratch scratch;
    unsigned apart[MEMSCOPE_HISTORY_SERIES];
    double limit_bytes = NUM2DBL(limit), used_bytes = NUM2DBL(working_set), moment = NUM2DBL(now);
    double seconds = NIL_P(replayed) ? 0 : NUM2DBL(replayed);
    uint64_t begun_ns = memscope_now_ns();
    enum memscope_status status;
    VALUE reasons;

    for (size_t series = 0; series < MEMSCOPE_HISTORY_SERIES; series++)
        apart[series] = (unsigned)memscope_hash_get_size(spacing, memscope_history_names[series]);
    memscope_verdict_judge(&history.trend, &(struct memscope_verdict_memory){0}, &verdict); /* of nothing */
    status = memscope_scratch_open(&scratch);
    if (status == MEMSCOPE_OK)
        status = memscope_history_take(memscope_rings_of_this_process(), apart, &scratch, &history);
    history.trend.limit_bytes = limit_bytes;
    history.trend.working_set_bytes = used_bytes;
    if (status == MEMSCOPE_OK)
        status = judge(&history, seconds, memory, &verdict);
    memscope_scratch_close(&scratch);
    reasons = reasons_to_hash(&history);
    if (status != MEMSCOPE_OK)
        memscope_hash_set(reasons, "verdict", memscope_status_reason(status));
    return memscope_finish(verdict_to_hash(&history, moment, &verdict, memory), reasons, "T1", begun_ns, 0, 0);
}
