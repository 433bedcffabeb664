#include "values.h"

#include "init.h"
#include "ruby/heap_pins.h"
#include "ruby/ruby_heap.h"
#include "ruby/ruby_private.h"

#include <stdlib.h>

#define TENTHS 10

static VALUE symbol_old_objects, symbol_allocatable_pages;
static double free_slots_max_ratio;
static size_t free_slots_floor;

/* ---- sums by slot size ---------------------------------------------------------------------------------------- */

/* The pages of one slot size. */
struct slot_size {
    size_t pages, hidden_empty_pages, slots, live_slots, most_slots;
    size_t pinned_pages_min, pinned_pages_max;
    size_t tenths[TENTHS]; /* pages by the tenth of their slots that is live */
    struct memscope_misfits misfits;
};

struct heap_reading {
    struct memscope_heap_listing listing;
    struct memscope_heap_pins pins;
    struct slot_size sizes[MEMSCOPE_SLOT_SIZES];
    size_t size_count;
    bool collect; /* wanted */
    bool finished_gc;
};

static void add_page(struct slot_size *size, const struct memscope_heap_page *page, unsigned pins) {
    size_t tenth = page->live_count * (size_t)TENTHS / page->slot_count;

    size->pages++;
    size->hidden_empty_pages += page->live_count == 0;
    size->slots += page->slot_count;
    size->live_slots += page->live_count;
    if (page->slot_count > size->most_slots)
        size->most_slots = page->slot_count;
    size->tenths[tenth < TENTHS ? tenth : TENTHS - 1]++;
    size->pinned_pages_min += (pins & MEMSCOPE_PAGE_PINS) != 0;
    size->pinned_pages_max += pins != 0;
}

static struct slot_size *size_of(struct heap_reading *reading, size_t slot_bytes) {
    size_t at = 0;

    while (at < reading->size_count && reading->sizes[at].misfits.slot_bytes != slot_bytes)
        at++;
    if (at == MEMSCOPE_SLOT_SIZES)
        return NULL;
    if (at == reading->size_count)
        reading->sizes[reading->size_count++].misfits.slot_bytes = slot_bytes;
    return &reading->sizes[at];
}

/*
 * Of the pages with misfits only so many can lose them as free slots elsewhere take in: those whose share of all
 * misfits there is room for.
 */
static void pin_misfits(struct heap_reading *reading) {
    size_t room = 0;

    for (size_t index = 0; index < reading->size_count; index++) {
        const struct slot_size *size = &reading->sizes[index];
        size_t vacant = size->slots - size->live_slots;

        room += size->misfits.entering < vacant ? size->misfits.entering : vacant;
    }
    for (size_t index = 0; index < reading->size_count; index++) {
        struct slot_size *size = &reading->sizes[index];
        size_t staying = size->misfits.leaving > room ? size->misfits.leaving - room : 0;

        if (staying > 0)
            size->pinned_pages_min += size->misfits.left_pages * staying / size->misfits.leaving;
    }
}

static void group_by_slot_size(struct heap_reading *reading) {
    const struct memscope_heap_pins *pins = &reading->pins;

    for (size_t index = 0; index < pins->slot_sizes; index++)
        reading->sizes[index].misfits = pins->misfits[index];
    reading->size_count = pins->slot_sizes;
    for (size_t index = 0; index < reading->listing.count; index++) {
        const struct memscope_heap_page *page = &reading->listing.pages[index];
        struct slot_size *size = size_of(reading, page->slot_bytes);

        if (size != NULL)
            add_page(size, page, pins->pages == NULL ? 0 : pins->pages[index]);
    }
    pin_misfits(reading);
}

static void add_size(struct slot_size *total, const struct slot_size *size) {
    total->pages += size->pages;
    total->hidden_empty_pages += size->hidden_empty_pages;
    total->slots += size->slots;
    total->live_slots += size->live_slots;
    total->pinned_pages_min += size->pinned_pages_min;
    total->pinned_pages_max += size->pinned_pages_max;
    for (size_t tenth = 0; tenth < TENTHS; tenth++)
        total->tenths[tenth] += size->tenths[tenth];
}

/* ---- what compaction can empty -------------------------------------------------------------------------------- */

static size_t pages_for(const struct slot_size *size, size_t slots) {
    return (slots + size->most_slots - 1) / size->most_slots;
}

