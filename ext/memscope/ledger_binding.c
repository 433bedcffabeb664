/*
 * Memscope::Native.ledger: lists Ruby's heap pages under the GVL, lets the engine read without it, and turns its struct
 * into the body of a Ledger. No Ruby object is made before the last number is read.
 */
#include "memscope.h"

#include <ruby/thread.h>

#include "allocator.h"
#include "ledger.h"
#include "ruby_heap.h"

struct ledger_reading {
    bool strict;
    bool objects;
    struct memscope_held_memory held;
    bool other_ractors; /* alive: they allocate and collect without this GVL */
    struct memscope_heap_listing listing;
    struct memscope_ruby_layout layout;
    struct memscope_ledger_request request;
    struct memscope_ledger ledger;
    enum memscope_status status;
    uint64_t wall_ns, gvl_ns;
};

/* ---- reading -------------------------------------------------------------------------------------------------- */

static enum memscope_ledger_malloc malloc_kind(void) {
    const struct memscope_allocator *allocator = memscope_allocator_current();

    if (allocator->proved && allocator->name == MEMSCOPE_ALLOCATOR_GLIBC)
        return MEMSCOPE_LEDGER_MALLOC_GLIBC;
    if (allocator->proved && allocator->name == MEMSCOPE_ALLOCATOR_JEMALLOC)
        return MEMSCOPE_LEDGER_MALLOC_JEMALLOC;
    return MEMSCOPE_LEDGER_MALLOC_OTHER;
}

static void *read_without_gvl(void *argument) {
    struct ledger_reading *reading = argument;

    reading->status = memscope_ledger_read(&reading->request, &reading->ledger);
    return NULL;
}

static void take_reading(struct ledger_reading *reading) {
    uint64_t start = memscope_now_ns();

    reading->other_ractors = memscope_other_ractors();
    memscope_heap_list(&reading->listing, MEMSCOPE_SLOTS_FROM_HEADERS);
    memscope_ruby_layout(&reading->listing, &reading->layout);
    if (reading->objects)
        memscope_heap_held_memory(&reading->held);
    reading->request.malloc = malloc_kind();
    reading->request.ruby = &reading->layout;
    reading->gvl_ns = memscope_now_ns() - start;
    if (reading->strict)
        read_without_gvl(reading);
    else
        rb_thread_call_without_gvl(read_without_gvl, reading, NULL, NULL);
    reading->wall_ns = memscope_now_ns() - start;
    if (reading->strict)
        reading->gvl_ns = reading->wall_ns;
}

/* ---- rows ----------------------------------------------------------------------------------------------------- */

static bool is_counted_by_jemalloc(enum memscope_row row) {
    return row >= MEMSCOPE_ROW_in_use && row <= MEMSCOPE_ROW_not_resident;
}

static bool is_found_by_chunks(enum memscope_row row) {
    return (row >= MEMSCOPE_ROW_main_heap_in_use && row <= MEMSCOPE_ROW_main_heap_unwalked) ||
           (row >= MEMSCOPE_ROW_arenas_in_use && row <= MEMSCOPE_ROW_arenas_unwalked) ||
           row == MEMSCOPE_ROW_mmapped_in_use;
}

/* Whether this process can have the row at all; one that can and has nothing is there with 0 bytes. */
static bool applies(const struct ledger_reading *reading, enum memscope_row row) {
    switch (row) {
    case MEMSCOPE_ROW_main_heap:
    case MEMSCOPE_ROW_arenas:
    case MEMSCOPE_ROW_mmapped:
        return reading->request.malloc == MEMSCOPE_LEDGER_MALLOC_GLIBC;
    case MEMSCOPE_ROW_transient_heap:
        return reading->layout.transient_heap_bytes > 0;
    case MEMSCOPE_ROW_shape_tables:
        return reading->layout.shape_list_bytes > 0;
    default:
        if (is_counted_by_jemalloc(row))
            return reading->ledger.jemalloc_status == MEMSCOPE_OK;
        return !is_found_by_chunks(row) || reading->ledger.walked_chunks;
    }
}

