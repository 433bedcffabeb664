#include "attach/tracees.h"

#include "attach/tracing.h"
#include "base/directory.h"
#include "base/text_file.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* New threads, and the copy. The target's own children run on: a thread in vfork only stops once its child has. */
#define OPTIONS (PTRACE_O_TRACECLONE | PTRACE_O_TRACESYSGOOD)
/* Twice that for the main thread alone. */
#define STOP_NS UINT64_C(500000000)
#define RELEASE_NS UINT64_C(2000000000)
#define INJECTION_NS UINT64_C(10000000000) /* of a fork of some 100 GB */

/* ---- seizing --------------------------------------------------------------------------------------------------- */

static bool is_known(const struct memscope_tracees *tracees, pid_t id) {
    for (size_t index = 0; index < tracees->count; index++)
        if (tracees->list[index].id == id)
            return true;
    return false;
}

/* With the function of the kernel that it waits in: "0" for none, or if this user may not know. */
static bool refuse_unstopped(pid_t id, struct memscope_refusal *refusal) {
    char path[64], function[64];
    size_t length;

    snprintf(path, sizeof path, "/proc/%d/wchan", (int)id);
    if (memscope_text_file_read(path, function, sizeof function, &length) != MEMSCOPE_OK || strcmp(function, "0") == 0)
        snprintf(function, sizeof function, "unknown");
    return memscope_refuse_for(refusal, "not_stopped", "%d\n%s", (int)id, function);
}

/*
 * A thread that ends cannot be seized, and needs not be. One that did not stop, and so could not be released, is traced
 * by this process still.
 */
static bool may_leave_unseized(pid_t id, int error, struct memscope_refusal *refusal) {
    char path[32], text[4096], name[32] = "";
    size_t length;
    uint64_t tracer = 0;

    snprintf(path, sizeof path, "/proc/%d/status", (int)id);
    if (memscope_text_file_read(path, text, sizeof text, &length) != MEMSCOPE_OK ||
        strstr(text, "\nState:\tZ") != NULL || strstr(text, "\nState:\tX") != NULL)
        return true;
    memscope_text_number(text, "TracerPid", "", &tracer);
    if (tracer == (uint64_t)getpid())
        return refuse_unstopped(id, refusal);
    if (tracer == 0)
        return memscope_refuse_for(refusal, error == EPERM || error == EACCES ? "denied" : "not_seized", "%s",
                                   strerror(error));
    snprintf(path, sizeof path, "/proc/%d/comm", (int)tracer);
    if (memscope_text_file_read(path, name, sizeof name, &length) == MEMSCOPE_OK)
        name[strcspn(name, "\n")] = '\0';
    return memscope_refuse_for(refusal, "traced", "%d\n%s", (int)tracer, name);
}

static bool seize(struct memscope_tracees *tracees, pid_t id) {
    if (tracees->count == MEMSCOPE_MAX_TRACEES)
        return memscope_refuse_for(tracees->refusal, "too_many_threads", "%d", MEMSCOPE_MAX_TRACEES);
    if (!memscope_trace(PTRACE_SEIZE, id, 0, OPTIONS))
        return errno == ESRCH || may_leave_unseized(id, errno, tracees->refusal);
    tracees->list[tracees->count++] = (struct memscope_tracee){.id = id};
    return true;
}

static bool seize_listed(int id, void *context) {
    struct memscope_tracees *tracees = context;

    return is_known(tracees, id) || seize(tracees, id);
}

/* Lists the threads until no new one appears: those that seized threads create are seized by the kernel. */
static bool seize_all(struct memscope_tracees *tracees) {
    char path[32];
    size_t known;

    snprintf(path, sizeof path, "/proc/%d/task", (int)tracees->pid);
    do
        known = tracees->count;
    while (memscope_directory_numbers(path, seize_listed, tracees) == MEMSCOPE_OK &&
           tracees->refusal->text[0] == '\0' && tracees->count > known);
    return tracees->refusal->text[0] == '\0';
}

