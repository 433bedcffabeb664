#include "attach/tracing.h"

#include "fork/forked_child.h"

#include <errno.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static unsigned calls_left;

void memscope_trace_die_at(unsigned number) {
    calls_left = number;
}

static void count_call(void) {
    if (calls_left > 0 && --calls_left == 0)
        kill(getpid(), SIGKILL);
}

bool memscope_trace(int request, pid_t thread, uintptr_t address, uintptr_t data) {
    count_call();
    return ptrace(request, thread, (void *)address, (void *)data) == 0;
}

bool memscope_trace_get_set(pid_t thread, unsigned set, void *values, size_t *size) {
    struct iovec vector = {values, *size};

    if (!memscope_trace(PTRACE_GETREGSET, thread, set, (uintptr_t)&vector))
        return false;
    *size = vector.iov_len;
    return true;
}

bool memscope_trace_put_set(pid_t thread, unsigned set, const void *values, size_t size) {
    struct iovec vector = {(void *)(uintptr_t)values, size};

    return memscope_trace(PTRACE_SETREGSET, thread, set, (uintptr_t)&vector);
}

uint64_t memscope_trace_now(void) {
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* The kernel sends SIGCHLD for each change. It is blocked, so one that comes before sigtimedwait stays pending. */
pid_t memscope_trace_wait(pid_t which, int *status, uint64_t deadline_ns) {
    sigset_t child;

    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    for (;;) {
        pid_t changed = waitpid(which, status, __WALL | WNOHANG);
        uint64_t now = memscope_trace_now(), left = deadline_ns > now ? deadline_ns - now : 0;
        struct timespec wait = {.tv_sec = (time_t)(left / 1000000000u), .tv_nsec = (long)(left % 1000000000u)};

        if (changed != 0 && !(changed < 0 && errno == EINTR))
            return changed;
        if (left == 0)
            return 0;
        sigtimedwait(&child, NULL, &wait);
    }
}
