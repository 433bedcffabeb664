#include "fork/forked_child.h"

#include <string.h>

#include "base/descriptors.h"
#include "base/mapped_array.h"
#include "fork/fork_cost.h"
#include "kernel/own_children.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* A third of the scheduling weight at nice 0: yields to the host, but ends before too many pages are copied. */
#define NICE 5

/* The kernel's struct sigaction is smaller than this on every architecture. All zeros mean SIG_DFL. */
#define SIGACTION_BYTES 64
#define SIGNAL_SET_BYTES (_NSIG / 8)

static uint64_t ns_of(clockid_t clock) {
    struct timespec now;

    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ---- in the child ---------------------------------------------------------------------------------------------- */

/*
 * Uses the system call, since the C library's sigaction refuses the two signals that it reserves, whose handlers would
 * then stay.
 */
static void forget_signals(void) {
    static const char defaults[SIGACTION_BYTES];
    sigset_t none;

    for (int number = 1; number < _NSIG; number++)
        syscall(SYS_rt_sigaction, number, defaults, NULL, SIGNAL_SET_BYTES);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

/*
 * Ends this process once nobody will read its answer: the host has ended, or has executed another program. That program
 * is the parent now, and its wait(-1) does not see a child whose end sends no signal. A child that executes a program
 * itself becomes one whose end sends SIGCHLD, which it can reap. Without /bin/true it stays a zombie until that program
 * ends.
 */
static void take_leave(int number) {
    char *const arguments[] = {(char *)"memscope", NULL}, *const none[] = {NULL};

    (void)number;
    execve("/bin/true", arguments, none);
    _exit(1);
}

/*
 * musl stores the thread id near the beginning of the thread descriptor, and raise and abort signal that id. In the
 * child, it would still be the host's. glibc reads it from the kernel.
 */
static void correct_thread_id(pid_t of_host) {
#ifndef __GLIBC__
    pid_t *field = (pid_t *)pthread_self();

    for (size_t index = 0; index < 32; index++)
        if (field[index] == of_host)
            field[index] = (pid_t)syscall(SYS_gettid);
#endif
}

/*
 * Makes the OOM killer choose this process before its host, except where it ends whole groups (memory.oom.group, which
 * Kubernetes sets under cgroup v2). There only the check of the free room helps. Comes before leave_no_core, since only
 * a dumpable process may write the file.
 */
static void offer_to_the_oom_killer(void) {
    int file = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

    if (file < 0)
        return;
    (void)!write(file, "1000", 4);
    close(file);
}

static void leave_no_core(void) {
    const struct rlimit none = {0, 0};

    setrlimit(RLIMIT_CORE, &none);
    prctl(PR_SET_DUMPABLE, 0); /* a core that is piped to a program (core_pattern) ignores the limit */
}

struct directory_entry { /* struct linux_dirent64 */
    uint64_t inode;
    int64_t offset;
    unsigned short length;
    unsigned char type;
    char name[];
};

/*
 * Closes the descriptors that /proc/self/fd lists. Returns false if the directory cannot be opened. Each close shifts
 * the list, so the list is read until no descriptor is left to close.
 */
static bool close_listed(int first, int second) {
    char buffer[2048] __attribute__((aligned(8)));
    int directory = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool closed = true;

    if (directory < 0)
        return false;
    while (closed) {
        long bytes;

        closed = false;
        lseek(directory, 0, SEEK_SET);
        while ((bytes = syscall(SYS_getdents64, directory, buffer, sizeof buffer)) > 0) {
            for (long at = 0; at < bytes;) {
                const struct directory_entry *entry = (const void *)(buffer + at);
                int file = entry->name[0] == '.' ? -1 : atoi(entry->name);

                if (file >= 0 && file != first && file != second && file != directory)
                    closed |= close(file) == 0;
                at += entry->length;
            }
        }
    }
    close(directory);
    return true;
}

static bool close_range_of(int from, int to) {
#ifdef SYS_close_range
    return from > to || syscall(SYS_close_range, (unsigned)from, to < 0 ? ~0u : (unsigned)to, 0) == 0;
#else
    return false;
#endif
}

/* Closes every descriptor but these two, of which the second may be -1. close_range exists since Linux 5.9. */
static bool close_all_but(int first, int second) {
    int low = second >= 0 && second < first ? second : first, high = second > first ? second : first;

    if (close_range_of(0, low - 1) && close_range_of(low + 1, high - 1) && close_range_of(high + 1, INT32_MAX))
        return true;
    return close_listed(first, second);
}

bool memscope_forked_child_shed(int first, int second) {
    forget_signals();
    return close_all_but(first, second);
}

void memscope_forked_child_set_deadline(unsigned deadline_ms) {
    const struct itimerval deadline = {
        .it_value = {.tv_sec = deadline_ms / 1000, .tv_usec = (suseconds_t)(deadline_ms % 1000 * 1000)}};

    setitimer(ITIMER_REAL, &deadline, NULL);
}

/* Right after a fork, the kernel counts a process's peak from the RSS that it was forked with. */
static uint64_t peak_rss_bytes(void) {
    struct rusage usage;

    return getrusage(RUSAGE_SELF, &usage) == 0 ? (uint64_t)usage.ru_maxrss * 1024 : 0;
}

static uint64_t peak_rss_at_fork;
static bool is_child;

bool memscope_is_forked_child(void) {
    return is_child;
}

uint64_t memscope_forked_child_grown_bytes(void) {
    uint64_t peak = peak_rss_bytes();

    return peak > peak_rss_at_fork ? peak - peak_rss_at_fork : 0;
}

static _Noreturn void live(memscope_forked_work *work, void *argument, int answer, int keep, unsigned deadline_ms,
                           pid_t parent, pid_t thread) {
    is_child = true;
    peak_rss_at_fork = peak_rss_bytes();
    correct_thread_id(thread);
    forget_signals();
    memscope_forked_child_set_deadline(deadline_ms);
    signal(SIGPIPE, take_leave);
    prctl(PR_SET_PDEATHSIG, SIGPIPE);
    if (getppid() != parent || !close_all_but(answer, keep))
        _exit(1);
    offer_to_the_oom_killer();
    leave_no_core();
    setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + NICE);
    prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0); /* allows huge pages, which Ruby disables for its process and its children */
    memscope_array_enter_child();
    prctl(PR_SET_NAME, "memscope");
    _exit(work(argument, answer) ? 0 : 1);
}