/* ---- stopping -------------------------------------------------------------------------------------------------- */

/* A thread that the target created meanwhile is seized by inheritance, and stopped at its birth. */
static void add_newborn(struct memscope_tracees *tracees, pid_t parent) {
    unsigned long id = 0;

    if (memscope_trace(PTRACE_GETEVENTMSG, parent, 0, (uintptr_t)&id) && tracees->count < MEMSCOPE_MAX_TRACEES &&
        !is_known(tracees, (pid_t)id))
        tracees->list[tracees->count++] = (struct memscope_tracee){.id = (pid_t)id};
}

/* The signal that a thread is about to take, or 0: it has stopped for another reason. */
static uintptr_t passed_on(int status) {
    bool is_signal = MEMSCOPE_STOP_EVENT(status) == 0 && WSTOPSIG(status) != MEMSCOPE_SYSTEM_CALL_STOP;

    return is_signal ? (uintptr_t)WSTOPSIG(status) : 0;
}

/* A signal on its way is delivered first: the thread then stops at the first instruction of its handler. */
static void follow(struct memscope_tracees *tracees, struct memscope_tracee *tracee, int status) {
    int event = MEMSCOPE_STOP_EVENT(status);

    if (!WIFSTOPPED(status)) {
        tracee->gone = true;
    } else if (event == PTRACE_EVENT_STOP) {
        tracee->stopped = true;
    } else if (event == PTRACE_EVENT_CLONE) {
        add_newborn(tracees, tracee->id);
        memscope_trace(PTRACE_CONT, tracee->id, 0, 0);
    } else {
        memscope_trace(PTRACE_CONT, tracee->id, 0, passed_on(status));
    }
}

static bool await_stop(struct memscope_tracees *tracees, struct memscope_tracee *tracee, uint64_t deadline_ns) {
    while (!tracee->stopped && !tracee->gone) {
        int status = 0;
        pid_t changed = memscope_trace_wait(tracee->id, &status, deadline_ns);

        if (changed == 0)
            return false;
        if (changed < 0)
            tracee->gone = true;
        else
            follow(tracees, tracee, status);
    }
    return true;
}

static bool stop(struct memscope_tracees *tracees, uint64_t deadline_ns) {
    bool all = true;

    for (size_t index = 0; index < tracees->count; index++)
        if (!memscope_trace(PTRACE_INTERRUPT, tracees->list[index].id, 0, 0))
            tracees->list[index].gone = true;
    /* After one that does not stop, the others are waited for too, so that they can be released at once. */
    for (size_t index = 0; index < tracees->count; index++) {
        struct memscope_tracee *tracee = &tracees->list[index];

        if (!await_stop(tracees, tracee, deadline_ns))
            all = refuse_unstopped(tracee->id, tracees->refusal);
        else if (tracee->stopped && !memscope_registers_read(tracee->id, &tracee->registers))
            tracee->gone = true;
    }
    return all;
}

/* The thread begins its call again, after the kernel has chosen which: restart_syscall for the rest of a time. */
bool memscope_tracees_prepare(struct memscope_tracees *tracees, struct memscope_tracee *tracee) {
    uint64_t deadline_ns = memscope_trace_now() + RELEASE_NS;
    int status = 0;

    if (!tracee->stopped || !memscope_registers_hide_restart(&tracee->registers))
        return tracee->stopped;
    tracee->stopped = false;
    if (!memscope_trace(PTRACE_SYSCALL, tracee->id, 0, 0) ||
        memscope_trace_wait(tracee->id, &status, deadline_ns) != tracee->id)
        return false;
    memscope_trace(PTRACE_INTERRUPT, tracee->id, 0, 0);
    follow(tracees, tracee, status);
    return await_stop(tracees, tracee, deadline_ns) && tracee->stopped &&
           memscope_registers_read(tracee->id, &tracee->registers);
}

