#include "bindings/reasons.h"

#include "init.h"
#include "ruby/compaction_bounds.h"
#include "ruby/held_memory.h"
#include "ruby/ruby_heap.h"
#include "ruby/ruby_private.h"

#include <stdlib.h>

static VALUE symbol_old_objects, symbol_allocatable_pages;
static double free_slots_max_ratio;
static size_t free_slots_floor;

struct heap_scan {
    struct memscope_heap_listing listing;
    struct memscope_heap_pins pins;
    struct memscope_slot_sizes sizes;
    bool collect; /* run a full GC first */
    bool finished_gc;
};

/* ---- the reading ---------------------------------------------------------------------------------------------- */

static VALUE tenths_array(const struct memscope_slot_size *size) {
    VALUE array = rb_ary_new_capa(MEMSCOPE_TENTHS);

    for (size_t tenth = 0; tenth < MEMSCOPE_TENTHS; tenth++)
        rb_ary_push(array, SIZET2NUM(size->tenths[tenth]));
    return array;
}

static void set_sums(VALUE hash, const struct memscope_slot_size *size, const struct heap_scan *scan) {
    bool pins = scan->pins.pages != NULL;
    size_t page_bytes = scan->listing.page_bytes;

    memscope_hash_set(hash, "pages", SIZET2NUM(size->pages));
    memscope_hash_set(hash, "hidden_empty_pages", SIZET2NUM(size->hidden_empty_pages));
    memscope_hash_set(hash, "pinned_pages_min", pins ? SIZET2NUM(size->pinned_pages_min) : Qnil);
    memscope_hash_set(hash, "pinned_pages_max", pins ? SIZET2NUM(size->pinned_pages_max) : Qnil);
    memscope_hash_set(hash, "slots", SIZET2NUM(size->slots));
    memscope_hash_set(hash, "live_slots", SIZET2NUM(size->live_slots));
    memscope_hash_set(hash, "free_slots", SIZET2NUM(size->slots - size->live_slots));
    memscope_hash_set(hash, "pages_by_tenths", tenths_array(size));
    memscope_hash_set(hash, "compactable_min_bytes",
                      pins ? SIZET2NUM((size->pages - size->most_pages) * page_bytes) : Qnil);
    memscope_hash_set(hash, "compactable_bytes", SIZET2NUM((size->pages - size->fewest_pages) * page_bytes));
}

static void set_heap(VALUE hash, const struct heap_scan *scan) {
    VALUE list = rb_ary_new();

    for (size_t index = 0; index < scan->sizes.count; index++) {
        const struct memscope_slot_size *size = &scan->sizes.list[index];
        VALUE item = rb_hash_new();

        memscope_hash_set(item, "slot_size", SIZET2NUM(size->resizes.slot_bytes));
        set_sums(item, size, scan);
        rb_ary_push(list, item);
    }
    memscope_hash_set(hash, "slot_sizes", list);
    if (scan->listing.refusal == NULL)
        set_sums(hash, &scan->sizes.total, scan);
}

/* Ruby's own counts, and the inputs of its rule for freeing pages. */
static void set_collector(VALUE hash, const struct heap_scan *scan, VALUE gc_state) {
    const struct memscope_heap_listing *listing = &scan->listing;

    memscope_hash_set(hash, "page_bytes", SIZET2NUM(listing->page_bytes));
    memscope_hash_set(hash, "empty_pages",
                      memscope_counts_empty_pages() && listing->refusal == NULL ? SIZET2NUM(listing->empty_pages)
                                                                                : Qnil);
    memscope_hash_set(hash, "allocatable_pages",
                      NIL_P(symbol_allocatable_pages) ? Qnil : SIZET2NUM(rb_gc_stat(symbol_allocatable_pages)));
    memscope_hash_set(hash, "old_objects", SIZET2NUM(rb_gc_stat(symbol_old_objects)));
    memscope_hash_set(hash, "free_slots_max_ratio", DBL2NUM(free_slots_max_ratio));
    memscope_hash_set(hash, "free_slots_floor", SIZET2NUM(free_slots_floor));
    memscope_hash_set(hash, "collected", scan->collect ? Qtrue : Qfalse);
    memscope_hash_set(hash, "gc_state", rb_sym2str(gc_state));
}

