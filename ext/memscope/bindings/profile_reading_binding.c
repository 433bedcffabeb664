/*
 * Native.malloc_profile and profile_inflation: read the samples of the profile.
 */
#include "bindings/profile_binding.h"
#include "bindings/profile_values.h"
#include "bindings/reasons.h"

#include "base/scratch.h"
#include "elf/symbols.h"
#include "init.h"
#include "ruby/sample/interned.h"
#include "ruby/sample/sampled_frames.h"
#include "ruby/sample/stack_reader.h"
#include "sampling/import_sampler.h"
#include "sampling/jemalloc_profile.h"
#include "sampling/native_frames.h"

#include <math.h>

/* ---- frames ----------------------------------------------------------------------------------------------------- */

static VALUE native_frame(struct memscope_symbols *symbols, uint64_t word) {
    struct memscope_symbol symbol;
    VALUE library;
    const char *base;

    if (memscope_symbols_find(symbols, (uintptr_t)word - 1, &symbol) != MEMSCOPE_OK || !symbol.object)
        return memscope_native_frame(rb_sprintf("0x%" PRIx64, word), Qnil);
    library = rb_utf8_str_new_cstr(symbol.object);
    if (symbol.name)
        return memscope_native_frame(rb_utf8_str_new_cstr(symbol.name), library);
    base = strrchr(symbol.object, '/');
    return memscope_native_frame(
        rb_sprintf("%s+0x%" PRIxPTR, base ? base + 1 : symbol.object, (uintptr_t)symbol.offset), library);
}

static VALUE ruby_frame(uint64_t word) {
    VALUE path, name;

    memscope_sampled_frame_names(memscope_word_index(word), &path, &name);
    return memscope_ruby_frame(name, path, memscope_word_line(word));
}

static bool found_room(uint64_t word) {
    switch (memscope_word_kind(word)) {
    case MEMSCOPE_WORD_RUBY:
        return memscope_sampled_frame_is_text(memscope_word_index(word));
    case MEMSCOPE_WORD_STATE:
        return memscope_word_index(word) != MEMSCOPE_STACK_NO_ROOM;
    default:
        return true;
    }
}

static VALUE frame_of(uint64_t word, void *symbols) {
    if (!found_room(word))
        return memscope_state_frame(MEMSCOPE_STACK_NO_ROOM);
    switch (memscope_word_kind(word)) {
    case MEMSCOPE_WORD_RUBY:
        return ruby_frame(word);
    case MEMSCOPE_WORD_STATE:
        return memscope_state_frame((enum memscope_stack_state)memscope_word_index(word));
    default:
        return native_frame(symbols, word);
    }
}

/* ---- stacks ----------------------------------------------------------------------------------------------------- */

static bool stack_found_room(const struct memscope_sampled_stack *stack) {
    for (uint32_t index = 0; index < stack->length; index++)
        if (!found_room(stack->words[index]))
            return false;
    return true;
}

static VALUE stack_hash(struct memscope_profile_frames *frames, const struct memscope_sampled_stack *stack) {
    struct memscope_stack_figures figures = memscope_stack_figures_unknown;
    VALUE list = rb_ary_new_capa((long)stack->length), tag = Qnil, thread = Qnil;

    figures.generation = 0;

    for (uint32_t index = 0; index < stack->length; index++) {
        uint64_t word = stack->words[index];

        if (memscope_word_kind(word) == MEMSCOPE_WORD_TAG)
            tag = memscope_interned_name(word);
        else if (memscope_word_kind(word) == MEMSCOPE_WORD_THREAD)
            thread = memscope_interned_name(word);
        else if (memscope_word_kind(word) == MEMSCOPE_WORD_GENERATION)
            figures.generation = memscope_word_index(word);
        else
            rb_ary_push(list, memscope_number_of_frame(frames, word));
    }
    figures.live_bytes = stack->live_bytes;
    figures.live_objects = stack->live_objects;
    figures.samples = (int64_t)stack->samples;
    figures.error_bytes = sqrt(stack->variance);
    if (stack->allocated_bytes >= 0) {
        figures.allocated_bytes = stack->allocated_bytes;
        figures.allocated_objects = stack->allocated_objects;
        figures.freed_bytes = fmax(0, stack->allocated_bytes - stack->live_bytes);
        figures.freed_objects = fmax(0, stack->allocated_objects - stack->live_objects);
    }
    return memscope_hash_add(memscope_stack_figures_hash(&figures), {"frames", list}, {"tag", tag}, {"thread", thread});
}