static void release(struct memscope_tracees *tracees, struct memscope_tracee *tracee, uint64_t deadline_ns) {
    if (!tracee->gone && !tracee->stopped) {
        memscope_trace(PTRACE_INTERRUPT, tracee->id, 0, 0);
        await_stop(tracees, tracee, deadline_ns);
    }
    if (!tracee->gone)
        memscope_trace(PTRACE_DETACH, tracee->id, 0, 0);
}

/* First those that are stopped: the others may take long to stop. */
static void release_all(struct memscope_tracees *tracees) {
    uint64_t deadline_ns = memscope_trace_now() + RELEASE_NS;

    for (size_t index = 0; index < tracees->count; index++)
        if (tracees->list[index].stopped)
            release(tracees, &tracees->list[index], deadline_ns);
    for (size_t index = 0; index < tracees->count; index++)
        if (!tracees->list[index].stopped)
            release(tracees, &tracees->list[index], deadline_ns);
}

bool memscope_tracees_visit(struct memscope_tracees *tracees, const struct memscope_ruby_target *target, bool main_only,
                            bool (*work)(void *context, struct memscope_tracees *tracees), void *context,
                            uint64_t *pause_ns) {
    uint64_t start;
    bool done;

    tracees->pid = target->pid;
    tracees->count = 0;
    done = (main_only ? seize(tracees, target->pid) : seize_all(tracees)) &&
           ((tracees->count > 0 && memscope_ruby_target_lives(target)) || memscope_refuse(tracees->refusal, "ended"));
    start = memscope_trace_now(); /* seizing stops nothing */
    done = done && stop(tracees, start + (main_only ? 2 : 1) * STOP_NS) &&
           (!main_only || memscope_tracees_prepare(tracees, &tracees->list[0]) ||
            memscope_refuse(tracees->refusal, "ended")) &&
           work(context, tracees);
    release_all(tracees);
    *pause_ns += memscope_trace_now() - start;
    return done;
}

/* ---- one stopped thread ---------------------------------------------------------------------------------------- */

#define BIT(signal) (UINT64_C(1) << ((signal)-1))

/*
 * Runs the thread until its system call ends, whose result goes to *result, or, unless `back` is 0, until the entry of
 * the system call there. Stops at system calls are used instead of single steps: a forced SIGTRAP would reset the
 * target's disposition for it. Of the signals that are not a fault of the thread itself, only SIGSTOP cannot be
 * blocked. It is let through.
 */
static bool run(pid_t thread, uint64_t back, uint64_t deadline_ns, long *result, pid_t *child) {
    struct memscope_registers registers;
    uintptr_t signal = 0;
    bool entering = false;

    while (memscope_trace(PTRACE_SYSCALL, thread, 0, signal)) {
        unsigned long id = 0;
        int status = 0;

        if (memscope_trace_wait(thread, &status, deadline_ns) != thread || !WIFSTOPPED(status))
            return false;
        signal = passed_on(status);
        if (signal != 0 && signal != SIGSTOP)
            return false;
        if (child != NULL && MEMSCOPE_STOP_EVENT(status) == PTRACE_EVENT_CLONE &&
            memscope_trace(PTRACE_GETEVENTMSG, thread, 0, (uintptr_t)&id))
            *child = (pid_t)id;
        if (WSTOPSIG(status) != MEMSCOPE_SYSTEM_CALL_STOP)
            continue;
        entering = !entering;
        if (entering == (back == 0))
            continue;
        if (!memscope_registers_read(thread, &registers))
            return false;
        *result = memscope_registers_result(&registers);
        if (back == 0 || memscope_registers_at_call(&registers, back))
            return true;
    }
    return false;
}

bool memscope_inject_system_call(pid_t thread, const struct memscope_registers *with, uint64_t instruction, long number,
                                 const uint64_t arguments[6], uint64_t deadline_ns, long *result) {
    struct memscope_registers registers = *with;

    memscope_registers_set_system_call(&registers, instruction, number, arguments);
    return memscope_registers_write(thread, &registers) && run(thread, 0, deadline_ns, result, NULL);
}

