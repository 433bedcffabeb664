#include "attach/tracees.h"

#if MEMSCOPE_CAN_ATTACH

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
static bool refuse_unstopped(pid_t pid, pid_t id, struct memscope_refusal *refusal) {
    char path[64], function[64];
    size_t length;

    snprintf(path, sizeof path, "/proc/%d/task/%d/wchan", (int)pid, (int)id);
    if (memscope_text_file_read(path, function, sizeof function, &length) != MEMSCOPE_OK || strcmp(function, "0") == 0)
        snprintf(function, sizeof function, "unknown");
    return memscope_refuse(refusal, "not_stopped", "%d\n%d\n%s", (int)pid, (int)id, function);
}

/* Such a thread cannot be seized, and needs not be. */
static bool is_ending(pid_t id) {
    char path[32], text[4096];
    size_t length;

    snprintf(path, sizeof path, "/proc/%d/status", (int)id);
    return memscope_text_file_read(path, text, sizeof text, &length) != MEMSCOPE_OK ||
           strstr(text, "\nState:\tZ") != NULL || strstr(text, "\nState:\tX") != NULL;
}

/* A thread that did not stop, and so could not be released, is traced by this process still. */
static bool refuse_seize(pid_t pid, pid_t id, int error, struct memscope_refusal *refusal) {
    char path[32], text[4096], name[32] = "";
    size_t length;
    uint64_t tracer = 0;

    snprintf(path, sizeof path, "/proc/%d/status", (int)id);
    if (memscope_text_file_read(path, text, sizeof text, &length) == MEMSCOPE_OK)
        memscope_text_number(text, "TracerPid", "", &tracer);
    if (tracer == (uint64_t)getpid())
        return refuse_unstopped(pid, id, refusal);
    if (tracer == 0)
        return memscope_refuse(refusal, error == EPERM || error == EACCES ? "denied" : "not_seized", "%d\n%s", (int)pid,
                               strerror(error));
    snprintf(path, sizeof path, "/proc/%d/comm", (int)tracer);
    if (memscope_text_file_read(path, name, sizeof name, &length) == MEMSCOPE_OK)
        name[strcspn(name, "\n")] = '\0';
    return memscope_refuse(refusal, "traced", "%d\n%d\n%s", (int)pid, (int)tracer, name);
}

static bool seize(struct memscope_tracees *tracees, pid_t id, struct memscope_refusal *refusal) {
    int error;

    if (tracees->count == MEMSCOPE_MAX_TRACEES)
        return memscope_refuse(refusal, "too_many_threads", "%d\n%d", (int)tracees->pid, MEMSCOPE_MAX_TRACEES);
    if (!memscope_trace(PTRACE_SEIZE, id, 0, OPTIONS)) {
        error = errno;
        return error == ESRCH || is_ending(id) || refuse_seize(tracees->pid, id, error, refusal);
    }
    tracees->list[tracees->count++] = (struct memscope_tracee){.id = id};
    return true;
}

struct seizing {
    struct memscope_tracees *tracees;
    struct memscope_refusal *refusal;
    bool more, refused;
};

static bool seize_listed(int id, void *context) {
    struct seizing *seizing = context;
    size_t known;

    if (is_known(seizing->tracees, id))
        return true;
    known = seizing->tracees->count;
    seizing->refused = !seize(seizing->tracees, id, seizing->refusal);
    seizing->more |= seizing->tracees->count > known;
    return !seizing->refused;
}

/* Lists the threads until no new one appears: those that seized threads create are seized by the kernel. */
static bool seize_all(struct memscope_tracees *tracees, struct memscope_refusal *refusal) {
    struct seizing seizing = {tracees, refusal, true, false};
    char path[32];

    snprintf(path, sizeof path, "/proc/%d/task", (int)tracees->pid);
    while (seizing.more && !seizing.refused) {
        seizing.more = false;
        if (memscope_directory_numbers(path, seize_listed, &seizing) != MEMSCOPE_OK)
            break;
    }
    return !seizing.refused && tracees->count > 0;
}