bool memscope_forked_child_answer(int answer, const void *bytes, size_t size) {
    for (size_t written = 0; written < size;) {
        ssize_t count = write(answer, (const char *)bytes + written, size - written);

        if (count < 0 && errno != EINTR)
            return false;
        written += count > 0 ? (size_t)count : 0;
    }
    return true;
}

/* ---- in the parent --------------------------------------------------------------------------------------------- */

/* The order of the arguments, which differs between architectures, does not matter: all are 0. */
pid_t memscope_clone_quietly(void) {
    return (pid_t)syscall(SYS_clone, 0, 0, 0, 0, 0);
}

static enum memscope_status refusal(int error) {
    return error == EAGAIN ? MEMSCOPE_EXHAUSTED : memscope_status_of_errno(error);
}

/* All signals are blocked during the fork, since a handler of the host must not run in the child. */
enum memscope_status memscope_forked_child_start(struct memscope_forked_child *child, memscope_forked_work *work,
                                                 void *argument, int keep, unsigned deadline_ms) {
    pid_t parent = getpid(), thread = (pid_t)syscall(SYS_gettid);
    sigset_t all, before;
    uint64_t start, cpu_start;
    int ends[2], error;

    memset(child, 0, sizeof *child);
    if (!memscope_descriptors_of_pipe(ends))
        return memscope_status_of_errno(errno);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    start = ns_of(CLOCK_MONOTONIC);
    cpu_start = ns_of(CLOCK_THREAD_CPUTIME_ID);
    memscope_own_child_started();
    child->pid = memscope_clone_quietly();
    if (child->pid == 0)
        live(work, argument, ends[1], keep, deadline_ms, parent, thread);
    error = errno;
    child->cpu_ns = ns_of(CLOCK_THREAD_CPUTIME_ID) - cpu_start;
    child->pause_ns = ns_of(CLOCK_MONOTONIC) - start;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    memscope_descriptor_close(ends[1]);
    if (child->pid < 0) {
        memscope_own_child_ended();
        memscope_descriptor_close(ends[0]);
        memset(child, 0, sizeof *child);
        return refusal(error);
    }
    memscope_fork_took(child->cpu_ns);
    child->answer = ends[0];
    child->deadline_ns = start + (uint64_t)deadline_ms * 1000000;
    return MEMSCOPE_OK;
}

/* ECHILD counts as success, since another waiter has reaped the child, so it has ended. */
static void reap(struct memscope_forked_child *child) {
    while (waitpid(child->pid, NULL, __WALL) < 0 && errno == EINTR)
        continue;
    memscope_own_child_ended();
    child->pid = 0;
    memscope_descriptor_close(child->answer);
}

/* A child that ended after the deadline was too slow: its own timer may have ended it before this thread could. */
static enum memscope_forked_progress ended(struct memscope_forked_child *child) {
    memscope_forked_child_end(child);
    return ns_of(CLOCK_MONOTONIC) < child->deadline_ns ? MEMSCOPE_FORKED_ENDED : MEMSCOPE_FORKED_TOO_SLOW;
}

enum memscope_forked_progress memscope_forked_child_receive(struct memscope_forked_child *child, void *bytes,
                                                            size_t size, size_t *received) {
    while (*received < size) {
        uint64_t now = ns_of(CLOCK_MONOTONIC);
        struct pollfd answer = {.fd = child->answer, .events = POLLIN};
        ssize_t count;
        int ready;

        if (now >= child->deadline_ns)
            return MEMSCOPE_FORKED_TOO_SLOW;
        ready = poll(&answer, 1, (int)((child->deadline_ns - now) / 1000000) + 1);
        if (ready < 0)
            return MEMSCOPE_FORKED_INTERRUPTED;
        if (ready == 0)
            continue;
        count = read(child->answer, (char *)bytes + *received, size - *received);
        if (count < 0 && errno == EINTR)
            return MEMSCOPE_FORKED_INTERRUPTED;
        if (count <= 0)
            return ended(child);
        *received += (size_t)count;
    }
    reap(child);
    return MEMSCOPE_FORKED_ANSWERED;
}

void memscope_forked_child_end(struct memscope_forked_child *child) {
    if (child->pid <= 0)
        return;
    kill(child->pid, SIGKILL);
    reap(child);
}
