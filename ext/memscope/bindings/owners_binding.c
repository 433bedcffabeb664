/*
 * Native.start_owners, new_owner, own, owned and stop_owners: the owners of the objects and malloc blocks that are in
 * use. For a process that was started for a measurement (Memscope::Requires).
 */
#include "values.h"

#include "bindings/reasons.h"

#include "base/mapped_array.h"
#include "init.h"
#include "ruby/ractors.h"
#include "ruby/sample/object_owners.h"
#include "sampling/block_owners.h"

/* Native.start_owners -> nil, or the reason why nothing is recorded. */
VALUE native_start_owners(VALUE self) {
    enum memscope_status status = memscope_object_owners_start();

    if (status == MEMSCOPE_OK && (status = memscope_block_owners_start()) != MEMSCOPE_OK)
        memscope_object_owners_stop();
    return status == MEMSCOPE_OK ? Qnil : memscope_status_reason(status);
}

/* Native.own(owner) -> the previous owner. From now on, this thread's allocations belong to owner. */
VALUE native_own(VALUE self, VALUE owner) {
    uint32_t number = NUM2UINT(owner);

    return UINT2NUM(memscope_owner_set(number < MEMSCOPE_OWNER_LIMIT ? number : MEMSCOPE_OWNER_OUTSIDE));
}

/* Native.new_owner -> a new owner number, or OWNER_OUTSIDE when there are no more. */
VALUE native_new_owner(VALUE self) {
    static uint32_t next = MEMSCOPE_OWNER_FIRST;

    return UINT2NUM(next < MEMSCOPE_OWNER_LIMIT ? next++ : MEMSCOPE_OWNER_OUTSIDE);
}

/*
 * Native.stop_owners -> the numbers of blocks freed unseen, and of blocks and objects without room in the maps, and
 * true if objects were watched until now: false if a Ractor was created.
 */
VALUE native_stop_owners(VALUE self) {
    VALUE watched = memscope_object_owners_watched() ? Qtrue : Qfalse;

    memscope_block_owners_stop();
    memscope_object_owners_stop();
    return rb_ary_new_from_args(3, ULL2NUM(memscope_blocks_freed_unseen()),
                                ULL2NUM(memscope_blocks_without_room() + memscope_objects_without_room()), watched);
}

struct owned_call {
    struct memscope_heap_listing listing;
    struct memscope_owned_objects *objects;
    struct memscope_owned_blocks *blocks;
    uint32_t count;
};

static VALUE owned_rows(const struct owned_call *call) {
    VALUE list = rb_ary_new_capa(call->count);

    for (uint32_t owner = 0; owner < call->count; owner++)
        rb_ary_push(list, rb_ary_new_from_args(
                              4, ULL2NUM(call->objects[owner].count), ULL2NUM(call->objects[owner].slot_bytes),
                              LL2NUM((int64_t)call->blocks[owner].count), LL2NUM((int64_t)call->blocks[owner].bytes)));
    return list;
}

/* Counts objects and blocks before it makes the rows, whose own memory belongs to the thread's owner. */
static VALUE read_owned(VALUE argument) {
    struct owned_call *call = (struct owned_call *)argument;

    memscope_heap_list(&call->listing, MEMSCOPE_SLOTS_UNCOUNTED);
    if (call->listing.refusal != NULL || call->objects == NULL || call->blocks == NULL)
        return Qnil;
    memscope_object_owners_sum(&call->listing, call->objects);
    for (uint32_t owner = 0; owner < call->count; owner++)
        call->blocks[owner] = memscope_owned_blocks(owner);
    return owned_rows(call);
}

static VALUE close_owned(VALUE argument) {
    struct owned_call *call = (struct owned_call *)argument;

    memscope_heap_listing_close(&call->listing);
    memscope_arrays_unmap(call->objects, call->blocks);
    return Qnil;
}

/*
 * Native.owned(count) -> [[objects, their slots' bytes, malloc blocks, their bytes], …] of the owners 0 to count - 1,
 * or nil if the heap cannot be walked. Call it after a garbage collection. Garbage is charged to its owner.
 */
VALUE native_owned(VALUE self, VALUE count) {
    struct owned_call call = {.count = NUM2UINT(count)};

    if (call.count > MEMSCOPE_OWNER_LIMIT)
        rb_raise(rb_eArgError, "owned: count must be at most %u, got %u", MEMSCOPE_OWNER_LIMIT, call.count);
    call.objects = memscope_array_map(MEMSCOPE_OWNER_LIMIT, sizeof *call.objects);
    call.blocks = memscope_array_map(MEMSCOPE_OWNER_LIMIT, sizeof *call.blocks);
    return rb_ensure(read_owned, (VALUE)&call, close_owned, (VALUE)&call);
}

void Init_memscope_owners(void) {
    memscope_before_ractors(memscope_object_owners_stop);
    rb_define_const(rb_mMemscopeNative, "OWNER_MEMSCOPE", UINT2NUM(MEMSCOPE_OWNER_MEMSCOPE));
    rb_define_const(rb_mMemscopeNative, "OWNER_OUTSIDE", UINT2NUM(MEMSCOPE_OWNER_OUTSIDE));
}