/* Rows that are counters or chunks, not pages: what of them is shared is known of the row above them only. */
static bool shares_known(const struct ledger_reading *reading, enum memscope_row row) {
    return reading->ledger.shared_status == MEMSCOPE_OK && !is_counted_by_jemalloc(row) && !is_found_by_chunks(row);
}

static VALUE stranger_hash(const struct memscope_ledger_stranger *stranger) {
    const struct memscope_mapping *mapping = stranger->mapping;
    char permissions[] = {mapping->readable ? 'r' : '-', mapping->writable ? 'w' : '-', mapping->executable ? 'x' : '-',
                          mapping->shared ? 's' : 'p'};
    VALUE hash = rb_hash_new();

    memscope_hash_set(hash, "start", ULL2NUM(mapping->start));
    memscope_hash_set(hash, "end", ULL2NUM(mapping->end));
    memscope_hash_set(hash, "resident_bytes", ULL2NUM(stranger->bytes));
    memscope_hash_set(hash, "permissions", rb_str_new(permissions, sizeof permissions));
    memscope_hash_set(hash, "name", rb_str_new_cstr(mapping->name));
    return hash;
}

static void add_strangers(VALUE detail, const struct memscope_ledger *ledger) {
    VALUE list = rb_ary_new();

    for (size_t index = 0; index < ledger->stranger_count; index++)
        rb_ary_push(list, stranger_hash(&ledger->strangers[index]));
    memscope_hash_set(detail, "mappings", list);
    memscope_hash_set(detail, "unmapped_bytes", ULL2NUM(ledger->unmapped_bytes));
    if (ledger->foreign_noreserve_bytes > 0)
        memscope_hash_set(detail, "uncounted_by_jemalloc_bytes", ULL2NUM(ledger->foreign_noreserve_bytes));
}

static void add_ruby_heap_counts(VALUE detail, const struct ledger_reading *reading) {
    size_t live = 0, slots = 0;

    for (size_t index = 0; index < reading->listing.count; index++) {
        live += reading->listing.pages[index].live_count;
        slots += reading->listing.pages[index].slot_count;
    }
    memscope_hash_set(detail, "pages", SIZET2NUM(reading->listing.count));
    memscope_hash_set(detail, "slots", SIZET2NUM(slots));
    memscope_hash_set(detail, "live_slots", SIZET2NUM(live));
    memscope_hash_set(detail, "partly_resident_pages", ULL2NUM(reading->ledger.heap_pages_partly_resident));
}

/* Bytes that malloc has given out, whatever of them is resident; false where this reading does not know. */
static bool malloc_in_use(const struct ledger_reading *reading, uint64_t *bytes) {
    const struct memscope_ledger *ledger = &reading->ledger;

    if (ledger->jemalloc_status == MEMSCOPE_OK)
        *bytes =
            ledger->jemalloc.allocated_bytes - ledger->jemalloc.tcache_bytes - ledger->jemalloc.tcache_stashed_bytes;
    else if (ledger->walked_chunks)
        *bytes = ledger->main_heap.in_use.bytes + ledger->arenas.in_use.bytes + ledger->glibc.mmapped_bytes;
    else
        return false;
    return true;
}

static void add_malloc_counts(VALUE detail, const struct ledger_reading *reading) {
    const struct memscope_ledger *ledger = &reading->ledger;
    uint64_t in_use;

    if (ledger->walked_chunks)
        memscope_hash_set(detail, "trimmable_bytes",
                          ULL2NUM(ledger->main_heap.trimmable_bytes + ledger->arenas.trimmable_bytes));
    if (!malloc_in_use(reading, &in_use))
        return;
    memscope_hash_set(detail, "in_use_bytes", ULL2NUM(in_use));
    if (!reading->held.known)
        return;
    memscope_hash_set(detail, "held_by_objects_bytes", ULL2NUM(reading->held.bytes));
    memscope_hash_set(detail, "held_by_nobody_bytes", LL2NUM((int64_t)in_use - (int64_t)reading->held.bytes));
}

