/*
 * A copy of a Ruby process: a child that an injected clone makes, with copy-on-write memory and one thread. The target
 * is stopped for the clone alone. The copy has none of the target's descriptors, may not write to memory that others
 * share, makes no system call that could be seen outside, and ends with the tracer (PTRACE_O_EXITKILL).
 */
#pragma once

#include "attach/ruby_threads.h"

#define MEMSCOPE_COPY_ROOM ((size_t)1 << 16)
#define MEMSCOPE_COPY_PIPE_BYTES (1 << 20)

struct memscope_private_copy {
    const struct memscope_ruby_target *target;
    struct memscope_refusal *refusal;
    pid_t pid;                           /* 0 for none */
    pid_t inner_pid;                     /* in the target's pid namespace */
    pid_t parent;                        /* the target, in that namespace */
    bool waited;                         /* the thread waited for another (futex) */
    struct memscope_registers registers; /* of the thread, as it was; then those to call functions from */
    uint64_t room;                       /* MEMSCOPE_COPY_ROOM bytes of the copy's memory, for arguments */
    int pipe_end;                        /* the copy's descriptor of the pipe to the tracer */
    int pipe;                            /* the tracer's, which does not block */
    bool at_safe_point;
    uint64_t deadline_ns;
    uint64_t pause_ns, fork_ns, reap_ns;
    /* Called while the copy runs, unless NULL. Returns false if nobody waits for the answer any more. */
    bool (*drain)(void *context, int pipe);
    void *context;
};

/* Makes the copy. Returns false with a refusal, and then there is none. `tracees` is room to work in. */
bool memscope_private_copy_make(struct memscope_private_copy *copy, struct memscope_tracees *tracees);

/* Takes away what the copy shares with the target. */
bool memscope_private_copy_isolate(struct memscope_private_copy *copy);

/* Ends the copy, and has the target reap it. Idempotent. Returns false if the target could not. */
bool memscope_private_copy_end(struct memscope_private_copy *copy, struct memscope_tracees *tracees);

/*
 * Lets the copy run, with its system calls filtered, until it returns to the entry point that nothing else uses.
 * Returns false with a refusal if it dies, or does not get there before the deadline. Sets *registers.
 */
bool memscope_private_copy_run(struct memscope_private_copy *copy, struct memscope_registers *registers);

/*
 * Lets the copy enter a function of two arguments, and run until this returns or itself enters that point. Sets
 * *registers.
 */
bool memscope_private_copy_enter(struct memscope_private_copy *copy, uint64_t function, uint64_t first, uint64_t second,
                                 struct memscope_registers *registers);

/* Calls a function in the copy. Sets *result unless NULL. */
bool memscope_private_copy_call(struct memscope_private_copy *copy, uint64_t function, uint64_t first, uint64_t second,
                                uint64_t *result);

/* Makes a system call in the copy. Returns its result, or -EIO. */
long memscope_private_copy_system_call(struct memscope_private_copy *copy, long number, const uint64_t arguments[6]);