static VALUE reasons_hash(const struct heap_scan *scan) {
    VALUE reasons = rb_hash_new();

    if (scan->listing.refusal != NULL)
        memscope_set_reason(reasons, "pages", scan->listing.refusal);
    else if (scan->pins.refusal != NULL)
        memscope_set_reason(reasons, "pinned_pages_max", scan->pins.refusal);
    if (NIL_P(symbol_allocatable_pages))
        memscope_set_reason(reasons, "allocatable_pages", "allocatable_pages_absent");
    if (scan->finished_gc)
        memscope_set_reason(reasons, "gc_state", "gc_finished");
    return reasons;
}

static VALUE read_heap(VALUE argument) {
    struct heap_scan *scan = (struct heap_scan *)argument;
    VALUE hash, gc_state = rb_gc_latest_gc_info(memscope_symbol("state"));
    uint64_t start = memscope_now_ns(), elapsed;

    if (scan->collect)
        rb_funcall(rb_path2class("GC"), rb_intern("start"), 0); /* rb_gc does nothing while the GC is disabled */
    else
        scan->finished_gc = memscope_heap_finish_gc();
    memscope_heap_list(&scan->listing, MEMSCOPE_SLOTS_WALKED);
    if (scan->listing.refusal == NULL)
        memscope_heap_find_pins(&scan->listing, &scan->pins);
    memscope_slot_sizes_sum(scan->listing.pages, scan->listing.count, &scan->pins, MEMSCOPE_COMPACTS_PINNED_PAGES_FIRST,
                            &scan->sizes);
    elapsed = memscope_now_ns() - start;

    hash = rb_hash_new();
    set_heap(hash, scan);
    set_collector(hash, scan, gc_state);
    memscope_hash_set(hash, "reasons", reasons_hash(scan));
    memscope_hash_set(hash, "cost", memscope_cost("T2", elapsed, elapsed, scan->listing.scratch.used));
    return hash;
}

static VALUE close_heap(VALUE scan) {
    memscope_heap_listing_close(&((struct heap_scan *)scan)->listing);
    return Qnil;
}

static VALUE native_ruby_heap(VALUE self, VALUE collect) {
    struct heap_scan scan = {.collect = RTEST(collect)};

    return rb_ensure(read_heap, (VALUE)&scan, close_heap, (VALUE)&scan);
}

/* ---- the rule for freeing pages ------------------------------------------------------------------------------- */

/* As gc.c does, ignores a value that is out of bounds or not a number (get_envparam_double, …_size). */
static double ratio_from_environment(const char *name, double otherwise, double more_than, double at_most) {
    const char *given = getenv(name);
    char *end;
    double ratio = given == NULL ? 0 : strtod(given, &end);

    if (given == NULL || *given == '\0' || *end != '\0' || ratio <= more_than || ratio > at_most)
        return otherwise;
    return ratio;
}

static size_t slots_from_environment(const char *name, size_t otherwise) {
    const char *given = getenv(name);
    char *end;
    long slots = given == NULL ? 0 : strtol(given, &end, 0);

    return given == NULL || *given == '\0' || *end != '\0' || slots <= 0 ? otherwise : (size_t)slots;
}

/* Read once at load, as Ruby does: what the program sets in ENV later has no effect on Ruby. */
static void learn_the_rule(void) {
    double least = ratio_from_environment("RUBY_GC_HEAP_FREE_SLOTS_MIN_RATIO", 0.20, 0.0, 1.0);

    free_slots_max_ratio = ratio_from_environment("RUBY_GC_HEAP_FREE_SLOTS_MAX_RATIO", 0.65, least, 1.0);
    free_slots_floor = slots_from_environment("RUBY_GC_HEAP_INIT_SLOTS", 10000);
}

void Init_memscope_ruby_heap(void) {
    VALUE stat = rb_hash_new();

    memscope_ruby_heap_learn();
    memscope_held_memory_learn();
    memscope_heap_pins_learn();
    rb_gc_stat(stat);
    symbol_old_objects = memscope_symbol("old_objects");
    symbol_allocatable_pages = memscope_symbol("heap_allocatable_pages");
    if (NIL_P(rb_hash_lookup(stat, symbol_allocatable_pages))) /* gone in 3.4 */
        symbol_allocatable_pages = Qnil;
    learn_the_rule();
    rb_define_module_function(rb_mMemscopeNative, "ruby_heap", native_ruby_heap, 1);
}