/* The chunks behind a row that the chunk walk found; NULL for every other row. */
static const struct memscope_chunk_sum *chunks_of(const struct memscope_ledger *ledger, enum memscope_row row) {
    const struct memscope_chunk_totals *totals = row < MEMSCOPE_ROW_arenas ? &ledger->main_heap : &ledger->arenas;

    switch (row) {
    case MEMSCOPE_ROW_main_heap_in_use:
    case MEMSCOPE_ROW_arenas_in_use:
        return &totals->in_use;
    case MEMSCOPE_ROW_main_heap_free:
    case MEMSCOPE_ROW_arenas_free:
        return &totals->free;
    case MEMSCOPE_ROW_main_heap_thread_caches:
    case MEMSCOPE_ROW_arenas_thread_caches:
        return &totals->cached;
    case MEMSCOPE_ROW_main_heap_top:
    case MEMSCOPE_ROW_arenas_top:
        return &totals->top;
    default:
        return NULL;
    }
}

static void add_chunk_counts(VALUE detail, const struct ledger_reading *reading, enum memscope_row row) {
    const struct memscope_ledger *ledger = &reading->ledger;
    const struct memscope_chunk_sum *sum = chunks_of(ledger, row);

    if (sum != NULL && ledger->walked_chunks) {
        memscope_hash_set(detail, "blocks", ULL2NUM(sum->count));
        memscope_hash_set(detail, "chunk_bytes", ULL2NUM(sum->bytes));
    }
    if (row == MEMSCOPE_ROW_main_heap_free)
        memscope_hash_set(detail, "trimmable_bytes", ULL2NUM(ledger->main_heap.trimmable_bytes));
    if (row == MEMSCOPE_ROW_arenas_free)
        memscope_hash_set(detail, "trimmable_bytes", ULL2NUM(ledger->arenas.trimmable_bytes));
}

static VALUE row_detail(const struct ledger_reading *reading, enum memscope_row row) {
    const struct memscope_ledger *ledger = &reading->ledger;
    VALUE detail = rb_hash_new();

    switch (row) {
    case MEMSCOPE_ROW_ruby_heap:
        add_ruby_heap_counts(detail, reading);
        break;
    case MEMSCOPE_ROW_malloc:
        add_malloc_counts(detail, reading);
        break;
    case MEMSCOPE_ROW_empty_pages:
        memscope_hash_set(detail, "pages", ULL2NUM(ledger->ruby.empty_pages_found));
        break;
    case MEMSCOPE_ROW_arenas:
        memscope_hash_set(detail, "arenas", ULL2NUM(ledger->glibc.arena_count));
        memscope_hash_set(detail, "heaps", ULL2NUM(ledger->glibc.arena_heap_count));
        break;
    case MEMSCOPE_ROW_mmapped:
        memscope_hash_set(detail, "blocks", ULL2NUM(ledger->glibc.mmapped_chunk_count));
        memscope_hash_set(detail, "mapped_bytes", ULL2NUM(ledger->glibc.mmapped_bytes));
        break;
    case MEMSCOPE_ROW_threads:
        memscope_hash_set(detail, "live", ULL2NUM(ledger->stacks.live_threads));
        memscope_hash_set(detail, "cached", ULL2NUM(ledger->stacks.cached_stacks));
        break;
    case MEMSCOPE_ROW_fibers:
        memscope_hash_set(detail, "stacks", ULL2NUM(ledger->stacks.fiber_stacks));
        break;
    case MEMSCOPE_ROW_not_resident:
        if (ledger->bytes[row] < 0)
            memscope_hash_set(detail, "why", rb_str_new_cstr("counted above, never touched"));
        break;
    case MEMSCOPE_ROW_unattributed:
        add_strangers(detail, ledger);
        break;
    default:
        add_chunk_counts(detail, reading, row);
        if (memscope_row_definitions[row].parent != MEMSCOPE_ROW_files)
            break;
        memscope_hash_set(detail, "text_bytes", LL2NUM(ledger->bytes[row] - (int64_t)ledger->written_bytes[row]));
        memscope_hash_set(detail, "data_bytes", ULL2NUM(ledger->written_bytes[row]));
    }
    return detail;
}

