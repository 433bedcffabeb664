/*
 * Memscope::Native.object_blocks: what objects own through malloc, and what the process would return if some of them
 * were freed. The ledger is read without the GVL; the objects are walked in a forked child.
 */
#include "bindings/ledger_binding.h"

#include "base/merge_sort.h"
#include "fork/forked_child.h"
#include "init.h"
#include "ruby/block_walk.h"
#include "ruby/object_blocks.h"

#include <ruby/thread.h>
#include <string.h>

#define DEADLINE_MS 30000

/* A page of Ruby's, and the number of its first slot. */
struct page_place {
    const struct memscope_heap_page *page;
    uint32_t first_slot;
};

struct blocks_call {
    struct memscope_ledger_call ledger;
    struct memscope_malloc_blocks blocks;
    enum memscope_status status;
    struct memscope_heap_listing listing;
    struct memscope_scratch marks;
    uint64_t *garbage;      /* a bit a slot */
    struct page_place *places; /* by address */
    struct memscope_forked_child child;
    struct memscope_block_walk found;
    size_t received;
    enum memscope_forked_progress progress;
};

/* ---- what is garbage ------------------------------------------------------------------------------------------- */

static bool in_order(const void *left, const void *right) {
    return ((const struct page_place *)left)->page->start <= ((const struct page_place *)right)->page->start;
}

static bool take_marks(struct blocks_call *call) {
    size_t count = call->listing.count, bytes = count * sizeof(struct page_place);
    struct page_place *buffer;
    uint32_t slots = 0;

    if (memscope_scratch_open(&call->marks) != MEMSCOPE_OK)
        return false;
    call->places = memscope_scratch_take(&call->marks, bytes);
    buffer = memscope_scratch_take(&call->marks, bytes);
    if (call->places == NULL || buffer == NULL)
        return false;
    for (size_t page = 0; page < count; page++) {
        call->places[page] = (struct page_place){&call->listing.pages[page], slots};
        slots += call->listing.pages[page].slot_count;
    }
    memscope_merge_sort((char *)call->places, count, sizeof *buffer, (char *)buffer, in_order);
    call->garbage = memscope_scratch_take(&call->marks, (slots / 64 + 1) * sizeof *call->garbage);
    return call->garbage != NULL;
}

static const struct page_place *place_of(const struct blocks_call *call, VALUE object) {
    size_t low = 0, high = call->listing.count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (call->places[middle].page->start + call->listing.page_bytes <= object)
            low = middle + 1;
        else
            high = middle;
    }
    return low < call->listing.count && call->places[low].page->start <= object ? &call->places[low] : NULL;
}

/* The array too, and what is in arrays in it. */
static void mark_garbage(struct blocks_call *call, VALUE object) {
    const struct page_place *place;
    size_t slot;

    if (RB_SPECIAL_CONST_P(object) || (place = place_of(call, object)) == NULL)
        return;
    slot = place->first_slot + (object - place->page->start - place->page->slots_offset) / place->page->slot_bytes;
    call->garbage[slot / 64] |= UINT64_C(1) << (slot % 64);
    if (RB_TYPE_P(object, RUBY_T_ARRAY))
        for (long index = 0; index < RARRAY_LEN(object); index++)
            mark_garbage(call, rb_ary_entry(object, index));
}

static bool is_garbage(uint32_t slot, const void *data) {
    const uint64_t *garbage = data;

    return (garbage[slot / 64] >> (slot % 64) & 1) != 0;
}

/* ---- the walk -------------------------------------------------------------------------------------------------- */

static void read_ledger(void *argument) {
    struct blocks_call *call = argument;

    call->status = memscope_ledger_read(&call->ledger.request, &call->ledger.ledger);
    if (call->status == MEMSCOPE_OK)
        call->status = memscope_malloc_blocks_open(&call->blocks, &call->ledger.ledger);
}

static void prepare(struct blocks_call *call) {
    struct memscope_ledger_call *ledger = &call->ledger;

    memscope_heap_list(&ledger->listing, MEMSCOPE_SLOTS_FROM_HEADERS);
    memscope_ruby_layout(&ledger->listing, &ledger->layout);
    memscope_images_read(&ledger->listing.scratch, &ledger->images);
    ledger->request = (struct memscope_ledger_request){
        .malloc = memscope_ledger_malloc_kind(), .ruby = &ledger->layout, .images = &ledger->images};
    memscope_without_gvl(read_ledger, call);
}

static bool work(void *argument, int answer) {
    struct blocks_call *call = argument;

    memscope_walk_blocks(&call->listing, &call->blocks, is_garbage, call->garbage, &call->found);
    return memscope_forked_child_answer(answer, &call->found, sizeof call->found);
}

static void inherit(struct blocks_call *call, int inherited) {
    memscope_scratch_inherit(&call->marks, inherited);
    memscope_scratch_inherit(&call->listing.scratch, inherited);
    memscope_scratch_inherit(&call->ledger.listing.scratch, inherited);
    memscope_malloc_blocks_inherit(&call->blocks, &call->ledger.ledger, inherited);
}

static void *receive(void *argument) {
    struct blocks_call *call = argument;

    call->progress = memscope_forked_child_receive(&call->child, &call->found, sizeof call->found, &call->received);
    return NULL;
}

static enum memscope_status walk(struct blocks_call *call, VALUE garbage) {
    enum memscope_status status;

