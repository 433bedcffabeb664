/*
 * Memscope::Native.object_blocks: what objects own through malloc, and what the process would return if some of them
 * were freed. The ledger is read without the GVL; the objects are walked in a forked child.
 */
#include "bindings/ledger_binding.h"

#include "fork/forked_child.h"
#include "init.h"
#include "ruby/block_walk.h"
#include "ruby/marking.h"
#include "ruby/object_blocks.h"

#include <ruby/thread.h>
#include <string.h>

#define DEADLINE_MS 30000

struct blocks_call {
    struct memscope_ledger_call ledger;
    struct memscope_malloc_blocks blocks;
    enum memscope_status status;
    struct memscope_heap_listing listing;
    struct memscope_scratch marks;
    bool planted;
    struct memscope_marking marking; /* of what is not garbage; if planted, of what is */
    struct memscope_forked_child child;
    struct memscope_block_walk found;
    size_t received;
    enum memscope_forked_progress progress;
};

/* ---- what is garbage ------------------------------------------------------------------------------------------- */

/* The array, what is in it and in arrays in it. */
static void plant(struct blocks_call *call, VALUE object) {
    memscope_marking_add(&call->marking, object);
    if (RB_TYPE_P(object, RUBY_T_ARRAY))
        for (long index = 0; index < RARRAY_LEN(object); index++)
            plant(call, rb_ary_entry(object, index));
}

static bool is_garbage(uint32_t slot, const void *data) {
    const struct blocks_call *call = data;

    return memscope_is_marked(&call->marking, slot) == call->planted;
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

    if (!call->planted) {
        struct memscope_scratch scratch;

        if (memscope_scratch_open(&scratch) != MEMSCOPE_OK ||
            memscope_marking_make(&call->marking, &call->listing, &scratch) != MEMSCOPE_OK)
            return false;
    }
    memscope_walk_blocks(&call->listing, &call->blocks, is_garbage, call, &call->found);
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
    call->planted = !NIL_P(garbage);
    if (call->planted) {
        status = memscope_scratch_open(&call->marks);
        if (status == MEMSCOPE_OK)
            status = memscope_marking_open(&call->marking, &call->listing, &call->marks);
        if (status != MEMSCOPE_OK)
            return status;
        plant(call, garbage);
    }
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
    memscope_marking_close(&call->marking);
    memscope_scratch_close(&call->marks);
    memscope_malloc_blocks_close(&call->blocks);
    memscope_heap_listing_close(&call->ledger.listing);
    memscope_ledger_close(&call->ledger.ledger);
    return Qnil;
}

/* planted: an Array that counts as garbage, with what is in it and in Arrays in it; nil: what no root reaches. */
static VALUE native_object_blocks(VALUE self, VALUE garbage) {
    struct blocks_call call = {0};
    struct arguments arguments = {&call, garbage};

    return rb_ensure(read_blocks, (VALUE)&arguments, close_blocks, (VALUE)&arguments);
}

void Init_memscope_object_blocks(void) {
    memscope_object_blocks_learn();
    rb_define_module_function(rb_mMemscopeNative, "object_blocks", native_object_blocks, 1);
}
