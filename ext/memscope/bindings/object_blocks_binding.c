/*
 * Memscope::Native.object_blocks: the malloc blocks of objects, garbage among them, and the memory that the process
 * returns when the garbage is freed. Also the ledger that these are based on, split into reachable and garbage, and the
 * pins of objects. The ledger is read without the GVL. One forked child marks and walks the objects.
 */
#include "bindings/ledger_binding.h"
#include "bindings/ruby_heap_binding.h"

#include "base/copy.h"
#include "init.h"
#include "ruby/heap/block_walk.h"
#include "ruby/heap/marking.h"
#include "ruby/heap/object_blocks.h"

#include <string.h>

#define DEADLINE_MS 30000

/* The child's predicted time for the mark phase and the blocks. */
static memscope_slot_rate ns_of_1000_slots = 250000;

/* The child's answer. */
struct blocks_answer {
    enum memscope_status status; /* of the mark phase, and the rest is known if MEMSCOPE_OK */
    struct memscope_block_walk blocks;
    struct memscope_heap_walk pins;
};

struct blocks_call {
    struct memscope_heap_call heap;
    struct memscope_ledger_call ledger;
    struct memscope_malloc_blocks blocks;
    enum memscope_status status;
    struct memscope_marking marking;
    struct blocks_answer found;
};

/* ---- the walk -------------------------------------------------------------------------------------------------- */

static bool read_ledger(void *argument) {
    struct blocks_call *call = argument;
    bool spoilt;

    memscope_malloc_blocks_close(&call->blocks);
    spoilt = memscope_ledger_scan(&call->ledger);
    call->status = call->ledger.status;
    if (call->status == MEMSCOPE_OK)
        call->status = memscope_malloc_blocks_open(&call->blocks, &call->ledger.ledger);
    call->heap.work_ns = memscope_slot_rate_predict(&ns_of_1000_slots, call->ledger.listing.slots);
    memscope_heap_call_read_room(&call->heap);
    return spoilt || call->blocks.private_status == MEMSCOPE_SHARED;
}

static void read_malloc(struct blocks_call *call) {
    memscope_ledger_perform(&call->ledger, read_ledger, call, true);
    call->heap.without_gvl_ns += call->ledger.wall_ns - call->ledger.gvl_ns;
}

static void close_malloc(struct blocks_call *call) {
    memscope_malloc_blocks_close(&call->blocks);
    memscope_heap_listing_close(&call->ledger.listing);
    memscope_ledger_close(&call->ledger.ledger);
    memset(&call->blocks, 0, sizeof call->blocks);
    memset(&call->ledger.listing, 0, sizeof call->ledger.listing);
    memset(&call->ledger.ledger, 0, sizeof call->ledger.ledger);
}

/*
 * Finishes a sweep in progress before it reads the allocator's figures, so that memory freed by the sweep is free
 * there. Reads the figures without the GVL, and a second time if another thread has begun a collection.
 */
static void prepare(struct blocks_call *call) {
    memscope_heap_call_settle(&call->heap, false);
    read_malloc(call);
    if (call->status != MEMSCOPE_OK || !memscope_heap_finish_gc())
        return;
    call->heap.finished_gc = true;
    close_malloc(call);
    read_malloc(call);
}

static void work(void *argument, struct memscope_scratch *scratch) {
    struct blocks_call *call = argument;

    call->found.status = memscope_marking_make(&call->marking, &call->heap.listing, scratch);
    if (call->found.status != MEMSCOPE_OK)
        return;
    memscope_walk_blocks(&call->heap.listing, &call->blocks, &call->marking, &call->found.blocks);
    memscope_heap_walk(&call->heap.listing, scratch, MEMSCOPE_WALK_PINS, &call->found.pins);
}

static void inherit(void *argument, bool inherited) {
    struct blocks_call *call = argument;

    memscope_scratch_inherit(&call->ledger.listing.scratch, inherited);
    memscope_malloc_blocks_inherit(&call->blocks, &call->ledger.ledger, inherited);
}

/* Returns the reason if there is no answer, or nil. Keeps the GVL from the end of the collection to the fork. */
static VALUE walk(struct blocks_call *call) {
    const struct memscope_heap_errand errand = {work, call, &call->found, sizeof call->found, -1, DEADLINE_MS, inherit};
    VALUE refusal;

    if (!NIL_P(refusal = memscope_heap_call_without_room(&call->heap)) ||
        !NIL_P(refusal = memscope_heap_call_list(&call->heap, "objects_unwalked")))
        return refusal;
    if (!NIL_P(refusal = memscope_heap_call_ask(&call->heap, &errand)))
        return refusal;
    return call->found.status == MEMSCOPE_OK ? Qnil : memscope_status_reason(call->found.status);
}