    memscope_heap_await_gc();
    memscope_heap_finish_gc();
    memscope_heap_list(&call->listing, MEMSCOPE_SLOTS_UNCOUNTED);
    if (call->listing.refusal != NULL)
        return MEMSCOPE_UNSUPPORTED;
    if (!take_marks(call))
        return MEMSCOPE_NO_MEMORY;
    if (!NIL_P(garbage))
        mark_garbage(call, garbage);
    inherit(call, true);
    status = memscope_forked_child_start(&call->child, work, call, -1, DEADLINE_MS);
    inherit(call, false);
    if (status != MEMSCOPE_OK)
        return status;
    do {
        rb_thread_call_without_gvl(receive, call, RUBY_UBF_IO, NULL);
        rb_thread_check_ints();
    } while (call->progress == MEMSCOPE_FORKED_INTERRUPTED);
    return call->progress == MEMSCOPE_FORKED_ANSWERED ? MEMSCOPE_OK : MEMSCOPE_NOT_FOUND;
}

/* ---- the answer ------------------------------------------------------------------------------------------------ */

static VALUE range(uint64_t least, uint64_t most) {
    return rb_range_new(ULL2NUM(least), ULL2NUM(most), 0);
}

static void set_owned(VALUE hash, const struct memscope_owned_bytes *owned) {
    memscope_hash_set(hash, "objects", ULL2NUM(owned->objects));
    memscope_hash_set(hash, "blocks", ULL2NUM(owned->blocks));
    memscope_hash_set(hash, "bytes", ULL2NUM(owned->bytes));
    memscope_hash_set(hash, "added_bytes", ULL2NUM(owned->added_bytes));
    memscope_hash_set(hash, "unfollowed_objects", ULL2NUM(owned->unfollowed_objects));
    memscope_hash_set(hash, "unfollowed_bytes", ULL2NUM(owned->unfollowed_bytes));
}

static void set_returned(VALUE hash, const char *name, const struct memscope_returned *returned, bool private_known) {
    VALUE pair = rb_hash_new();

    memscope_hash_set(pair, "bytes", range(returned->least, returned->most));
    memscope_hash_set(pair, "private_bytes",
                      private_known ? range(returned->private_least, returned->private_most) : Qnil);
    memscope_hash_set(hash, name, pair);
}

static VALUE answer(const struct blocks_call *call) {
    const struct memscope_block_walk *walk = &call->found;
    VALUE hash = rb_hash_new(), all = rb_hash_new(), garbage = rb_hash_new(), kinds = rb_hash_new();

    set_owned(all, &walk->all);
    set_owned(garbage, &walk->garbage);
    for (size_t index = 0; index < walk->unfollowed_count; index++)
        rb_hash_aset(kinds, rb_str_new_cstr(walk->unfollowed[index].name),
                     rb_assoc_new(ULL2NUM(walk->unfollowed[index].objects), ULL2NUM(walk->unfollowed[index].garbage)));
    memscope_hash_set(hash, "all", all);
    memscope_hash_set(hash, "garbage", garbage);
    memscope_hash_set(hash, "unfollowed", kinds);
    memscope_hash_set(hash, "status", memscope_status_reason(walk->status));
    set_returned(hash, "by_trim", &walk->returned.by_trim, walk->private_known);
    set_returned(hash, "today", &walk->returned.today, walk->private_known);
    set_returned(hash, "at_once", &walk->returned.at_once, walk->private_known);
    set_returned(hash, "heap", &walk->heap.returned, walk->private_known);
    memscope_hash_set(hash, "heap_pages", rb_ary_new_from_args(3, ULL2NUM(walk->heap.pages), ULL2NUM(walk->heap.least),
                                                               ULL2NUM(walk->heap.most)));
    memscope_hash_set(hash, "spent_us", ULL2NUM(walk->spent_ns / 1000));
    memscope_hash_set(hash, "pause_us", ULL2NUM(call->child.pause_ns / 1000));
    return hash;
}

struct arguments {
    struct blocks_call *call;
    VALUE garbage;
};

static VALUE read_blocks(VALUE argument) {
    struct arguments *arguments = (struct arguments *)argument;
    struct blocks_call *call = arguments->call;

    if (memscope_other_ractors())
        return memscope_reason("objects_unwalked");
    prepare(call);
    if (call->status == MEMSCOPE_OK)
        call->status = walk(call, arguments->garbage);
    return call->status == MEMSCOPE_OK ? answer(call) : memscope_status_reason(call->status);
}

static VALUE close_blocks(VALUE argument) {
    struct blocks_call *call = ((struct arguments *)argument)->call;

    memscope_forked_child_end(&call->child);
    memscope_heap_listing_close(&call->listing);
    memscope_scratch_close(&call->marks);
    memscope_malloc_blocks_close(&call->blocks);
    memscope_heap_listing_close(&call->ledger.listing);
    memscope_ledger_close(&call->ledger.ledger);
    return Qnil;
}

/* garbage: an Array that stands for garbage with all that is in it and in Arrays in it; nil: nothing does. */
static VALUE native_object_blocks(VALUE self, VALUE garbage) {
    struct blocks_call call = {0};
    struct arguments arguments = {&call, garbage};

    return rb_ensure(read_blocks, (VALUE)&arguments, close_blocks, (VALUE)&arguments);
}

void Init_memscope_object_blocks(void) {
    memscope_object_blocks_learn();
    rb_define_module_function(rb_mMemscopeNative, "object_blocks", native_object_blocks, 1);
}
