/*
 * The threads of a process, stopped by ptrace. Seizing stops nothing, and PTRACE_O_EXITKILL is never set on the
 * target: if the tracer ends, the kernel lets its threads go on. Every path ends in their release.
 */
#pragma once

#include "attach/ruby_target.h"

#define MEMSCOPE_MAX_TRACEES 4096

struct memscope_tracee {
    pid_t id;
    bool stopped; /* at PTRACE_EVENT_STOP */
    bool gone;
    struct memscope_registers registers; /* as it was stopped */
    uint64_t context;                    /* Ruby's execution context (ec), 0 if it is not a thread of Ruby */
    uint64_t thread, ractor;             /* of that */
};

struct memscope_tracees {
    pid_t pid;
    struct memscope_refusal *refusal; /* where to refuse, and why not */
    size_t count;
    struct memscope_tracee list[MEMSCOPE_MAX_TRACEES];
};

/*
 * Stops all threads of the target or, with `main_only`, that one, has `work` done, and lets them go on as they were.
 * Adds the time for which they were stopped to *pause_ns. Returns what `work` does, or false with a refusal if they
 * could not be stopped.
 */
bool memscope_tracees_visit(struct memscope_tracees *tracees, const struct memscope_ruby_target *target, bool main_only,
                            bool (*work)(void *context, struct memscope_tracees *tracees), void *context,
                            uint64_t *pause_ns);

/*
 * Before calls are made in a stopped thread, unless it alone was stopped: its registers show how its own call is
 * restarted. Returns false if it has ended, or has not stopped again.
 */
bool memscope_tracees_prepare(struct memscope_tracees *tracees, struct memscope_tracee *tracee);

/*
 * Makes a system call in a stopped thread of the target, and puts the thread back as it was, at a stop from which the
 * kernel restarts the thread's own system call. Meanwhile, its signals are blocked, except those of its own faults.
 * Wherever the tracer is killed in between, the thread heals itself (memscope_healing_frame). For clone, *child is the
 * id of the new process, whose stack the call fills in; else NULL. Returns false if the call was not made.
 */
bool memscope_tracee_system_call(const struct memscope_tracee *tracee, const struct memscope_entry_points *entry,
                                 long number, const uint64_t arguments[6], long *result, pid_t *child);

/*
 * Likewise calls a function that is async-signal-safe, on the thread's own stack. It returns to the end of the healing
 * frame, before which the tracer puts the thread back. Its result is not known.
 */
bool memscope_tracee_function(const struct memscope_tracee *tracee, const struct memscope_entry_points *entry,
                              uint64_t function, const uint64_t arguments[3]);

/*
 * From the exit of a system call to PTRACE_EVENT_STOP. At a system call, arm64 discards what is written to x7
 * (report_syscall in arch/arm64/kernel/ptrace.c).
 */
bool memscope_leave_system_call(pid_t thread);

/*
 * After an injected call, in the thread or in its copy: puts back the registers that the call has lost, from the
 * healing frame.
 */
bool memscope_registers_recover(pid_t thread, const struct memscope_registers *registers,
                                const struct memscope_entry_points *entry);

/*
 * Makes a system call in a stopped thread, from the registers `with`, and leaves the thread at the exit of the call.
 * Returns false if it does not end before the deadline.
 */
bool memscope_inject_system_call(pid_t thread, const struct memscope_registers *with, uint64_t instruction, long number,
                                 const uint64_t arguments[6], uint64_t deadline_ns, long *result);
