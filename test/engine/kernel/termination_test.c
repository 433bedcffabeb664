#include "../expect.h"
#include "kernel/termination.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __GLIBC__
#include "../refuse_call.h"
#endif

#define PIDFD_OPEN 434

static void test_parse(void) {
    uint64_t ticks = 0;
    const char *numbers = " S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 7777 20 21\n";
    char text[200] = "12 (a) (b c) 9)";

    EXPECT(memscope_process_started_parse(strcat(text, numbers), &ticks) == MEMSCOPE_OK && ticks == 7777);
    EXPECT(memscope_process_started_parse("12 (a) S 1 2", &ticks) == MEMSCOPE_MALFORMED);
    EXPECT(memscope_process_started_parse("", &ticks) == MEMSCOPE_MALFORMED);
}

static pid_t sleeping_child(void) {
    pid_t pid = fork();

    EXPECT(pid >= 0);
    if (pid == 0)
        for (;;)
            pause();
    return pid;
}

static void expect_terminated(pid_t pid) {
    int status;

    EXPECT(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
}

static void test_the_process_and_no_other(bool pidfd) {
    pid_t pid = sleeping_child();
    bool by_pidfd = !pidfd;
    uint64_t started = 0, again = 0;
    int status;

    EXPECT(memscope_process_started(pid, &started) == MEMSCOPE_OK && started > 0);
    EXPECT(memscope_process_terminate(pid, started + 1, &by_pidfd) == MEMSCOPE_NOT_FOUND);
    EXPECT(waitpid(pid, &status, WNOHANG) == 0);
    EXPECT(memscope_process_started(pid, &again) == MEMSCOPE_OK && again == started);
    EXPECT(memscope_process_terminate(pid, started, &by_pidfd) == MEMSCOPE_OK && by_pidfd == pidfd);
    expect_terminated(pid);
    EXPECT(memscope_process_started(pid, &again) == MEMSCOPE_NOT_FOUND);
    EXPECT(memscope_process_terminate(pid, started, &by_pidfd) == MEMSCOPE_NOT_FOUND);
}

/* The kernel keeps the status of a process that was reaped for descriptors that are older (Linux 6.15). */
static void test_how_it_ended(void) {
    pid_t pid = sleeping_child();
    uint64_t started = 0;
    int descriptor, status = 0, told = 0;

    EXPECT(memscope_process_started(pid, &started) == MEMSCOPE_OK);
    EXPECT(memscope_process_hold(pid, started + 1) == -1);
    descriptor = memscope_process_hold(pid, started);
    EXPECT(descriptor < 0 || !memscope_process_ended(descriptor, &told));
    kill(pid, SIGKILL);
    EXPECT(waitpid(pid, &status, 0) == pid && memscope_process_hold(pid, started) == -1);
    if (descriptor >= 0) {
        EXPECT(memscope_process_ended(descriptor, &told) && (told == status || told == -1));
        EXPECT(fcntl(descriptor, F_GETFD) == -1);
    }
}

#ifdef __GLIBC__
/* As on a kernel without pidfds (ENOSYS), or in an old container (EPERM). */
static void test_without_pidfds(unsigned error) {
    pid_t pid = fork();
    int status;

    EXPECT(pid >= 0);
    if (pid == 0) {
        if (refuse_call(PIDFD_OPEN, error))
            test_the_process_and_no_other(false);
        _exit(0);
    }
    EXPECT(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
#endif

int main(void) {
    int descriptor = (int)syscall(PIDFD_OPEN, getpid(), 0);
    bool pidfds = descriptor >= 0;

    if (pidfds)
        close(descriptor);
    test_parse();
    test_the_process_and_no_other(pidfds);
    test_how_it_ended();
#ifdef __GLIBC__
    test_without_pidfds(ENOSYS);
    test_without_pidfds(EPERM);
#endif
    return 0;
}