/* Perfect packing around what is surely pinned, all misfits gone. */
static size_t fewest_pages(const struct slot_size *size) {
    size_t needed = pages_for(size, size->live_slots - size->misfits.leaving);

    return needed > size->pinned_pages_min ? needed : size->pinned_pages_min;
}

/*
 * Every object that may be pinned is. Since 3.2 compaction fills the pages that hold the most of them first (gc.c,
 * compare_pinned_slots); before, they may all lie behind the pages that it fills. It ends within the page where its two
 * cursors meet.
 */
static size_t most_pages(const struct slot_size *size) {
    size_t pinned = size->pinned_pages_max, needed;

    if (MEMSCOPE_COMPACTS_PINNED_PAGES_FIRST) {
        needed = pages_for(size, size->live_slots + size->misfits.entering);
        needed = (needed > pinned ? needed : pinned) + 1;
    } else {
        needed = pages_for(size, size->live_slots > pinned ? size->live_slots - pinned : 0) + pinned + 1;
    }
    return needed < size->pages ? needed : size->pages;
}

/* ---- the reading ---------------------------------------------------------------------------------------------- */

static VALUE tenths_array(const struct slot_size *size) {
    VALUE array = rb_ary_new_capa(TENTHS);

    for (size_t tenth = 0; tenth < TENTHS; tenth++)
        rb_ary_push(array, SIZET2NUM(size->tenths[tenth]));
    return array;
}

static void set_sums(VALUE hash, const struct slot_size *size, size_t most_bytes, size_t fewest_bytes, bool pins) {
    memscope_hash_set(hash, "pages", SIZET2NUM(size->pages));
    memscope_hash_set(hash, "hidden_empty_pages", SIZET2NUM(size->hidden_empty_pages));
    memscope_hash_set(hash, "pinned_pages_min", pins ? SIZET2NUM(size->pinned_pages_min) : Qnil);
    memscope_hash_set(hash, "pinned_pages_max", pins ? SIZET2NUM(size->pinned_pages_max) : Qnil);
    memscope_hash_set(hash, "slots", SIZET2NUM(size->slots));
    memscope_hash_set(hash, "live_slots", SIZET2NUM(size->live_slots));
    memscope_hash_set(hash, "free_slots", SIZET2NUM(size->slots - size->live_slots));
    memscope_hash_set(hash, "pages_by_tenths", tenths_array(size));
    memscope_hash_set(hash, "compactable_min_bytes", pins ? SIZET2NUM(fewest_bytes) : Qnil);
    memscope_hash_set(hash, "compactable_bytes", SIZET2NUM(most_bytes));
}

static void set_heap(VALUE hash, const struct heap_reading *reading) {
    bool pins = reading->pins.pages != NULL;
    size_t page_bytes = reading->listing.page_bytes, most = 0, fewest = 0;
    struct slot_size total = {0};
    VALUE list = rb_ary_new();

    for (size_t index = 0; index < reading->size_count; index++) {
        const struct slot_size *size = &reading->sizes[index];
        size_t most_here = (size->pages - fewest_pages(size)) * page_bytes;
        size_t fewest_here = (size->pages - most_pages(size)) * page_bytes;
        VALUE item = rb_hash_new();

        memscope_hash_set(item, "slot_size", SIZET2NUM(size->misfits.slot_bytes));
        set_sums(item, size, most_here, fewest_here, pins);
        rb_ary_push(list, item);
        add_size(&total, size);
        most += most_here;
        fewest += fewest_here;
    }
    memscope_hash_set(hash, "slot_sizes", list);
    if (reading->listing.refusal == NULL)
        set_sums(hash, &total, most, fewest, pins);
}