bool memscope_registers_recover(pid_t thread, const struct memscope_registers *registers,
                                const struct memscope_entry_points *entry) {
    static const uint64_t none[6];
    struct memscope_registers with;
    long unused;

    return !memscope_registers_lost_by_call(registers, &with) ||
           memscope_inject_system_call(thread, &with, entry->restorer + MEMSCOPE_RESTORER_CALL_AT, SYS_rt_sigreturn,
                                       none, memscope_trace_now() + RELEASE_NS, &unused);
}

static bool put_signals(pid_t thread, uint64_t blocked) {
    return memscope_trace(PTRACE_SETSIGMASK, thread, sizeof blocked, (uintptr_t)&blocked);
}

bool memscope_leave_system_call(pid_t thread) {
    int status = 0;

    return memscope_trace(PTRACE_INTERRUPT, thread, 0, 0) && memscope_trace(PTRACE_CONT, thread, 0, 0) &&
           memscope_trace_wait(thread, &status, memscope_trace_now() + RELEASE_NS) == thread && WIFSTOPPED(status);
}

/* The signals are put back first: until the registers are, the thread would heal itself. */
static void settle(const struct memscope_tracee *tracee, uint64_t blocked) {
    if (!memscope_leave_system_call(tracee->id))
        return;
    put_signals(tracee->id, blocked);
    memscope_registers_write(tracee->id, &tracee->registers);
    memscope_trace(PTRACE_SETOPTIONS, tracee->id, 0, OPTIONS);
}

/*
 * Calls a function that returns to the restorer or, if that is 0, makes a system call. The restorer's own system call,
 * rt_sigreturn, is made when the thread is settled: it puts back all registers, the FPU's too, and then the thread
 * stops, before it takes any signal. The registers are set before the signals are blocked: from then on, the thread
 * would heal itself. For as long as the call takes, a seccomp filter of this thread is suspended.
 */
static bool inject(const struct memscope_tracee *tracee, const struct memscope_entry_points *entry, uint64_t function,
                   long number, const uint64_t *arguments, long *result, pid_t *child) {
    const uint64_t faults = BIT(SIGTRAP) | BIT(SIGSEGV) | BIT(SIGBUS) | BIT(SIGILL) | BIT(SIGFPE);
    uint64_t blocked = 0, stack = 0, filled[6];
    struct memscope_registers with;
    bool made;

    if (!memscope_trace(PTRACE_GETSIGMASK, tracee->id, sizeof blocked, (uintptr_t)&blocked) ||
        !memscope_healing_frame(tracee->id, entry, blocked, &tracee->registers, &with, &stack))
        return false;
    if (function != 0) {
        memscope_registers_set_healed_function(&with, function, arguments);
    } else {
        memcpy(filled, arguments, sizeof filled);
        if (child != NULL)
            filled[1] = stack;
        memscope_registers_set_system_call(&with, entry->system_call, number, filled);
    }
    made = (!entry->filtered || memscope_trace(PTRACE_SETOPTIONS, tracee->id, 0, OPTIONS | PTRACE_O_SUSPEND_SECCOMP)) &&
           memscope_registers_write(tracee->id, &with) && put_signals(tracee->id, ~faults) &&
           run(tracee->id, function == 0 ? 0 : entry->restorer + MEMSCOPE_RESTORER_CALL_AT,
               memscope_trace_now() + INJECTION_NS, result, child) &&
           (function != 0 || memscope_registers_recover(tracee->id, &tracee->registers, entry));
    settle(tracee, blocked);
    return made;
}

bool memscope_tracee_system_call(const struct memscope_tracee *tracee, const struct memscope_entry_points *entry,
                                 long number, const uint64_t arguments[6], long *result, pid_t *child) {
    return inject(tracee, entry, 0, number, arguments, result, child);
}

bool memscope_tracee_function(const struct memscope_tracee *tracee, const struct memscope_entry_points *entry,
                              uint64_t function, const uint64_t arguments[3]) {
    long unused;

    return inject(tracee, entry, function, 0, arguments, &unused, NULL);
}