/* ---- the answer ------------------------------------------------------------------------------------------------ */

static VALUE returned_hash(const struct memscope_returned *returned, bool private_known) {
    return memscope_hash_of({"bytes", ULL2NUM(returned->least)}, {"max_bytes", ULL2NUM(returned->most)},
                            {"private_bytes", private_known ? ULL2NUM(returned->private_least) : Qnil},
                            {"private_max_bytes", private_known ? ULL2NUM(returned->private_most) : Qnil});
}

static VALUE unfollowed_list(const struct memscope_block_walk *walk) {
    VALUE list = rb_ary_new();

    for (size_t index = 0; index < walk->unfollowed_count; index++)
        rb_ary_push(list, memscope_hash_of({"name", rb_utf8_str_new_cstr(walk->unfollowed[index].name)},
                                           {"objects", ULL2NUM(walk->unfollowed[index].objects)},
                                           {"garbage", ULL2NUM(walk->unfollowed[index].garbage)}));
    return list;
}

static void set_answer(VALUE hash, VALUE reasons, const struct blocks_call *call) {
    const struct memscope_block_walk *walk = &call->found.blocks;
    bool known = walk->status == MEMSCOPE_OK;
    uint64_t in_use = walk->returned.in_use_bytes;

    memscope_hash_add(hash, {"all", memscope_owned_bytes_hash(&walk->all)},
                      {"garbage", memscope_owned_bytes_hash(&walk->garbage)}, {"unfollowed", unfollowed_list(walk)});
    if (memscope_ledger_malloc_in_use(&call->ledger.ledger, &in_use) || known)
        memscope_hash_set(hash, "unowned_bytes",
                          ULL2NUM(in_use > walk->all.block_bytes ? in_use - walk->all.block_bytes : 0));
    memscope_hash_add(hash, {"heap_pages", returned_hash(&walk->heap.returned, walk->private_known)},
                      {"at_once", known ? returned_hash(&walk->returned.at_once, walk->private_known) : Qnil},
                      {"in_all", known ? returned_hash(&walk->returned.by_trim, walk->private_known) : Qnil});
    memscope_set_left_out_reason(reasons, &walk->said);
    if (!known)
        memscope_hash_set(reasons, "in_all", memscope_status_reason(walk->status));
}

/* Adds the bodies of a Ledger and, if there is an answer, of a RubyHeap. */
static void set_whole(VALUE hash, struct blocks_call *call, bool answered) {
    if (answered)
        memscope_ledger_split_garbage(&call->ledger.ledger, call->found.blocks.garbage_of_rows);
    memscope_hash_add(hash, {"ledger", memscope_ledger_body(&call->ledger)},
                      {"ruby_heap", answered ? memscope_heap_body(&call->heap, &call->found.pins) : Qnil});
}

static VALUE read_blocks(VALUE argument) {
    struct blocks_call *call = (struct blocks_call *)argument;
    VALUE hash = rb_hash_new(), reasons = rb_hash_new(), why;

    call->heap.start_ns = memscope_now_ns();
    prepare(call);
    if (call->status == MEMSCOPE_OK)
        why = walk(call);
    else
        why = call->status == MEMSCOPE_UNSUPPORTED ? memscope_reason("blocks_unlisted")
                                                   : memscope_status_reason(call->status);
    set_whole(hash, call, NIL_P(why));
    if (NIL_P(why))
        set_answer(hash, reasons, call);
    else
        memscope_hash_set(reasons, "all", why);
    memscope_hash_set(hash, "finished_gc", call->heap.finished_gc ? Qtrue : Qfalse);
    return memscope_heap_call_finish(&call->heap, hash, reasons, "T3", call->ledger.ledger.scratch_bytes);
}

static VALUE close_blocks(VALUE argument) {
    struct blocks_call *call = (struct blocks_call *)argument;

    memscope_heap_call_end((VALUE)&call->heap);
    memscope_marking_close(&call->marking);
    close_malloc(call);
    return Qnil;
}

/* shared and strict as for a ledger. */
VALUE native_object_blocks(VALUE self, VALUE shared, VALUE strict) {
    bool deep = memscope_allocator_current()->name != MEMSCOPE_ALLOCATOR_JEMALLOC;
    struct blocks_call call = {.heap = {.bounded = !memscope_is_copy()},
                               .ledger = {.strict = RTEST(strict),
                                          .objects = true,
                                          .walked_before = true,
                                          .request = {.deep = deep, .shared = RTEST(shared)}}};

    memscope_object_blocks_learn();
    return rb_ensure(read_blocks, (VALUE)&call, close_blocks, (VALUE)&call);
}
