/* The forked child: its own state, what its host notices of it (nothing), and how it ends. Silent when right. */
#include "../expect.h"
#include "fork/forked_child.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#if __has_include(<linux/filter.h>) /* musl-gcc does not find the kernel's headers */
#define HAS_FILTERS 1
#include "../refuse_call.h"
#else
#define HAS_FILTERS 0
#endif

#define PATIENCE_MS 20000

static volatile sig_atomic_t signals;

static void count_signal(int number) {
    signals++;
}

static int open_files(void) {
    DIR *directory = opendir("/proc/self/fd");
    int count = 0;

    EXPECT(directory != NULL);
    while (readdir(directory) != NULL)
        count++;
    closedir(directory);
    return count;
}

static enum memscope_forked_progress receive(struct memscope_forked_child *child, void *bytes, size_t size) {
    enum memscope_forked_progress progress;
    size_t received = 0;

    do
        progress = memscope_forked_child_receive(child, bytes, size, &received);
    while (progress == MEMSCOPE_FORKED_INTERRUPTED);
    return progress;
}

/* ---- what it is ------------------------------------------------------------------------------------------------ */

struct seen {
    int handled_signals, blocked_signals, nice, dumpable;
    bool cores, answer_open, kept_open, others_open;
    char oom_score[8];
};

static bool is_open(int file) {
    return fcntl(file, F_GETFD) >= 0;
}

static bool look_around(void *argument, int answer) {
    int keep = *(int *)argument;
    struct seen seen = {.answer_open = is_open(answer), .kept_open = keep < 0 || is_open(keep)};
    struct rlimit cores;
    int file = -1;
    sigset_t blocked;

    for (int other = 0; other < 512; other++)
        seen.others_open |= other != answer && other != keep && is_open(other);
    for (int number = 1; number < NSIG; number++) {
        char action[64] = {0};

        if (syscall(SYS_rt_sigaction, number, NULL, action, _NSIG / 8) == 0)
            seen.handled_signals += *(void **)(void *)action != NULL;
    }
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    for (int number = 1; number < NSIG; number++)
        seen.blocked_signals += sigismember(&blocked, number) == 1;
    getrlimit(RLIMIT_CORE, &cores);
    seen.cores = cores.rlim_cur != 0 || cores.rlim_max != 0;
    seen.dumpable = prctl(PR_GET_DUMPABLE);
    seen.nice = getpriority(PRIO_PROCESS, 0);
    file = open("/proc/self/oom_score_adj", O_RDONLY);
    if (file >= 0) {
        (void)!read(file, seen.oom_score, sizeof seen.oom_score - 1);
        close(file);
    }
    return memscope_forked_child_answer(answer, &seen, sizeof seen);
}

static void test_what_it_is(void) {
    int files[8], keep, nice = getpriority(PRIO_PROCESS, 0);
    struct memscope_forked_child child;
    struct seen seen;
    sigset_t one;

    for (int round = 0; round < 2; round++) {
        for (int index = 0; index < 8; index++)
            files[index] = open("/dev/null", O_RDONLY);
        keep = round == 0 ? -1 : files[4];
        signal(SIGUSR1, count_signal);
        signal(SIGTERM, SIG_IGN);
        sigemptyset(&one);
        sigaddset(&one, SIGUSR2);
        sigprocmask(SIG_BLOCK, &one, NULL);
        EXPECT(memscope_forked_child_start(&child, look_around, &keep, keep, PATIENCE_MS) == MEMSCOPE_OK);
        EXPECT(child.pid > 0 && child.pause_ns > 0);
        EXPECT(receive(&child, &seen, sizeof seen) == MEMSCOPE_FORKED_ANSWERED);
        EXPECT(child.pid == 0);
        EXPECT(seen.handled_signals == 1 && seen.blocked_signals == 0); /* SIGPIPE */
        EXPECT(!seen.cores && seen.dumpable == 0);
        EXPECT(seen.answer_open && seen.kept_open && !seen.others_open);
        EXPECT(strncmp(seen.oom_score, "1000", 4) == 0 || getuid() != 0);
        EXPECT(seen.nice > nice || nice >= 19);
        sigprocmask(SIG_UNBLOCK, &one, NULL);
        for (int index = 0; index < 8; index++)
            close(files[index]);
    }
}

/* ---- how much it grows ----------------------------------------------------------------------------------------- */

#define INHERITED ((size_t)24 << 20)
#define GROWN ((size_t)40 << 20)

