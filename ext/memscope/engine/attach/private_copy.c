#include "attach/private_copy.h"

#include "attach/remote_place.h"
#include "attach/tracing.h"
#include "fork/forked_child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* linux/futex.h, which is not among the headers of musl-gcc. */
enum { FUTEX_WAIT = 0, FUTEX_LOCK_PI = 6, FUTEX_WAIT_BITSET = 9, FUTEX_CMD_MASK = ~(128 | 256) };

#define BIRTH_NS UINT64_C(2000000000)
#define DRAIN_NS UINT64_C(1000000)
/* A lock that is free is taken at once. */
#define LOCK_NS UINT64_C(200000000)
#define REAP_TRIES 5
#define REAP_NS UINT64_C(2000000000)
#define NICE 5
#define OPTIONS                                                                                                        \
    (PTRACE_O_EXITKILL | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACESYSGOOD)

/* ---- the clone ------------------------------------------------------------------------------------------------- */

static bool clone_in(void *context, struct memscope_tracees *tracees) {
    struct memscope_private_copy *copy = context;
    struct memscope_tracee *tracee = memscope_ruby_threads_choose(copy->target, tracees);
    const uint64_t arguments[6] = {0}; /* no flags: the end of the copy sends no signal */
    uint64_t start = memscope_trace_now();
    long result = 0, number;
    bool made;

    if (tracee == NULL)
        return false;
    number = memscope_registers_system_call(&tracee->registers);
    /* After an earlier stop, restart_syscall waits for the rest of a time, in whatever call that was. */
    copy->waited =
        memscope_registers_blocked(&tracee->registers) && (number == SYS_futex || number == SYS_restart_syscall);
    made = memscope_tracees_prepare(tracees, tracee) &&
           memscope_tracee_system_call(tracee, &copy->target->entry, SYS_clone, arguments, &result, &copy->pid);
    copy->registers = tracee->registers;
    copy->fork_ns = memscope_trace_now() - start;
    copy->inner_pid = (pid_t)result;
    if (made && result > 0 && copy->pid > 0)
        return true;
    copy->pid = 0;
    if (!made)
        return memscope_refuse_for(copy->refusal, "no_stack", "%d", (int)tracee->id);
    return memscope_refuse_for(copy->refusal, "no_clone", "%s", strerror(result < 0 ? (int)-result : ECHILD));
}

/* The copy is born traced and stopped. */
static bool adopt(struct memscope_private_copy *copy) {
    char path[40];
    int status = 0, file;

    if (memscope_trace_wait(copy->pid, &status, memscope_trace_now() + BIRTH_NS) != copy->pid || !WIFSTOPPED(status) ||
        !memscope_trace(PTRACE_SETOPTIONS, copy->pid, 0, OPTIONS) ||
        !memscope_registers_recover(copy->pid, &copy->registers, &copy->target->entry))
        return memscope_refuse(copy->refusal, "copy_ended");
    snprintf(path, sizeof path, "/proc/%d/oom_score_adj", (int)copy->pid);
    file = open(path, O_WRONLY | O_CLOEXEC);
    if (file >= 0) {
        (void)!write(file, "1000", 4);
        close(file);
    }
    setpriority(PRIO_PROCESS, (id_t)copy->pid, NICE);
    return true;
}

bool memscope_private_copy_make(struct memscope_private_copy *copy, struct memscope_tracees *tracees) {
    return memscope_tracees_visit(tracees, copy->target, false, clone_in, copy, &copy->pause_ns) && adopt(copy);
}

/* ---- its end --------------------------------------------------------------------------------------------------- */

static void kill_copy(pid_t pid) {
    int status = 0;
    pid_t changed;

    kill(pid, SIGKILL);
    do
        changed = memscope_trace_wait(pid, &status, memscope_trace_now() + BIRTH_NS);
    while (changed == pid && WIFSTOPPED(status));
}