static VALUE check_hash(const char *source, uint64_t expected, uint64_t actual) {
    VALUE check = rb_hash_new();

    memscope_hash_set(check, "source", rb_str_new_cstr(source));
    memscope_hash_set(check, "expected_bytes", ULL2NUM(expected));
    memscope_hash_set(check, "actual_bytes", ULL2NUM(actual));
    memscope_hash_set(check, "verified", expected == actual ? Qtrue : Qfalse);
    return check;
}

/* Each check counts address space: what one side says it mapped against what was found. */
static VALUE row_check(const struct ledger_reading *reading, enum memscope_row row) {
    const struct memscope_ledger *ledger = &reading->ledger;
    uint64_t page = reading->listing.page_bytes;

    if (row == MEMSCOPE_ROW_malloc && ledger->jemalloc_status == MEMSCOPE_OK)
        return check_hash("jemalloc stats.mapped + stats.retained", memscope_ledger_jemalloc_expected(ledger),
                          ledger->noreserve_bytes);
    if (row == MEMSCOPE_ROW_ruby_heap && page > 0)
        return check_hash("GC.stat heap_allocated_pages", reading->listing.allocated_pages * page,
                          (reading->listing.count + ledger->ruby.empty_pages_found) * page);
    if (row == MEMSCOPE_ROW_empty_pages && page > 0)
        return check_hash("GC.stat empty pages", reading->listing.empty_pages * page,
                          ledger->ruby.empty_pages_found * page);
    return Qnil;
}

static VALUE row_label(const struct ledger_reading *reading, enum memscope_row row) {
    const char *label = memscope_row_definitions[row].label;

    if (row == MEMSCOPE_ROW_malloc)
        return rb_sprintf("%s (%s)", label, memscope_allocator_name_text(memscope_allocator_current()->name));
    return rb_str_new_cstr(label);
}

static VALUE row_list(const struct ledger_reading *reading, enum memscope_row parent);

static VALUE row_hash(const struct ledger_reading *reading, enum memscope_row row) {
    VALUE hash = rb_hash_new();

    memscope_hash_set(hash, "id", memscope_symbol(memscope_row_definitions[row].id));
    memscope_hash_set(hash, "label", row_label(reading, row));
    memscope_hash_set(hash, "bytes", LL2NUM(memscope_ledger_row_bytes(&reading->ledger, row)));
    if (reading->request.shared) {
        bool known = shares_known(reading, row);
        uint64_t shared = memscope_ledger_row_shared_bytes(&reading->ledger, row);

        memscope_hash_set(hash, "shared_bytes", known ? ULL2NUM(shared) : Qnil);
        memscope_hash_set(hash, "private_bytes",
                          known ? LL2NUM(memscope_ledger_row_bytes(&reading->ledger, row) - (int64_t)shared) : Qnil);
    }
    memscope_hash_set(hash, "detail", row_detail(reading, row));
    memscope_hash_set(hash, "check", row_check(reading, row));
    memscope_hash_set(hash, "children", row_list(reading, row));
    return hash;
}

static VALUE row_list(const struct ledger_reading *reading, enum memscope_row parent) {
    VALUE list = rb_ary_new();

    for (int row = 0; row < MEMSCOPE_ROW_COUNT; row++)
        if (memscope_row_definitions[row].parent == parent && applies(reading, (enum memscope_row)row))
            rb_ary_push(list, row_hash(reading, (enum memscope_row)row));
    return list;
}

/* ---- reasons -------------------------------------------------------------------------------------------------- */

static void add_reason(VALUE reasons, const char *id, VALUE text) {
    memscope_hash_set(reasons, id, text);
}

