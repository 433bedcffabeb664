/*
 * Native.inherited and Native.unshared: the pages that a process shares after a fork, and the bytes of them that it no
 * longer shares. Both read without the GVL.
 */
#include "bindings/reasons.h"
#include "bindings/without_children.h"

#include "init.h"
#include "kernel/sharing.h"

#include <string.h>

struct call {
    struct memscope_scratch list, names, work;
    const struct memscope_range *ranges;
    size_t count;
    uint64_t bytes;
    enum memscope_status status;
    VALUE inherited;
};

static VALUE close_scratches(VALUE argument) {
    struct call *call = (struct call *)argument;

    memscope_scratches_close(&call->list, &call->names, &call->work);
    return Qnil;
}

/* An earlier try may have left them open. */
static bool open_scratches(struct call *call) {
    close_scratches((VALUE)call);
    return memscope_scratch_open(&call->list) == MEMSCOPE_OK && memscope_scratch_open(&call->names) == MEMSCOPE_OK &&
           memscope_scratch_open(&call->work) == MEMSCOPE_OK;
}

static bool list_shared(void *argument) {
    struct call *call = argument;
    const struct memscope_mappings_memory memory = {&call->list, &call->names};
    struct memscope_mappings mappings;
    struct memscope_residency residency = {.refusal = MEMSCOPE_OK};

    call->status = open_scratches(call) ? memscope_mappings_read(false, &memory, &mappings) : MEMSCOPE_NO_MEMORY;
    if (call->status == MEMSCOPE_OK)
        call->status = memscope_residency_read(&mappings, &memory, &residency);
    if (call->status == MEMSCOPE_OK && residency.source < MEMSCOPE_RESIDENCY_PAGEMAP)
        call->status = residency.refusal;
    if (call->status == MEMSCOPE_OK)
        call->status = memscope_sharing_anonymous(&residency, &call->work, &call->ranges, &call->count);
    return call->status == MEMSCOPE_SHARED;
}

static VALUE read_inherited(VALUE argument) {
    struct call *call = (struct call *)argument;

    memscope_without_children(list_shared, call, true);
    if (call->status != MEMSCOPE_OK)
        return memscope_unread("/proc/self/pagemap", call->status);
    return rb_obj_freeze(rb_str_new((const char *)call->ranges, (long)(call->count * sizeof *call->ranges)));
}

/*
 * Native.inherited -> String, for Native.unshared: the anonymous pages that other processes map too, as address ranges,
 * or a reason, if the kernel hides which pages are shared.
 */
VALUE native_inherited(VALUE self) {
    struct call call = {0};

    return rb_ensure(read_inherited, (VALUE)&call, close_scratches, (VALUE)&call);
}

static bool count_ended(void *argument) {
    struct call *call = argument;

    memscope_scratch_close(&call->work);
    call->status = memscope_scratch_open(&call->work);
    if (call->status == MEMSCOPE_OK)
        call->status = memscope_sharing_ended(call->ranges, call->count, &call->work, &call->bytes);
    return call->status == MEMSCOPE_SHARED;
}

/* Copies the ranges, since another thread may change the String. */
static VALUE read_unshared(VALUE argument) {
    struct call *call = (struct call *)argument;
    size_t size = (size_t)RSTRING_LEN(call->inherited);
    void *copy = open_scratches(call) ? memscope_scratch_take(&call->list, size) : NULL;

    call->status = MEMSCOPE_NO_MEMORY;
    if (copy != NULL) {
        call->ranges = memcpy(copy, RSTRING_PTR(call->inherited), size);
        call->count = size / sizeof *call->ranges;
        memscope_without_children(count_ended, call, true);
    }
    return call->status == MEMSCOPE_OK ? ULL2NUM(call->bytes) : memscope_unread("/proc/self/pagemap", call->status);
}

/* Native.unshared(inherited) -> Integer: bytes of the inherited pages that only this process maps now, or a reason. */
VALUE native_unshared(VALUE self, VALUE inherited) {
    struct call call = {.inherited = StringValue(inherited)};

    return rb_ensure(read_unshared, (VALUE)&call, close_scratches, (VALUE)&call);
}