/* The end of the copy sends no signal, so only the target's own wait, with __WALL, removes it. */
static bool reap(void *context, struct memscope_tracees *tracees) {
    const struct memscope_private_copy *copy = context;
    const uint64_t arguments[6] = {(uint64_t)copy->inner_pid, 0, WNOHANG | __WALL, 0, 0, 0};
    long result = 0;

    return memscope_tracee_system_call(&tracees->list[0], &copy->target->entry, SYS_wait4, arguments, &result, NULL) &&
           (result == copy->inner_pid || result == -ECHILD);
}

bool memscope_private_copy_end(struct memscope_private_copy *copy, struct memscope_tracees *tracees) {
    uint64_t start;
    bool reaped = false;

    if (copy->pid <= 0)
        return true;
    kill_copy(copy->pid);
    copy->pid = 0;
    if (copy->pipe >= 0)
        close(copy->pipe);
    copy->pipe = -1;
    start = memscope_trace_now();
    for (int attempt = 0; attempt < REAP_TRIES && !reaped && memscope_trace_now() < start + REAP_NS; attempt++)
        reaped = memscope_tracees_visit(tracees, copy->target, true, reap, copy, &copy->reap_ns);
    return reaped;
}

/* ---- running --------------------------------------------------------------------------------------------------- */

static const struct {
    long number;
    bool only_at_safe_point;
} permitted[] = {
#define FORWARD(name) {SYS_##name, false},
#define READING(name) {SYS_##name, true},
#include "attach/copy_system_calls.def"
};

/* Files are only opened for reading. */
static bool is_permitted(const struct memscope_private_copy *copy, const struct memscope_registers *registers) {
    long number = memscope_registers_system_call(registers);
    int flags = number == SYS_openat ? 2 : -1;

#if defined(SYS_open)
    flags = number == SYS_open ? 1 : flags;
#endif
    if (flags >= 0 &&
        (memscope_registers_argument(registers, flags) & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC | O_APPEND)) != 0)
        return false;
    for (size_t index = 0; index < sizeof permitted / sizeof *permitted; index++)
        if (permitted[index].number == number)
            return copy->at_safe_point || !permitted[index].only_at_safe_point;
    return false;
}

/* The copy still runs, and is stopped to see where. */
static bool refuse_late(struct memscope_private_copy *copy) {
    struct memscope_registers registers;
    char place[MEMSCOPE_PLACE_BYTES] = "?";
    int status;

    if (memscope_trace(PTRACE_INTERRUPT, copy->pid, 0, 0) &&
        memscope_trace_wait(copy->pid, &status, memscope_trace_now() + BIRTH_NS) == copy->pid && WIFSTOPPED(status) &&
        memscope_registers_read(copy->pid, &registers))
        memscope_remote_place(copy->pid, memscope_registers_place(&registers), place, sizeof place);
    return memscope_refuse_for(copy->refusal, copy->at_safe_point ? "copy_slow" : "no_safe_point", "%s", place);
}

/* A copy that makes one system call after the other never waits, but has a deadline too. */
static pid_t wait_for(struct memscope_private_copy *copy, int *status, uint64_t deadline_ns) {
    uint64_t now;

    while ((now = memscope_trace_now()) < deadline_ns) {
        pid_t changed = memscope_trace_wait(
            copy->pid, status, copy->drain != NULL && now + DRAIN_NS < deadline_ns ? now + DRAIN_NS : deadline_ns);

        if (copy->drain != NULL && !copy->drain(copy->context, copy->pipe))
            return 0;
        if (changed != 0)
            return changed;
    }
    return 0;
}

/* A lock that another thread held at the clone is never unlocked in the copy, which has no such thread. */
static uint64_t deadline_of_call(const struct memscope_private_copy *copy, const struct memscope_registers *registers) {
    uint64_t operation = memscope_registers_argument(registers, 1) & FUTEX_CMD_MASK,
             soon_ns = memscope_trace_now() + LOCK_NS;
    bool waits = operation == FUTEX_WAIT || operation == FUTEX_WAIT_BITSET || operation == FUTEX_LOCK_PI,
         is_timed = memscope_registers_argument(registers, 3) != 0;

    if (memscope_registers_system_call(registers) != SYS_futex || !waits || is_timed || soon_ns > copy->deadline_ns)
        return copy->deadline_ns;
    return soon_ns;
}

