/*
 * Native.malloc_profile and profile_inflation: read the samples of the profile.
 */
#include "bindings/profile_binding.h"
#include "bindings/reasons.h"

#include "base/scratch.h"
#include "elf/symbols.h"
#include "init.h"
#include "malloc/allocator.h"
#include "ruby/interned.h"
#include "ruby/stack_reader.h"
#include "sampling/import_sampler.h"
#include "sampling/jemalloc_profile.h"
#include "sampling/native_frames.h"

#include <math.h>
#include <ruby/debug.h>

/* ---- frames ----------------------------------------------------------------------------------------------------- */

/* list: an Array of Hashes, one per frame; numbers: the index in list, by word and by frame Hash. */
struct frames {
    VALUE list, numbers;
    struct memscope_symbols *symbols;
};

static const char *const state_names[] = {
    [MEMSCOPE_STACK_DURING_GC] = "[during GC]",      [MEMSCOPE_STACK_NO_GVL] = "[no GVL]",
    [MEMSCOPE_STACK_NOT_RUBY] = "[non-Ruby thread]", [MEMSCOPE_STACK_RUBY_ENDED] = "[Ruby has ended]",
    [MEMSCOPE_STACK_NO_FRAMES] = "[no Ruby frames]", [MEMSCOPE_STACK_OVERFLOW] = "[overflow]",
};

static VALUE frame(const char *kind, VALUE name, VALUE path, VALUE lineno, VALUE library) {
    VALUE hash = rb_hash_new();

    memscope_hash_set(hash, "kind", memscope_symbol(kind));
    memscope_hash_set(hash, "name", name);
    memscope_hash_set(hash, "path", path);
    memscope_hash_set(hash, "lineno", lineno);
    memscope_hash_set(hash, "library", library);
    return hash;
}

static VALUE native_frame(struct frames *frames, uint64_t word) {
    struct memscope_symbol symbol;
    VALUE library;
    const char *base;

    if (memscope_symbols_find(frames->symbols, (uintptr_t)word - 1, &symbol) != MEMSCOPE_OK || !symbol.object)
        return frame("native", rb_sprintf("0x%" PRIx64, word), Qnil, Qnil, Qnil);
    library = rb_utf8_str_new_cstr(symbol.object);
    if (symbol.name)
        return frame("native", rb_utf8_str_new_cstr(symbol.name), Qnil, Qnil, library);
    base = strrchr(symbol.object, '/');
    return frame("native", rb_sprintf("%s+0x%" PRIxPTR, base ? base + 1 : symbol.object, (uintptr_t)symbol.offset),
                 Qnil, Qnil, library);
}

static VALUE ruby_frame(uint64_t word) {
    VALUE known = memscope_interned_frame(word), path, name;

    if (NIL_P(known))
        return frame("state", rb_utf8_str_new_cstr("[overflow]"), Qnil, Qnil, Qnil);
    path = rb_profile_frame_absolute_path(known);
    if (NIL_P(path))
        path = rb_profile_frame_path(known);
    name = rb_profile_frame_full_label(known);
    /* A thread's outermost frame, and the frame of an extension being loaded, have no line. */
    if (!RB_TYPE_P(path, T_STRING) || rb_str_equal(path, rb_utf8_str_new_cstr("<cfunc>")) ||
        memscope_word_line(word) == 0)
        path = Qnil;
    return frame("ruby", name, path, NIL_P(path) ? Qnil : UINT2NUM(memscope_word_line(word)), Qnil);
}

static VALUE frame_of(struct frames *frames, uint64_t word) {
    uint32_t state = memscope_word_index(word);

    switch (memscope_word_kind(word)) {
    case MEMSCOPE_WORD_RUBY:
        return ruby_frame(word);
    case MEMSCOPE_WORD_STATE:
        return frame("state", rb_utf8_str_new_cstr(state_names[state]), Qnil, Qnil, Qnil);
    default:
        return native_frame(frames, word);
    }
}

static VALUE number_of_frame(struct frames *frames, uint64_t word) {
    VALUE key = ULL2NUM(word), number = rb_hash_aref(frames->numbers, key), made;

    if (!NIL_P(number))
        return number;
    made = frame_of(frames, word);
    number = rb_hash_aref(frames->numbers, made); /* many addresses are in the same function */
    if (NIL_P(number)) {
        number = LONG2NUM(RARRAY_LEN(frames->list));
        rb_ary_push(frames->list, made);
        rb_hash_aset(frames->numbers, made, number);
    }
    rb_hash_aset(frames->numbers, key, number);
    return number;
}