/* ---- the reading ------------------------------------------------------------------------------------------------ */

/* One reading. `profile` is a copy made when the reading began: another profile may start while the GVL is released. */
struct scan {
    struct memscope_profile profile;
    uint32_t session;
    struct memscope_scratch scratch;
    struct memscope_sampled_stacks stacks;
    struct memscope_symbols symbols;
    struct memscope_jemalloc_inflation inflation; /* 0 if jemalloc does not sample */
    enum memscope_status status;
    struct memscope_memory memory; /* now, or when the profile stopped */
    uint64_t start_ns;
    size_t table_bytes;
};

static void read_samples(void *argument) {
    struct scan *scan = argument;

    /* Before the reading adds its own memory. */
    scan->memory = scan->profile.running ? memscope_memory_now() : scan->profile.at_end;
    if (scan->profile.backend == MEMSCOPE_BACKEND_IMPORTS) {
        scan->status = memscope_sample_table_read(&scan->scratch, &scan->stacks);
    } else {
        scan->status = memscope_jemalloc_profile_read(&scan->scratch, &scan->stacks);
        if (scan->status == MEMSCOPE_OK)
            scan->inflation = memscope_jemalloc_profile_inflation(&scan->stacks);
    }
    scan->table_bytes = memscope_interned_bytes() + memscope_sampled_frames_bytes() +
                        memscope_native_frames_resident_bytes() +
                        (scan->profile.backend == MEMSCOPE_BACKEND_IMPORTS ? memscope_sample_table_bytes() : 0);
}

static VALUE overhead(const struct scan *scan) {
    struct memscope_stack_readings taken = memscope_stack_readings();
    struct memscope_import_patches patches = memscope_import_sampler_patches();
    struct memscope_sampling_overhead overhead = memscope_sampling_overhead_unknown;

    overhead.samples_taken = taken.count;
    overhead.nanoseconds = (double)taken.nanoseconds;
    overhead.table_bytes = scan->table_bytes;
    overhead.dropped_samples = scan->stacks.dropped_samples;
    overhead.lost_frees = scan->stacks.lost_frees;
    overhead.inflated_bytes = scan->inflation.active;
    if (scan->profile.backend == MEMSCOPE_BACKEND_IMPORTS) {
        overhead.patched_imports = patches.slots;
        overhead.patched_objects = patches.objects;
    }
    return memscope_sampling_overhead_hash(&overhead);
}

/*
 * The reason why the coverage is unknown: the allocator has grown too little to compare, or by less than the live bytes
 * that the samples represent.
 */
static VALUE why_no_coverage(double growth, double live_bytes, double enough) {
    if (live_bytes - growth < enough)
        return memscope_reason("growth_too_small");
    return memscope_reason_of("coverage_contradicted", DBL2NUM((live_bytes - growth) / (1 << 20)));
}

/*
 * The coverage: the part of the allocator's growth since the start that the samples account for. Bytes of sampling
 * itself are not growth: with small blocks, they may be more than the program's.
 */
static void set_coverage(struct memscope_profile_figures *figures, VALUE reasons, const struct scan *scan) {
    const struct memscope_memory *at_start = &scan->profile.at_start;
    double enough = 16 * ldexp(1, (int)scan->profile.rate_log);
    double growth = (double)scan->memory.live_bytes - (double)at_start->live_bytes - (double)scan->inflation.allocated;
    bool known = scan->memory.live_bytes != MEMSCOPE_UNKNOWN && at_start->live_bytes != MEMSCOPE_UNKNOWN;

    if (known)
        figures->allocator_grown_bytes = (int64_t)growth;
    if (scan->memory.rss != MEMSCOPE_UNKNOWN && at_start->rss != MEMSCOPE_UNKNOWN)
        figures->rss_grown_bytes = (int64_t)(scan->memory.rss - at_start->rss);
    figures->allocator_live_bytes = scan->memory.live_bytes;
    if (known && growth >= enough)
        figures->coverage = (double)figures->live_bytes / growth;
    if (scan->memory.live_bytes == MEMSCOPE_UNKNOWN)
        memscope_set_reason(reasons, "allocator_live_bytes", "live_bytes_unknown");
    if (!known)
        memscope_set_reason(reasons, "coverage", "live_bytes_unknown");
    else if (growth < enough)
        memscope_hash_set(reasons, "coverage", why_no_coverage(growth, (double)figures->live_bytes, enough));
}

