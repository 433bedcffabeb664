#include "bindings/child_wait.h"

#include "kernel/own_children.h"

#include <ruby/thread.h>

#define TRIES 3

struct reception {
    struct memscope_forked_child *child;
    void *answer;
    size_t size, received;
    enum memscope_forked_progress progress;
};

static void *receive(void *argument) {
    struct reception *reception = argument;

    reception->progress =
        memscope_forked_child_receive(reception->child, reception->answer, reception->size, &reception->received);
    return NULL;
}

enum memscope_forked_progress memscope_child_wait(struct memscope_forked_child *child, void *answer, size_t size,
                                                  uint64_t *without_gvl_ns) {
    struct reception reception = {.child = child, .answer = answer, .size = size};
    uint64_t start = memscope_now_ns();

    do {
        rb_thread_call_without_gvl(receive, &reception, RUBY_UBF_IO, NULL);
        rb_thread_check_ints();
    } while (reception.progress == MEMSCOPE_FORKED_INTERRUPTED);
    *without_gvl_ns += memscope_now_ns() - start;
    return reception.progress;
}

VALUE memscope_reason_without_room(const struct memscope_fork_room *room) {
    if (room->free_bytes >= room->needed_bytes)
        return Qnil;
    return memscope_reason_of("child_without_room", ULL2NUM(room->needed_bytes >> 20), ULL2NUM(room->free_bytes >> 20));
}

VALUE memscope_reason_child_refused(enum memscope_status status) {
    return memscope_reason_of("child_refused", memscope_status_reason(status));
}

VALUE memscope_reason_unanswered(enum memscope_forked_progress progress) {
    return memscope_reason(progress == MEMSCOPE_FORKED_TOO_SLOW ? "child_too_slow" : "child_ended");
}

struct lone_reading {
    bool (*read)(void *argument);
    void *argument;
};

static void read_alone(void *argument) {
    const struct lone_reading *reading = argument;

    for (int left = TRIES; left > 0; left--) {
        bool alone = memscope_own_children_await();

        if (!reading->read(reading->argument) || !alone)
            return;
    }
}

uint64_t memscope_without_children(bool (*read)(void *argument), void *argument) {
    struct lone_reading reading = {read, argument};

    return memscope_without_gvl(read_alone, &reading);
}