/* ---- stacks ----------------------------------------------------------------------------------------------------- */

static uint64_t rounded(double value) {
    return value > 0 ? (uint64_t)llround(value) : 0;
}

static VALUE estimate(double value) {
    return ULL2NUM(rounded(value));
}

static VALUE estimate_if(bool known, double value) {
    return known ? estimate(value) : Qnil;
}

static VALUE stack_hash(struct frames *frames, const struct memscope_sampled_stack *stack) {
    VALUE hash = rb_hash_new(), list = rb_ary_new_capa((long)stack->length), tag = Qnil, thread = Qnil;
    bool all = stack->allocated_bytes >= 0;
    uint32_t generation = 0;

    for (uint32_t index = 0; index < stack->length; index++) {
        uint64_t word = stack->words[index];

        if (memscope_word_kind(word) == MEMSCOPE_WORD_TAG)
            tag = memscope_interned_name(word);
        else if (memscope_word_kind(word) == MEMSCOPE_WORD_THREAD)
            thread = memscope_interned_name(word);
        else if (memscope_word_kind(word) == MEMSCOPE_WORD_GENERATION)
            generation = memscope_word_index(word);
        else
            rb_ary_push(list, number_of_frame(frames, word));
    }
    memscope_hash_set(hash, "frames", list);
    memscope_hash_set(hash, "tag", tag);
    memscope_hash_set(hash, "thread", thread);
    memscope_hash_set(hash, "generation", UINT2NUM(generation));
    memscope_hash_set(hash, "live_bytes", estimate(stack->live_bytes));
    memscope_hash_set(hash, "live_objects", estimate(stack->live_objects));
    memscope_hash_set(hash, "samples", ULL2NUM(stack->samples));
    memscope_hash_set(hash, "error_bytes", estimate(sqrt(stack->variance)));
    memscope_hash_set(hash, "allocated_bytes", estimate_if(all, stack->allocated_bytes));
    memscope_hash_set(hash, "allocated_objects", estimate_if(all, stack->allocated_objects));
    memscope_hash_set(hash, "freed_bytes", estimate_if(all, stack->allocated_bytes - stack->live_bytes));
    memscope_hash_set(hash, "freed_objects", estimate_if(all, stack->allocated_objects - stack->live_objects));
    return hash;
}

/* ---- the reading ------------------------------------------------------------------------------------------------ */

/* One reading. profile is a copy from when the reading began: another profile may start while the GVL is released. */
struct scan {
    struct memscope_profile profile;
    uint32_t session;
    struct memscope_scratch scratch;
    struct memscope_sampled_stacks stacks;
    struct memscope_symbols symbols;
    enum memscope_status status;
    bool knows_live_bytes;
    uint64_t live_bytes, wall_ns, gvl_ns;
    size_t table_bytes;
};

static void read_samples(void *argument) {
    struct scan *scan = argument;

    scan->status = scan->profile.backend == MEMSCOPE_BACKEND_IMPORTS
                       ? memscope_sample_table_read(&scan->scratch, &scan->stacks)
                       : memscope_jemalloc_profile_read(&scan->scratch, &scan->stacks);
    scan->knows_live_bytes = memscope_allocator_live_bytes(&scan->live_bytes);
    scan->table_bytes = memscope_interned_bytes() + memscope_native_frames_resident_bytes() +
                        (scan->profile.backend == MEMSCOPE_BACKEND_IMPORTS ? memscope_sample_table_bytes() : 0);
}