/* Memory that the child was forked with and writes to is no growth; memory that it has given back is. */
static bool grow(void *argument, int answer) {
    void *own = mmap(NULL, GROWN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint64_t grown;

    memset(argument, 2, INHERITED);
    memset(own, 1, GROWN);
    munmap(own, GROWN);
    grown = memscope_forked_child_grown_bytes();
    return memscope_forked_child_answer(answer, &grown, sizeof grown);
}

static void test_how_much_it_grows(void) {
    void *inherited = mmap(NULL, INHERITED, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct memscope_forked_child child;
    uint64_t grown;

    memset(inherited, 1, INHERITED);
    EXPECT(memscope_forked_child_start(&child, grow, inherited, -1, PATIENCE_MS) == MEMSCOPE_OK);
    EXPECT(receive(&child, &grown, sizeof grown) == MEMSCOPE_FORKED_ANSWERED);
    EXPECT(grown >= GROWN && grown < GROWN + INHERITED / 4);
    munmap(inherited, INHERITED);
}

/* ---- what its host sees of it ---------------------------------------------------------------------------------- */

static void count_fork(void) {
    signals++;
}

static bool sleep_long(void *argument, int answer) {
    sleep(60);
    return false;
}

static void test_the_host_sees_nothing(void) {
    struct memscope_forked_child child;
    int files = open_files(), status, host_pipe[2];
    char byte;

    signals = 0;
    signal(SIGCHLD, count_signal);
    pthread_atfork(count_fork, count_fork, count_fork);
    EXPECT(pipe(host_pipe) == 0);
    EXPECT(memscope_forked_child_start(&child, sleep_long, NULL, -1, PATIENCE_MS) == MEMSCOPE_OK);
    EXPECT(waitpid(-1, &status, WNOHANG) == -1 && errno == ECHILD);
    close(host_pipe[1]);
    EXPECT(read(host_pipe[0], &byte, 1) == 0); /* end of file, although the child is still alive */
    close(host_pipe[0]);
    memscope_forked_child_end(&child);
    EXPECT(child.pid == 0 && signals == 0);
    EXPECT(syscall(SYS_wait4, -1, &status, 0x40000000, NULL) == -1 && errno == ECHILD);
    EXPECT(open_files() == files);
    memscope_forked_child_end(&child);
    signal(SIGCHLD, SIG_DFL);
}

/* A host that ignores SIGCHLD, and that waits for every child with __WALL. */
static void test_something_else_has_reaped_it(void) {
    struct memscope_forked_child child;
    int status;

    signal(SIGCHLD, SIG_IGN);
    EXPECT(memscope_forked_child_start(&child, sleep_long, NULL, -1, PATIENCE_MS) == MEMSCOPE_OK);
    kill(child.pid, SIGKILL);
    EXPECT(syscall(SYS_wait4, -1, &status, 0x40000000, NULL) == child.pid);
    EXPECT(receive(&child, &status, sizeof status) == MEMSCOPE_FORKED_ENDED);
    EXPECT(child.pid == 0);
    signal(SIGCHLD, SIG_DFL);
}

/* ---- how it ends ----------------------------------------------------------------------------------------------- */

static void test_a_deadline(void) {
    struct memscope_forked_child child;
    char byte;

    /* TOO_SLOW even if the child's own timer has ended it first. */
    EXPECT(memscope_forked_child_start(&child, sleep_long, NULL, -1, 100) == MEMSCOPE_OK);
    EXPECT(receive(&child, &byte, 1) == MEMSCOPE_FORKED_TOO_SLOW);
    memscope_forked_child_end(&child);
    EXPECT(child.pid == 0);
}

static bool answer_half_and_crash(void *argument, int answer) {
    memscope_forked_child_answer(answer, "half", 4);
    raise(SIGSEGV);
    return true;
}

static void test_half_an_answer(void) {
    struct memscope_forked_child child;
    char answer[8];

    EXPECT(memscope_forked_child_start(&child, answer_half_and_crash, NULL, -1, PATIENCE_MS) == MEMSCOPE_OK);
    EXPECT(receive(&child, answer, sizeof answer) == MEMSCOPE_FORKED_ENDED);
    EXPECT(child.pid == 0);
}

static bool fill_the_pipe(void *argument, int answer) {
    static const char block[4096];

    for (int written = 0; written < 256; written++)
        if (!memscope_forked_child_answer(answer, block, sizeof block))
            return false;
    return true;
}

static void test_an_answer_larger_than_the_pipe(void) {
    static char answer[256 * 4096];
    struct memscope_forked_child child;

    EXPECT(memscope_forked_child_start(&child, fill_the_pipe, NULL, -1, PATIENCE_MS) == MEMSCOPE_OK);
    EXPECT(receive(&child, answer, sizeof answer) == MEMSCOPE_FORKED_ANSWERED);
}

static bool fill_a_pipe_that_nobody_reads(void *argument, int answer) {
    while (fill_the_pipe(argument, answer))
        continue;
    return false;
}

static void test_many_leave_nothing(void) {
    struct memscope_forked_child child;
    int files = open_files(), status;

    for (int round = 0; round < 50; round++) {
        EXPECT(memscope_forked_child_start(&child, fill_a_pipe_that_nobody_reads, NULL, -1, PATIENCE_MS) ==
               MEMSCOPE_OK);
        memscope_forked_child_end(&child);
    }
    EXPECT(open_files() == files);
    EXPECT(syscall(SYS_wait4, -1, &status, 0x40000000, NULL) == -1 && errno == ECHILD);
}

/* ---- refusals -------------------------------------------------------------------------------------------------- */

#if HAS_FILTERS

/* In a process of its own, since a seccomp filter cannot be removed. */
static void test_refusal(unsigned error, enum memscope_status expected) {
    pid_t pid = fork();
    int status;

    if (pid == 0) {
        struct memscope_forked_child child;
        int files = open_files();

        if (!refuse_call(SYS_clone, error))
            _exit(2);
        _exit(memscope_forked_child_start(&child, sleep_long, NULL, -1, PATIENCE_MS) == expected && child.pid == 0 &&
                      open_files() == files
                  ? 0
                  : 1);
    }
    EXPECT(waitpid(pid, &status, 0) == pid);
    EXPECT(WIFEXITED(status));
    if (WEXITSTATUS(status) == 2)
        SKIP("this kernel has no seccomp filters");
    EXPECT(WEXITSTATUS(status) == 0);
}

#else

static void test_refusal(unsigned error, enum memscope_status expected) {
}

#endif

int main(void) {
    test_what_it_is();
    test_how_much_it_grows();
    test_the_host_sees_nothing();
    test_something_else_has_reaped_it();
    test_a_deadline();
    test_half_an_answer();
    test_an_answer_larger_than_the_pipe();
    test_many_leave_nothing();
    test_refusal(EPERM, MEMSCOPE_DENIED);
    test_refusal(EAGAIN, MEMSCOPE_EXHAUSTED);
    test_refusal(ENOMEM, MEMSCOPE_NO_MEMORY);
    return 0;
}