bool memscope_tracees_seize(struct memscope_tracees *tracees, pid_t pid, pid_t only, struct memscope_refusal *refusal) {
    tracees->pid = pid;
    tracees->count = 0;
    if (only != 0 ? seize(tracees, only, refusal) && tracees->count == 1 : seize_all(tracees, refusal))
        return true;
    memscope_tracees_release(tracees);
    return memscope_refuse(refusal, "ended", "%d", (int)pid);
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

bool memscope_tracees_stop(struct memscope_tracees *tracees, uint64_t deadline_ns, struct memscope_refusal *refusal) {
    bool all = true;

    for (size_t index = 0; index < tracees->count; index++)
        if (!memscope_trace(PTRACE_INTERRUPT, tracees->list[index].id, 0, 0))
            tracees->list[index].gone = true;
    /* After one that does not stop, the others are waited for too, so that they can be released at once. */
    for (size_t index = 0; index < tracees->count; index++) {
        struct memscope_tracee *tracee = &tracees->list[index];

        if (!await_stop(tracees, tracee, deadline_ns))
            all = refuse_unstopped(tracees->pid, tracee->id, refusal);
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
void memscope_tracees_release(struct memscope_tracees *tracees) {
    uint64_t deadline_ns = memscope_trace_now() + RELEASE_NS;

    for (size_t index = 0; index < tracees->count; index++)
        if (tracees->list[index].stopped)
            release(tracees, &tracees->list[index], deadline_ns);
    for (size_t index = 0; index < tracees->count; index++)
        if (!tracees->list[index].stopped)
            release(tracees, &tracees->list[index], deadline_ns);
    tracees->count = 0;
}

/* ---- one stopped thread ---------------------------------------------------------------------------------------- */

#define BIT(signal) (UINT64_C(1) << ((signal)-1))

/*
 * Stops at system calls are used instead of single steps: a forced SIGTRAP would reset the target's disposition for it.
 * Of the signals that are not a fault of the thread itself, only SIGSTOP cannot be blocked. It is let through.
 */
static bool run_system_call(pid_t thread, uint64_t deadline_ns, long *result, pid_t *child) {
    struct memscope_registers registers;
    uintptr_t signal = 0;

    for (int stops = 0; stops < 2;) {
        unsigned long id = 0;
        int status = 0, event;

        if (!memscope_trace(PTRACE_SYSCALL, thread, 0, signal) ||
            memscope_trace_wait(thread, &status, deadline_ns) != thread || !WIFSTOPPED(status))
            return false;
        event = MEMSCOPE_STOP_EVENT(status);
        stops += WSTOPSIG(status) == MEMSCOPE_SYSTEM_CALL_STOP;
        if (child != NULL && event == PTRACE_EVENT_CLONE &&
            memscope_trace(PTRACE_GETEVENTMSG, thread, 0, (uintptr_t)&id))
            *child = (pid_t)id;
        signal = passed_on(status);
        if (signal != 0 && signal != SIGSTOP)
            return false;
    }
    if (!memscope_registers_read(thread, &registers))
        return false;
    *result = memscope_registers_result(&registers);
    return true;
}

bool memscope_inject_system_call(pid_t thread, const struct memscope_registers *with, uint64_t instruction, long number,
                                 const uint64_t arguments[6], uint64_t deadline_ns, long *result) {
    struct memscope_registers registers = *with;

    memscope_registers_set_system_call(&registers, instruction, number, arguments);
    return memscope_registers_write(thread, &registers) && run_system_call(thread, deadline_ns, result, NULL);
}

bool memscope_registers_recover(pid_t thread, const struct memscope_registers *registers,
                                const struct memscope_entry_points *entry) {
    static const uint64_t none[6];
    struct memscope_registers with;
    long unused;

    return !memscope_registers_lost_by_call(registers, &with) ||
           memscope_inject_system_call(thread, &with, memscope_restorer_system_call(entry), SYS_rt_sigreturn, none,
                                       memscope_trace_now() + RELEASE_NS, &unused);
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

/* Writes a healing frame. Its registers go to *with, the thread's blocked signals to *blocked. */
static bool prepare_healing(const struct memscope_tracee *tracee, const struct memscope_entry_points *entry,
                            uint64_t *blocked, struct memscope_registers *with, uint64_t *stack) {
    return memscope_trace(PTRACE_GETSIGMASK, tracee->id, sizeof *blocked, (uintptr_t)blocked) &&
           memscope_healing_frame(tracee->id, entry, *blocked, &tracee->registers, with, stack);
}

/*
 * The registers are set before the signals are blocked: from then on, the thread would heal itself. For as long as the
 * call takes, a seccomp filter of this thread is suspended.
 */
static bool enter(const struct memscope_tracee *tracee, const struct memscope_entry_points *entry,
                  const struct memscope_registers *with) {
    uint64_t faults = BIT(SIGTRAP) | BIT(SIGSEGV) | BIT(SIGBUS) | BIT(SIGILL) | BIT(SIGFPE);

    return (!entry->filtered || memscope_trace(PTRACE_SETOPTIONS, tracee->id, 0, OPTIONS | PTRACE_O_SUSPEND_SECCOMP)) &&
           memscope_registers_write(tracee->id, with) && put_signals(tracee->id, ~faults);
}

bool memscope_tracee_system_call(const struct memscope_tracee *tracee, const struct memscope_entry_points *entry,
                                 long number, const uint64_t arguments[6], long *result, pid_t *child) {
    uint64_t blocked = 0, stack = 0, filled[6];
    struct memscope_registers with;
    bool made;

    if (!prepare_healing(tracee, entry, &blocked, &with, &stack))
        return false;
    memcpy(filled, arguments, sizeof filled);
    if (child != NULL)
        filled[1] = stack;
    memscope_registers_set_system_call(&with, entry->system_call, number, filled);
    made = enter(tracee, entry, &with) &&
           run_system_call(tracee->id, memscope_trace_now() + INJECTION_NS, result, child) &&
           memscope_registers_recover(tracee->id, &tracee->registers, entry);
    settle(tracee, blocked);
    return made;
}

/*
 * Until the entry of the restorer's system call, rt_sigreturn. It is made when the thread is settled: it puts back all
 * registers, the FPU's too, and then the thread stops, before it takes any signal.
 */
static bool run_function(pid_t thread, uint64_t back) {
    struct memscope_registers registers;
    uint64_t deadline_ns = memscope_trace_now() + INJECTION_NS;
    uintptr_t signal = 0;
    bool entering = false;

    while (memscope_trace(PTRACE_SYSCALL, thread, 0, signal)) {
        int status = 0;

        if (memscope_trace_wait(thread, &status, deadline_ns) != thread || !WIFSTOPPED(status))
            return false;
        signal = passed_on(status);
        if (signal != 0 && signal != SIGSTOP)
            return false;
        if (WSTOPSIG(status) != MEMSCOPE_SYSTEM_CALL_STOP)
            continue;
        entering = !entering;
        if (!memscope_registers_read(thread, &registers))
            return false;
        if (entering && memscope_registers_at_call(&registers, back))
            return true;
    }
    return false;
}

bool memscope_tracee_function(const struct memscope_tracee *tracee, const struct memscope_entry_points *entry,
                              uint64_t function, const uint64_t arguments[3]) {
    uint64_t blocked = 0, stack;
    struct memscope_registers with;
    bool made;

    if (!prepare_healing(tracee, entry, &blocked, &with, &stack))
        return false;
    memscope_registers_set_healed_function(&with, function, arguments);
    made = enter(tracee, entry, &with) && run_function(tracee->id, memscope_restorer_system_call(entry));
    settle(tracee, blocked);
    return made;
}

#endif