static VALUE overhead(const struct scan *scan) {
    struct memscope_stack_readings taken = memscope_stack_readings();
    struct memscope_import_patches patches = memscope_import_sampler_patches();
    bool imports = scan->profile.backend == MEMSCOPE_BACKEND_IMPORTS;
    VALUE hash = rb_hash_new();

    memscope_hash_set(hash, "samples_taken", ULL2NUM(taken.count));
    memscope_hash_set(hash, "nanoseconds", ULL2NUM(taken.nanoseconds));
    memscope_hash_set(hash, "table_bytes", SIZET2NUM(scan->table_bytes));
    memscope_hash_set(hash, "dropped_samples", ULL2NUM(scan->stacks.dropped_samples));
    memscope_hash_set(hash, "lost_frees", ULL2NUM(scan->stacks.lost_frees));
    memscope_hash_set(hash, "inflated_bytes",
                      imports ? INT2FIX(0) : ULL2NUM(memscope_jemalloc_profile_inflation(&scan->stacks)));
    memscope_hash_set(hash, "patched_imports", imports ? SIZET2NUM(patches.slots) : Qnil);
    memscope_hash_set(hash, "patched_objects", imports ? SIZET2NUM(patches.objects) : Qnil);
    return hash;
}

/*
 * Why there is no coverage if the allocator has grown too little to compare: it may even have grown by less than the
 * samples say is live.
 */
static VALUE why_no_coverage(double growth, double live_bytes, double enough) {
    if (live_bytes - growth < enough)
        return memscope_reason("growth_too_small");
    return memscope_reason_of("coverage_contradicted", DBL2NUM((live_bytes - growth) / (1 << 20)));
}

/* The coverage: how much of the allocator's growth since the start the samples account for. */
static void set_coverage(VALUE body, VALUE reasons, const struct scan *scan, uint64_t live_bytes) {
    double enough = 16 * ldexp(1, (int)scan->profile.rate_log);
    double growth = (double)scan->live_bytes - (double)scan->profile.live_bytes_at_start;
    bool known = scan->knows_live_bytes && scan->profile.knows_live_bytes;

    memscope_hash_set(body, "allocator_live_bytes", scan->knows_live_bytes ? ULL2NUM(scan->live_bytes) : Qnil);
    memscope_hash_set(body, "coverage", known && growth >= enough ? DBL2NUM((double)live_bytes / growth) : Qnil);
    if (!scan->knows_live_bytes)
        memscope_set_reason(reasons, "allocator_live_bytes", "live_bytes_unknown");
    if (!known)
        memscope_set_reason(reasons, "coverage", "live_bytes_unknown");
    else if (growth < enough)
        memscope_hash_set(reasons, "coverage", why_no_coverage(growth, (double)live_bytes, enough));
}

static void set_stacks(VALUE body, VALUE reasons, struct scan *scan) {
    struct frames frames = {rb_ary_new(), rb_hash_new(), &scan->symbols};
    VALUE list = rb_ary_new_capa((long)scan->stacks.count);
    uint64_t live_bytes = 0, samples = 0; /* sums of the shown, rounded numbers */
    double variance = 0;
    bool all = true;

    for (size_t index = 0; index < scan->stacks.count; index++) {
        const struct memscope_sampled_stack *stack = &scan->stacks.list[index];

        if (!memscope_is_of_this_session(stack->words, stack->length))
            continue;
        rb_ary_push(list, stack_hash(&frames, stack));
        live_bytes += rounded(stack->live_bytes);
        variance += stack->variance;
        samples += stack->samples;
        all = all && stack->allocated_bytes >= 0;
    }
    memscope_hash_set(body, "frames", frames.list);
    memscope_hash_set(body, "stacks", list);
    memscope_hash_set(body, "live_bytes", ULL2NUM(live_bytes));
    memscope_hash_set(body, "samples", ULL2NUM(samples));
    memscope_hash_set(body, "error_bytes", estimate(sqrt(variance)));
    if (!all)
        memscope_set_reason(reasons, "allocated_bytes", "freed_not_counted");
    set_coverage(body, reasons, scan, live_bytes);
}

static VALUE body_of(VALUE argument) {
    struct scan *scan = (struct scan *)argument;
    const struct memscope_profile *read = &scan->profile;
    VALUE body = rb_hash_new(), reasons = rb_hash_new();
    uint64_t start = memscope_now_ns();

    memscope_hash_set(body, "backend",
                      memscope_symbol(read->backend == MEMSCOPE_BACKEND_IMPORTS ? "imports" : "jemalloc"));
    memscope_hash_set(body, "rate_bytes", ULL2NUM(UINT64_C(1) << read->rate_log));
    memscope_hash_set(body, "running", read->running ? Qtrue : Qfalse);
    memscope_hash_set(body, "started_at", LL2NUM(read->started_at));
    memscope_hash_set(body, "generation", UINT2NUM(memscope_generation()));
    set_stacks(body, reasons, scan);
    memscope_hash_set(body, "overhead", overhead(scan));
    memscope_hash_set(body, "reasons", reasons);
    scan->gvl_ns += memscope_now_ns() - start;
    memscope_hash_set(body, "cost",
                      memscope_cost("T2", memscope_now_ns() - scan->wall_ns, scan->gvl_ns, scan->scratch.used));
    return body;
}

