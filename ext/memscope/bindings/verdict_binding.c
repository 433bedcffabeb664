/*
 * Native.judge: the verdict over series of numbers.
 *
 * What one judgement leaves for the next belongs to one process: a forked child begins without it. All uses hold the
 * GVL; a judgement of 2,000 values takes 100 µs.
 */
#include "bindings/reasons.h"

#include "init.h"
#include "trend/verdict.h"

#include <math.h>
#include <unistd.h>

static const char *const kinds[] = {"insufficient", "steady", "plateau", "step", "leak"};
static const char *const layers[MEMSCOPE_LAYERS] = {"objects", "native",        "fragmentation", "threads",
                                                    "code",    "copy_on_write", "unattributed"};

static struct memscope_verdict_memory *memory_of_this_process(void) {
    static struct memscope_verdict_memory memory;
    static pid_t owner;

    if (owner != getpid()) {
        memory = (struct memscope_verdict_memory){0};
        owner = getpid();
    }
    return &memory;
}

/* Fills and returns the next `count` numbers of `*room`, which it moves past them. */
static const double *take(VALUE list, size_t count, double **room) {
    double *numbers = *room;

    if ((size_t)RARRAY_LEN(list) != count)
        rb_raise(rb_eArgError, "Native.judge: given %ld values, allowed: %zu, as many as times", RARRAY_LEN(list),
                 count);
    for (size_t index = 0; index < count; index++)
        numbers[index] = NUM2DBL(RARRAY_AREF(list, (long)index));
    *room += count;
    return numbers;
}

static VALUE number_or_nil(double number) {
    return isfinite(number) ? DBL2NUM(number) : Qnil;
}

static VALUE shares_to_hash(const struct memscope_verdict *verdict) {
    VALUE hash = rb_hash_new();

    for (int layer = 0; layer < MEMSCOPE_LAYERS; layer++)
        memscope_hash_set(hash, layers[layer], DBL2NUM(verdict->shares[layer]));
    return hash;
}

static VALUE verdict_to_hash(const struct memscope_verdict *verdict, const struct memscope_verdict_memory *memory) {
    VALUE hash = rb_hash_new();

    memscope_hash_set(hash, "kind", memscope_symbol(kinds[verdict->kind]));
    memscope_hash_set(hash, "layer",
                      verdict->layer == MEMSCOPE_LAYER_NONE ? Qnil : memscope_symbol(layers[verdict->layer]));
    memscope_hash_set(hash, "shares", shares_to_hash(verdict));
    memscope_hash_set(hash, "bytes_per_hour", number_or_nil(verdict->bytes_per_hour));
    memscope_hash_set(hash, "bytes_per_hour_low", number_or_nil(verdict->bytes_per_hour_low));
    memscope_hash_set(hash, "bytes_per_hour_high", number_or_nil(verdict->bytes_per_hour_high));
    memscope_hash_set(hash, "since", number_or_nil(verdict->since_seconds));
    memscope_hash_set(hash, "eta_seconds", number_or_nil(verdict->eta_seconds));
    memscope_hash_set(hash, "eta_seconds_low", number_or_nil(verdict->eta_seconds_low));
    memscope_hash_set(hash, "eta_seconds_high", number_or_nil(verdict->eta_seconds_high));
    memscope_hash_set(hash, "needs_seconds", number_or_nil(verdict->needs_seconds));
    memscope_hash_set(hash, "detectable_bytes_per_hour", number_or_nil(verdict->detectable_bytes_per_hour));
    memscope_hash_set(hash, "ends_near_bytes", number_or_nil(verdict->ends_near_bytes));
    memscope_hash_set(hash, "step_at", number_or_nil(verdict->step_seconds));
    memscope_hash_set(hash, "step_bytes", number_or_nil(verdict->step_bytes));
    memscope_hash_set(hash, "confidence", DBL2NUM(verdict->confidence));
    memscope_hash_set(hash, "p_value", DBL2NUM(verdict->p_value));
    memscope_hash_set(hash, "noise_bytes", DBL2NUM(memory->noise.white * 1048576.0));
    return hash;
}

/*
 * Native.judge(seconds, rss, series, room, replayed) -> a Hash, or the reason why there is none.
 *
 * seconds, rss: an Array each; series: for each layer, an Array or nil; room: [limit, working set], 0 for none;
 * replayed: nil continues from this process's last judgement; a number makes that many judgements from scratch, each
 * with one value more.
 */
static VALUE native_judge(VALUE self, VALUE seconds, VALUE rss, VALUE series, VALUE room, VALUE replayed) {
    struct memscope_verdict_memory fresh = {0}, *memory = NIL_P(replayed) ? memory_of_this_process() : &fresh;
    struct memscope_verdict verdict = {0};
    struct memscope_trend trend = {0};
    enum memscope_status status = MEMSCOPE_OK;
    size_t count = (size_t)RARRAY_LEN(seconds), judgements = NIL_P(replayed) ? 1 : NUM2SIZET(replayed);
    VALUE buffer;
    double *numbers = ALLOCV_N(double, buffer, count *(MEMSCOPE_LAYERS + 2) + 1);

    trend.seconds = take(seconds, count, &numbers);
    trend.rss = take(rss, count, &numbers);
    for (long layer = 0; layer < MEMSCOPE_LAYERS; layer++)
        if (!NIL_P(rb_ary_entry(series, layer)))
            trend.layers[layer] = take(rb_ary_entry(series, layer), count, &numbers);
    trend.limit_bytes = NUM2DBL(rb_ary_entry(room, 0));
    trend.working_set_bytes = NUM2DBL(rb_ary_entry(room, 1));
    trend.count = count < judgements ? 0 : count - judgements + 1;
    for (; status == MEMSCOPE_OK && trend.count <= count; trend.count++)
        status = memscope_verdict_judge(&trend, memory, &verdict);
    ALLOCV_END(buffer);
    return status == MEMSCOPE_OK ? verdict_to_hash(&verdict, memory) : memscope_status_reason(status);
}

void Init_memscope_verdict(void) {
    rb_define_singleton_method(rb_mMemscopeNative, "judge", native_judge, 5);
}