static void add_residency_reason(VALUE reasons, const struct memscope_residency *residency) {
    const char *why = memscope_status_text(residency->refusal);

    if (residency->source == MEMSCOPE_RESIDENCY_PAGEMAP)
        add_reason(reasons, "source",
                   rb_sprintf("ioctl PAGEMAP_SCAN is %s (Linux 6.7 has it): pages are read from /proc/self/pagemap, "
                              "which is as exact and slower",
                              why));
    else if (residency->source == MEMSCOPE_RESIDENCY_SMAPS)
        add_reason(reasons, "source",
                   rb_sprintf("/proc/self/pagemap is %s: only each mapping's resident bytes are known, and what lies "
                              "in a mapping of several owners is unattributed beyond what must be theirs",
                              why));
}

static void add_malloc_reason(VALUE reasons, const struct ledger_reading *reading) {
    const struct memscope_allocator *allocator = memscope_allocator_current();

    if (reading->request.malloc == MEMSCOPE_LEDGER_MALLOC_OTHER)
        add_reason(reasons, "malloc",
                   rb_sprintf("the memory of this allocator (%s) cannot be told from other anonymous memory: it is "
                              "unattributed. %s",
                              memscope_allocator_name_text(allocator->name), allocator->proof));
    else if (reading->request.malloc == MEMSCOPE_LEDGER_MALLOC_JEMALLOC &&
             reading->ledger.jemalloc_status != MEMSCOPE_OK)
        add_reason(reasons, "malloc",
                   rb_str_new_cstr("this jemalloc has no statistics (config.stats), so that nothing proves which "
                                   "mappings are its: they are unattributed"));
}

/* What was asked for beyond the plain ledger and could not be had. */
static void add_option_reasons(VALUE reasons, const struct ledger_reading *reading) {
    const struct memscope_ledger *ledger = &reading->ledger;
    uint64_t in_use;

    if (reading->request.deep && reading->request.malloc == MEMSCOPE_LEDGER_MALLOC_JEMALLOC)
        add_reason(reasons, "deep", rb_str_new_cstr("jemalloc counts what it holds: there is nothing to walk"));
    else if (reading->request.deep && !ledger->walked_chunks)
        add_reason(reasons, "deep",
                   rb_str_new_cstr("chunks are walked under glibc's malloc, where resident pages and this process's "
                                   "own memory can be read"));
    else if (reading->request.deep && !memscope_glibc_knows_cache_key())
        add_reason(reasons, "thread_caches",
                   rb_str_new_cstr("this glibc does not mark cached chunks: they count as in use"));
    if (reading->request.shared && ledger->shared_status != MEMSCOPE_OK)
        add_reason(reasons, "shared",
                   rb_sprintf("/proc/self/pagemap: %s", memscope_status_text(ledger->shared_status)));
    if (reading->objects && !reading->held.known)
        add_reason(reasons, "objects",
                   rb_str_new_cstr("objects cannot be walked in this Ruby, or beside other Ractors"));
    else if (reading->objects && !malloc_in_use(reading, &in_use))
        add_reason(reasons, "objects", rb_str_new_cstr("what malloc has given out is known with deep: true"));
}

static VALUE reasons_hash(const struct ledger_reading *reading) {
    const struct memscope_ledger *ledger = &reading->ledger;
    VALUE reasons = rb_hash_new();

    if (reading->status != MEMSCOPE_OK) {
        add_reason(reasons, "rss_bytes",
                   rb_sprintf("/proc/self/maps and smaps: %s", memscope_status_text(reading->status)));
        return reasons;
    }
    add_residency_reason(reasons, &ledger->residency);
    add_malloc_reason(reasons, reading);
    add_option_reasons(reasons, reading);
    if (reading->listing.refusal != NULL)
        add_reason(reasons, "ruby_heap", rb_str_new_cstr(reading->listing.refusal));
    else if (reading->listing.finished_gc)
        add_reason(reasons, "ruby_heap",
                   rb_str_new_cstr("listing the heap pages finished a garbage collection that was under way: this "
                                   "Ruby has no way around it"));
    if (reading->other_ractors)
        add_reason(
            reasons, "ractors",
            rb_str_new_cstr("other Ractors are alive: they run beside this reading, and the Ruby rows are coarse"));
    if (ledger->stacks_status != MEMSCOPE_OK)
        add_reason(reasons, "threads",
                   rb_sprintf("thread stacks: %s, so that they are unattributed",
                              memscope_status_text(ledger->stacks_status)));
    if (ledger->own_memory_status != MEMSCOPE_OK)
        add_reason(reasons, "own_memory",
                   rb_sprintf("process_vm_readv and /proc/self/mem: %s; arenas, mmapped blocks and thread stacks are "
                              "unattributed",
                              memscope_status_text(ledger->own_memory_status)));
    if (ledger->foreign_noreserve_bytes > 0)
        add_reason(reasons, "unattributed",
                   rb_str_new_cstr("some mapping looks like jemalloc's and is not; what jemalloc does not count is "
                                   "unattributed"));
    return reasons;
}