static VALUE close_scan(VALUE argument) {
    struct scan *scan = (struct scan *)argument;

    memscope_symbols_close(&scan->symbols);
    memscope_scratch_close(&scan->scratch);
    return Qnil;
}

/* Under jemalloc, the reason also lists the requirements: jemalloc reports its counts only by writing a file. */
static VALUE why_unreadable(const struct scan *scan) {
    VALUE status = memscope_status_reason(scan->status);

    return scan->profile.backend == MEMSCOPE_BACKEND_JEMALLOC ? memscope_reason_of("profile_unread", status) : status;
}

/* Returns Qundef if another thread has started another profile meanwhile. */
static VALUE read_profile(VALUE argument) {
    struct scan *scan = (struct scan *)argument;
    VALUE body;

    if (memscope_profile.running && memscope_profile.backend == MEMSCOPE_BACKEND_IMPORTS)
        memscope_import_sampler_patch_new();
    memscope_without_gvl(read_samples, scan);
    if (scan->session != memscope_session())
        return Qundef;
    if (scan->status != MEMSCOPE_OK)
        return why_unreadable(scan);
    scan->status = memscope_symbols_open(&scan->symbols);
    if (scan->status != MEMSCOPE_OK)
        return memscope_status_reason(scan->status);
    body = body_of(argument);
    return scan->session == memscope_session() ? body : Qundef;
}

/*
 * Native.malloc_profile(which = nil) -> the profile that runs or ran last, as a Hash; or the reason why it could not be
 * read; nil if none was started, or if which (a session number) is no longer the last one.
 */
static VALUE native_malloc_profile(int count, VALUE *arguments, VALUE self) {
    VALUE body = Qundef, which = rb_check_arity(count, 0, 1) == 1 ? arguments[0] : Qnil;

    while (body == Qundef) {
        struct scan scan = {.profile = memscope_profile, .session = memscope_session(), .wall_ns = memscope_now_ns()};

        if (memscope_profile.backend == MEMSCOPE_BACKEND_NONE || (!NIL_P(which) && NUM2UINT(which) != scan.session))
            return Qnil;
        if (memscope_scratch_open(&scan.scratch) != MEMSCOPE_OK)
            return memscope_status_reason(MEMSCOPE_NO_MEMORY);
        body = rb_ensure(read_profile, (VALUE)&scan, close_scan, (VALUE)&scan);
    }
    return body;
}

static void measure(void *argument) {
    struct scan *scan = argument;

    scan->status = memscope_jemalloc_profile_read(&scan->scratch, &scan->stacks);
}

static VALUE measure_inflation(VALUE argument) {
    struct scan *scan = (struct scan *)argument;

    memscope_without_gvl(measure, scan);
    return scan->status == MEMSCOPE_OK ? ULL2NUM(memscope_jemalloc_profile_inflation(&scan->stacks)) : Qnil;
}

/*
 * Native.profile_inflation -> Integer, the bytes by which sampling itself raises stats.active now; nil unless a
 * jemalloc profile is running and can be read. Costs as much as reading the profile.
 */
static VALUE native_profile_inflation(VALUE self) {
    struct scan scan = {.status = MEMSCOPE_OK};

    if (!memscope_profile.running || memscope_profile.backend != MEMSCOPE_BACKEND_JEMALLOC ||
        memscope_scratch_open(&scan.scratch) != MEMSCOPE_OK)
        return Qnil;
    return rb_ensure(measure_inflation, (VALUE)&scan, close_scan, (VALUE)&scan);
}

void Init_memscope_profile_reading(void) {
    rb_define_singleton_method(rb_mMemscopeNative, "malloc_profile", native_malloc_profile, -1);
    rb_define_singleton_method(rb_mMemscopeNative, "profile_inflation", native_profile_inflation, 0);
}