/* What Ruby itself counts, and what its rule for freeing pages goes by. */
static void set_collector(VALUE hash, const struct heap_reading *reading, VALUE gc_state) {
    const struct memscope_heap_listing *listing = &reading->listing;

    memscope_hash_set(hash, "page_bytes", SIZET2NUM(listing->page_bytes));
    memscope_hash_set(hash, "empty_pages",
                      memscope_counts_empty_pages() && listing->refusal == NULL ? SIZET2NUM(listing->empty_pages)
                                                                                : Qnil);
    memscope_hash_set(hash, "allocatable_pages",
                      NIL_P(symbol_allocatable_pages) ? Qnil : SIZET2NUM(rb_gc_stat(symbol_allocatable_pages)));
    memscope_hash_set(hash, "old_objects", SIZET2NUM(rb_gc_stat(symbol_old_objects)));
    memscope_hash_set(hash, "free_slots_max_ratio", DBL2NUM(free_slots_max_ratio));
    memscope_hash_set(hash, "free_slots_floor", SIZET2NUM(free_slots_floor));
    memscope_hash_set(hash, "collected", reading->collect ? Qtrue : Qfalse);
    memscope_hash_set(hash, "gc_state", rb_sym2str(gc_state));
}

static VALUE reasons_hash(const struct heap_reading *reading) {
    VALUE reasons = rb_hash_new();
    const char *pins = reading->pins.refusal;

    if (reading->listing.refusal != NULL)
        memscope_hash_set(reasons, "pages", rb_str_new_cstr(reading->listing.refusal));
    else if (pins != NULL)
        memscope_hash_set(reasons, "pinned_pages_max", rb_str_new_cstr(pins));
    if (NIL_P(symbol_allocatable_pages))
        memscope_hash_set(reasons, "allocatable_pages", rb_str_new_cstr("this Ruby has no :heap_allocatable_pages"));
    if (reading->finished_gc)
        memscope_hash_set(reasons, "gc_state", rb_str_new_cstr("this reading finished a garbage collection under way"));
    return reasons;
}

static VALUE read_heap(VALUE argument) {
    struct heap_reading *reading = (struct heap_reading *)argument;
    VALUE hash, gc_state = rb_gc_latest_gc_info(memscope_symbol("state"));
    uint64_t start = memscope_now_ns(), elapsed;

    if (reading->collect)
        rb_funcall(rb_path2class("GC"), rb_intern("start"), 0); /* rb_gc does nothing while the GC is disabled */
    else
        reading->finished_gc = memscope_heap_finish_gc();
    memscope_heap_list(&reading->listing, MEMSCOPE_SLOTS_WALKED);
    if (reading->listing.refusal == NULL)
        memscope_heap_find_pins(&reading->listing, &reading->pins);
    group_by_slot_size(reading);
    elapsed = memscope_now_ns() - start;

    hash = rb_hash_new();
    set_heap(hash, reading);
    set_collector(hash, reading, gc_state);
    memscope_hash_set(hash, "reasons", reasons_hash(reading));
    memscope_hash_set(hash, "cost", memscope_cost("T2", elapsed, elapsed, reading->listing.scratch.used));
    return hash;
}

static VALUE close_heap(VALUE reading) {
    memscope_heap_listing_close(&((struct heap_reading *)reading)->listing);
    return Qnil;
}

static VALUE native_ruby_heap(VALUE self, VALUE collect) {
    struct heap_reading reading = {.collect = RTEST(collect)};

    return rb_ensure(read_heap, (VALUE)&reading, close_heap, (VALUE)&reading);
}

/* ---- the rule for freeing pages ------------------------------------------------------------------------------- */

/* As gc.c reads its variables: what is out of bounds, or no number, is ignored (get_envparam_double, …_size). */
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

/* Ruby reads its environment once; what the program sets later would mislead. */
static void learn_the_rule(void) {
    double least = ratio_from_environment("RUBY_GC_HEAP_FREE_SLOTS_MIN_RATIO", 0.20, 0.0, 1.0);

    free_slots_max_ratio = ratio_from_environment("RUBY_GC_HEAP_FREE_SLOTS_MAX_RATIO", 0.65, least, 1.0);
    free_slots_floor = slots_from_environment("RUBY_GC_HEAP_INIT_SLOTS", 10000);
}

void Init_memscope_ruby_heap_binding(void) {
    VALUE stat = rb_hash_new();

    rb_gc_stat(stat);
    symbol_old_objects = memscope_symbol("old_objects");
    symbol_allocatable_pages = memscope_symbol("heap_allocatable_pages");
    if (NIL_P(rb_hash_lookup(stat, symbol_allocatable_pages))) /* gone in 3.4 */
        symbol_allocatable_pages = Qnil;
    learn_the_rule();
    rb_define_module_function(rb_mMemscopeNative, "ruby_heap", native_ruby_heap, 1);
}