/* ---- the body of a Ledger ------------------------------------------------------------------------------------- */

static VALUE source_symbol(enum memscope_residency_source source) {
    static const char *const names[] = {
        [MEMSCOPE_RESIDENCY_NONE] = "none",
        [MEMSCOPE_RESIDENCY_SMAPS] = "smaps",
        [MEMSCOPE_RESIDENCY_PAGEMAP] = "pagemap",
        [MEMSCOPE_RESIDENCY_PAGEMAP_SCAN] = "pagemap_scan",
    };

    return memscope_symbol(names[source]);
}

static VALUE ledger_body(const struct ledger_reading *reading) {
    const struct memscope_ledger *ledger = &reading->ledger;
    bool read = reading->status == MEMSCOPE_OK;
    bool statm = read && ledger->statm_status == MEMSCOPE_OK;
    VALUE hash = rb_hash_new();

    memscope_hash_set(hash, "rss_bytes", read ? ULL2NUM(ledger->residency.resident_bytes) : Qnil);
    memscope_hash_set(hash, "source", source_symbol(read ? ledger->residency.source : MEMSCOPE_RESIDENCY_NONE));
    memscope_hash_set(hash, "statm_before_bytes", statm ? ULL2NUM(ledger->statm_before.resident_bytes) : Qnil);
    memscope_hash_set(hash, "statm_after_bytes", statm ? ULL2NUM(ledger->statm_after.resident_bytes) : Qnil);
    memscope_hash_set(hash, "held_by_objects_bytes", reading->held.known ? ULL2NUM(reading->held.bytes) : Qnil);
    memscope_hash_set(hash, "rows", read ? row_list(reading, MEMSCOPE_ROW_top) : rb_ary_new());
    memscope_hash_set(hash, "reasons", reasons_hash(reading));
    memscope_hash_set(
        hash, "cost",
        memscope_cost("T2", reading->wall_ns, reading->gvl_ns, ledger->scratch_bytes + reading->listing.scratch.used));
    return hash;
}

static VALUE read_ledger(VALUE argument) {
    struct ledger_reading *reading = (struct ledger_reading *)argument;

    take_reading(reading);
    return ledger_body(reading);
}

static VALUE close_ledger(VALUE argument) {
    struct ledger_reading *reading = (struct ledger_reading *)argument;

    memscope_heap_listing_close(&reading->listing);
    memscope_ledger_close(&reading->ledger);
    return Qnil;
}

/*
 * strict: true keeps the GVL throughout, so that no Ruby thread moves anything meanwhile. Without it, an interrupt that
 * arrives while the engine reads is raised after it: rb_ensure gives the scratch memory back.
 */
static VALUE native_ledger(VALUE self, VALUE deep, VALUE shared, VALUE objects, VALUE strict) {
    struct ledger_reading reading = {
        .strict = RTEST(strict), .objects = RTEST(objects), .request = {.deep = RTEST(deep), .shared = RTEST(shared)}};

    return rb_ensure(read_ledger, (VALUE)&reading, close_ledger, (VALUE)&reading);
}

void Init_memscope_ledger(void) {
    if (malloc_kind() == MEMSCOPE_LEDGER_MALLOC_GLIBC)
        memscope_glibc_learn_cache_key();
    rb_define_module_function(rb_mMemscopeNative, "ledger", native_ledger, 4);
}
