#include "../expect.h"
#include "base/descriptors.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define MANY 80 /* more than are noted */

static bool is_open(int descriptor) {
    return fcntl(descriptor, F_GETFD) >= 0;
}

static int open_null(void) {
    int descriptor = memscope_descriptor_open("/dev/null", O_RDONLY);

    EXPECT(descriptor >= 0 && (fcntl(descriptor, F_GETFD) & FD_CLOEXEC));
    return descriptor;
}

/* The status of a child that runs this; the bare system call runs no handlers. */
static int in_child(bool bare, int (*run)(const int *), const int *descriptors) {
    pid_t child = bare ? (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) : fork();
    int status;

    if (child == 0)
        _exit(run(descriptors));
    EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status));
    return WEXITSTATUS(status);
}

static int count_open(const int *descriptors) {
    int count = 0;

    for (int index = 0; index < 4; index++)
        count += is_open(descriptors[index]);
    return count;
}

static void test_a_forked_child_has_none(void) {
    int descriptors[4] = {open_null(), memscope_descriptor_of_memory("test"), -1, -1};

    EXPECT(memscope_descriptors_of_pipe(descriptors + 2));
    EXPECT(in_child(false, count_open, descriptors) == 0);
    EXPECT(in_child(true, count_open, descriptors) == 4);
    EXPECT(count_open(descriptors) == 4);
    for (int index = 0; index < 4; index++)
        memscope_descriptor_close(descriptors[index]);
    EXPECT(count_open(descriptors) == 0);
}

/* If the program's open returns a number that was closed, that descriptor is the program's. */
static void test_a_number_used_again(void) {
    int descriptors[4] = {open_null(), -1, -1, -1};

    memscope_descriptor_close(descriptors[0]);
    EXPECT(open("/dev/null", O_RDONLY) == descriptors[0]);
    EXPECT(in_child(false, count_open, descriptors) == 1);
    close(descriptors[0]);
}

/* A child made by the bare system call uses the number again, and forks. */
static int fork_again(const int *descriptors) {
    close(descriptors[0]);
    EXPECT(open("/dev/null", O_RDONLY) == descriptors[0]);
    return in_child(false, count_open, descriptors);
}

static void test_a_child_of_a_child(void) {
    int descriptors[4] = {open_null(), -1, -1, -1};

    EXPECT(in_child(true, fork_again, descriptors) == 1);
    memscope_descriptor_close(descriptors[0]);
}

static void test_more_than_are_noted(void) {
    int descriptors[MANY];

    for (int index = 0; index < MANY; index++)
        descriptors[index] = open_null();
    for (int index = 0; index < MANY; index++)
        memscope_descriptor_close(descriptors[index]);
    test_a_forked_child_has_none();
}

static void test_what_cannot_be_opened(void) {
    EXPECT(memscope_descriptor_open("/nonexistent", O_RDONLY) == -1 && errno == ENOENT);
    test_a_forked_child_has_none();
}

/* ---- beside other threads -------------------------------------------------------------------------------------- */

static atomic_bool over;

static void *open_and_close(void *unused) {
    while (!atomic_load(&over)) {
        int ends[2], descriptor = memscope_descriptor_open("/dev/null", O_RDONLY);

        EXPECT(memscope_descriptors_of_pipe(ends));
        memscope_descriptor_close(descriptor);
        memscope_descriptor_close(ends[0]);
        memscope_descriptor_close(ends[1]);
    }
    return unused;
}

/* All open descriptors below *highest: the program's own are counted before. */
static int count_all(const int *highest) {
    int count = 0;

    for (int descriptor = 0; descriptor < *highest; descriptor++)
        count += is_open(descriptor);
    return count;
}

static void test_forks_beside_threads(void) {
    const int highest = 64;
    int before = count_all(&highest);
    pthread_t threads[2];

    for (int index = 0; index < 2; index++)
        EXPECT(pthread_create(threads + index, NULL, open_and_close, NULL) == 0);
    for (int index = 0; index < 300; index++)
        EXPECT(in_child(false, count_all, &highest) == before);
    atomic_store(&over, true);
    for (int index = 0; index < 2; index++)
        pthread_join(threads[index], NULL);
    EXPECT(count_all(&highest) == before);
}

int main(void) {
    memscope_descriptors_guard();
    test_a_forked_child_has_none();
    test_a_number_used_again();
    test_a_child_of_a_child();
    test_more_than_are_noted();
    test_what_cannot_be_opened();
    test_forks_beside_threads();
    return 0;
}
