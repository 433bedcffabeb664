#include "bindings/heap_call.h"

#include "base/copy.h"
#include "ruby/ractors.h"

#include <ruby/thread.h>

/* ---- before ---------------------------------------------------------------------------------------------------- */

void memscope_heap_call_read_room(void *argument) {
    struct memscope_heap_call *call = argument;

    if (memscope_is_copy())
        return;
    memscope_fork_room_read(call->work_ns, &call->room);
    call->room.needed_bytes += call->child_bytes;
    call->fork_ns = memscope_fork_predicted_ns();
}

void memscope_heap_call_begin(struct memscope_heap_call *call) {
    call->start_ns = memscope_now_ns();
    call->bounded = call->bounded && !memscope_is_copy();
    if (!call->bounded)
        return;
    call->work_ns = memscope_slot_rate_predict(call->rate, memscope_heap_slots());
    if (call->work_ns > call->budget_ns)
        call->without_gvl_ns += memscope_without_gvl(memscope_heap_call_read_room, call);
}

bool memscope_heap_call_belongs_in_child(const struct memscope_heap_call *call) {
    return call->bounded && memscope_fork_pays(call->work_ns, call->budget_ns, call->fork_ns);
}

VALUE memscope_heap_call_without_room(const struct memscope_heap_call *call) {
    if (call->room.free_bytes >= call->room.needed_bytes)
        return Qnil;
    return memscope_reason_of("child_without_room", ULL2NUM(call->room.needed_bytes >> 20),
                              ULL2NUM(call->room.free_bytes >> 20));
}

void memscope_heap_call_settle(struct memscope_heap_call *call, bool collect) {
    if (collect) {
        memscope_heap_collect();
        return;
    }
    if (call->bounded)
        call->without_gvl_ns += memscope_heap_await_gc();
    call->finished_gc |= memscope_heap_finish_gc();
}

VALUE memscope_heap_call_list(struct memscope_heap_call *call, const char *reason_beside_ractors) {
    if (memscope_other_ractors()) /* may switch to a thread that begins a collection */
        return memscope_reason(reason_beside_ractors);
    call->finished_gc |= memscope_heap_finish_gc();
    memscope_heap_list(&call->listing, MEMSCOPE_SLOTS_UNCOUNTED);
    return call->listing.refusal == NULL ? Qnil : memscope_reason(call->listing.refusal);
}

/* ---- in a child ------------------------------------------------------------------------------------------------ */

static bool work_and_answer(void *argument, int answer) {
    const struct memscope_heap_errand *errand = argument;
    struct memscope_scratch scratch;

    (void)memscope_scratch_open(&scratch); /* a refused one has no room, which the work reports */
    errand->work(errand->argument, &scratch);
    return memscope_forked_child_answer(answer, errand->found, errand->size);
}

static void inherit(struct memscope_heap_call *call, const struct memscope_heap_errand *errand, bool inherited) {
    memscope_scratch_inherit(&call->listing.scratch, inherited);
    if (errand->inherit != NULL)
        errand->inherit(errand->argument, inherited);
}

static VALUE start(struct memscope_heap_call *call, const struct memscope_heap_errand *errand) {
    VALUE without_room = memscope_heap_call_without_room(call);
    enum memscope_status status;

    if (!NIL_P(without_room))
        return without_room;
    inherit(call, errand, true);
    status =
        memscope_forked_child_start(&call->child, work_and_answer, (void *)errand, errand->file, errand->deadline_ms);
    inherit(call, errand, false);
    call->in_child = status == MEMSCOPE_OK;
    return call->in_child ? Qnil : memscope_reason_of("child_refused", memscope_status_reason(status));
}

/* ---- its answer ------------------------------------------------------------------------------------------------ */

struct reception {
    struct memscope_forked_child *child;
    const struct memscope_heap_errand *errand;
    size_t received;
    enum memscope_forked_progress progress;
};

static void *receive(void *argument) {
    struct reception *reception = argument;

    reception->progress = memscope_forked_child_receive(reception->child, reception->errand->found,
                                                        reception->errand->size, &reception->received);
    return NULL;
}

static VALUE await(struct memscope_heap_call *call, const struct memscope_heap_errand *errand) {
    struct reception reception = {.child = &call->child, .errand = errand};
    uint64_t begun = memscope_now_ns();

    do {
        rb_thread_call_without_gvl(receive, &reception, RUBY_UBF_IO, NULL);
        rb_thread_check_ints();
    } while (reception.progress == MEMSCOPE_FORKED_INTERRUPTED);
    call->without_gvl_ns += memscope_now_ns() - begun;
    if (reception.progress == MEMSCOPE_FORKED_ANSWERED)
        return Qnil;
    return reception.progress == MEMSCOPE_FORKED_TOO_SLOW
               ? memscope_reason_of("child_too_slow", rb_float_new((double)errand->deadline_ms / 1000))
               : memscope_reason("child_ended");
}

VALUE memscope_heap_call_ask(struct memscope_heap_call *call, const struct memscope_heap_errand *errand) {
    VALUE refusal;

    if (!memscope_heap_call_belongs_in_child(call)) {
        errand->work(errand->argument, &call->listing.scratch);
        return Qnil;
    }
    refusal = start(call, errand);
    return NIL_P(refusal) ? await(call, errand) : refusal;
}

/* ---- after ----------------------------------------------------------------------------------------------------- */

VALUE memscope_heap_call_finish(const struct memscope_heap_call *call, VALUE reading, VALUE reasons, const char *tier,
                                size_t scratch_bytes) {
    return memscope_finish(reading, reasons, tier, call->start_ns, call->without_gvl_ns,
                           call->listing.scratch.used + scratch_bytes);
}

VALUE memscope_heap_call_end(VALUE argument) {
    struct memscope_heap_call *call = (struct memscope_heap_call *)argument;

    memscope_forked_child_end(&call->child);
    memscope_heap_listing_close(&call->listing);
    return Qnil;
}