static void set_stacks(VALUE body, struct memscope_profile_figures *figures, VALUE reasons, struct scan *scan) {
    struct memscope_profile_frames frames = {rb_ary_new(), rb_hash_new(), frame_of, &scan->symbols};
    VALUE list = rb_ary_new_capa((long)scan->stacks.count);
    uint64_t without_room = 0;
    double variance = 0;
    bool all = true;

    figures->live_bytes = figures->samples = 0; /* sums of the numbers that are shown, which are rounded */
    for (size_t index = 0; index < scan->stacks.count; index++) {
        const struct memscope_sampled_stack *stack = &scan->stacks.list[index];

        if (!memscope_is_of_this_session(stack->words, stack->length))
            continue;
        rb_ary_push(list, stack_hash(&frames, stack));
        figures->live_bytes += (int64_t)memscope_rounded(stack->live_bytes);
        variance += stack->variance;
        figures->samples += (int64_t)stack->samples;
        without_room += stack_found_room(stack) ? 0 : stack->samples;
        all = all && stack->allocated_bytes >= 0;
    }
    memscope_hash_add(body, {"frames", frames.list}, {"stacks", list});
    figures->error_bytes = sqrt(variance);
    if (!all)
        memscope_set_reason(reasons, "allocated_bytes", "freed_not_counted");
    if (without_room > 0)
        memscope_set_reason_of(reasons, "stacks", "texts_without_room", ULL2NUM(without_room));
    set_coverage(figures, reasons, scan);
}

static VALUE body_of(VALUE argument) {
    struct scan *scan = (struct scan *)argument;
    const struct memscope_profile *read = &scan->profile;
    struct memscope_profile_figures figures = memscope_profile_figures_unknown;
    VALUE body = rb_hash_new(), reasons = rb_hash_new();
    uint64_t without_gvl_ns = memscope_now_ns() - scan->start_ns;

    memscope_stack_reader_settle();
    figures.backend = memscope_text_of(read->backend == MEMSCOPE_BACKEND_IMPORTS ? "imports" : "jemalloc");
    figures.rate_bytes = UINT64_C(1) << read->rate_log;
    figures.running = read->running;
    figures.started_at = (int64_t)(read->started_ns / 1000000);
    figures.generation = memscope_generation();
    set_stacks(body, &figures, reasons, scan);
    memscope_set_members(body, &memscope_profile_figures_record, &figures, NULL);
    memscope_hash_set(body, "overhead", overhead(scan));
    return memscope_finish(body, reasons, "T2", scan->start_ns, without_gvl_ns, scan->scratch.used);
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

/* Returns Qundef if another thread has started another profile during the reading. */
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
 * Native.malloc_profile(which) -> the running or last profile as a Hash, or the reason why it could not be read.
 * nil if none was started, or if `which`, a session number, is not that of the last profile.
 */
VALUE native_malloc_profile(VALUE self, VALUE which) {
    VALUE body = Qundef;

    while (body == Qundef) {
        struct scan scan = {.profile = memscope_profile, .session = memscope_session(), .start_ns = memscope_now_ns()};

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
    return scan->status == MEMSCOPE_OK ? ULL2NUM(memscope_jemalloc_profile_inflation(&scan->stacks).active) : Qnil;
}

/*
 * Native.profile_inflation -> Integer, the bytes by which sampling itself raises stats.active now, or nil unless a
 * jemalloc profile is running and can be read. Costs as much as reading the profile.
 */
VALUE native_profile_inflation(VALUE self) {
    struct scan scan = {.status = MEMSCOPE_OK};

    if (!memscope_profile.running || memscope_profile.backend != MEMSCOPE_BACKEND_JEMALLOC ||
        memscope_scratch_open(&scan.scratch) != MEMSCOPE_OK)
        return Qnil;
    return rb_ensure(measure_inflation, (VALUE)&scan, close_scan, (VALUE)&scan);
}