/*
 * What a call returns instead of being made, or MADE. Before it reads from a process that it has started, Ruby makes
 * the pipe blocking, and aborts if it cannot. In the copy nobody writes to that pipe, so it must not block, whatever
 * Ruby thinks.
 */
enum { MADE = 1 };

static long instead_of(const struct memscope_private_copy *copy, const struct memscope_registers *registers) {
    if (!copy->at_safe_point && memscope_registers_system_call(registers) == SYS_fcntl &&
        memscope_registers_argument(registers, 1) == F_SETFL)
        return 0;
    return is_permitted(copy, registers) ? MADE : -EPERM;
}

/* Leaves the entry of the marker's system call, which is not made. */
static bool leave_marker(struct memscope_private_copy *copy, const struct memscope_registers *registers) {
    struct memscope_registers skipped = *registers;
    int status = 0;

    return memscope_registers_skip_call(copy->pid, &skipped) && memscope_trace(PTRACE_SYSCALL, copy->pid, 0, 0) &&
           wait_for(copy, &status, copy->deadline_ns) == copy->pid && WIFSTOPPED(status);
}

bool memscope_private_copy_run(struct memscope_private_copy *copy, struct memscope_registers *registers) {
    uint64_t deadline_ns = copy->deadline_ns;
    long instead = MADE;
    bool entering = false;

    while (memscope_trace(PTRACE_SYSCALL, copy->pid, 0, 0)) {
        int status = 0, signal;
        pid_t changed = wait_for(copy, &status, deadline_ns);

        if (changed == 0)
            return refuse_late(copy);
        if (changed < 0 || !WIFSTOPPED(status))
            break;
        signal = MEMSCOPE_STOP_EVENT(status) != 0 ? 0 : WSTOPSIG(status);
        if (signal == SIGSEGV || signal == SIGBUS || signal == SIGILL || signal == SIGABRT || signal == SIGFPE)
            return memscope_refuse_for(copy->refusal, "copy_failed", "%d", signal);
        if (signal != MEMSCOPE_SYSTEM_CALL_STOP) /* no other signal is delivered */
            continue;
        if (!memscope_registers_read(copy->pid, registers))
            break;
        if (!entering && memscope_registers_at_call(registers, copy->target->entry.system_call))
            return leave_marker(copy, registers) || memscope_refuse(copy->refusal, "copy_ended");
        entering = !entering;
        if (entering)
            instead = instead_of(copy, registers);
        if (instead != MADE && !(entering ? memscope_registers_skip_call(copy->pid, registers)
                                          : memscope_registers_set_result(copy->pid, registers, instead)))
            break;
        deadline_ns = entering ? deadline_of_call(copy, registers) : copy->deadline_ns;
    }
    return memscope_refuse(copy->refusal, "copy_ended");
}

bool memscope_private_copy_enter(struct memscope_private_copy *copy, uint64_t function, uint64_t first, uint64_t second,
                                 struct memscope_registers *registers) {
    const uint64_t arguments[3] = {first, second, 0};

    *registers = copy->registers;
    if (function == 0)
        return memscope_refuse_for(copy->refusal, "ruby_unknown", "%s", copy->target->version);
    if (!memscope_registers_set_function(copy->pid, registers, function, arguments, copy->target->entry.marker) ||
        !memscope_registers_write(copy->pid, registers))
        return memscope_refuse(copy->refusal, "copy_ended");
    return memscope_private_copy_run(copy, registers);
}

bool memscope_private_copy_call(struct memscope_private_copy *copy, uint64_t function, uint64_t first, uint64_t second,
                                uint64_t *result) {
    struct memscope_registers registers;

    if (!memscope_private_copy_enter(copy, function, first, second, &registers))
        return false;
    if (result != NULL)
        *result = memscope_registers_returned(&registers);
    return true;
}

long memscope_private_copy_system_call(struct memscope_private_copy *copy, long number, const uint64_t arguments[6]) {
    long result = 0;

    if (!memscope_inject_system_call(copy->pid, &copy->registers, copy->target->entry.system_call, number, arguments,
                                     copy->deadline_ns, &result))
        return -EIO;
    return result;
}
