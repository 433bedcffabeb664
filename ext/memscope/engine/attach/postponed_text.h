/*
 * A text of Ruby that a live process evaluates at its next safe point, as a postponed job, as if a signal that nobody
 * traps had arrived. One thread is stopped for about a millisecond. The text may only create a thread: a job can
 * neither lock a Mutex nor require a file. That thread must live for a second, or nobody may see that it ran. The text
 * must do nothing in another Ractor than the main one, nor if that thread is there: it may be evaluated several times.
 * The text sees the variables of the method that runs, finds constants from there and, since Ruby 4.0, may have any
 * self.
 */
#pragma once

#include "attach/ruby_threads.h"

struct memscope_postponed_text {
    const struct memscope_ruby_target *target;
    const char *text;
    const char *thread; /* the name, of at most 15 bytes, that no other thread has and the new one gives itself */
    uint64_t room, room_bytes; /* memory of the target, unmapped once the job has run */
    uint64_t handler;          /* Ruby's own, of signals */
    uint64_t context;          /* of the main thread, 0 if unknown */
    unsigned posts;            /* jobs with this text so far */
    uint64_t pause_ns;         /* of the main thread */
    uint64_t ran_ns;           /* from there to the first sight of the thread */
};

/*
 * Returns true once the thread is there. If the process reaches no safe point before the deadline, the text becomes
 * empty: whenever the job runs, it does nothing. Returns false with a refusal then, too.
 */
bool memscope_postponed_text_run(struct memscope_postponed_text *postponed, struct memscope_tracees *tracees,
                                 uint64_t deadline_ns);
