#include "../expect.h"
#include "kernel/process.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)

static void test_statm_parse(void) {
    struct memscope_statm statm;
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

    EXPECT(memscope_statm_parse("3000 200 100 4 0 5 0\n", &statm) == MEMSCOPE_OK);
    EXPECT(statm.size_bytes == 3000 * page);
    EXPECT(statm.resident_bytes == 200 * page);
    EXPECT(statm.shared_bytes == 100 * page);
    EXPECT(memscope_statm_parse("3000 200", &statm) == MEMSCOPE_MALFORMED);
    EXPECT(memscope_statm_parse("", &statm) == MEMSCOPE_MALFORMED);
    EXPECT(memscope_statm_parse("-1 2 3", &statm) == MEMSCOPE_MALFORMED);
    EXPECT(memscope_statm_parse("18446744073709551615 2 3", &statm) == MEMSCOPE_MALFORMED);
}

static void test_memory_parse(void) {
    struct memscope_process_memory memory = {.figures = memscope_process_figures_unknown};
    static const char rollup[] = "55d1-7ffe ---p 00000000 00:00 0    [rollup]\nRss:  1628 kB\nPss:\t283 kB\n"
                                 "Pss_Dirty: 18446744073709551615 kB\nShared_Clean: 7\nSwap: 0 kB\n";

    EXPECT(memscope_process_memory_parse(rollup, "smaps_rollup", &memory) == MEMSCOPE_OK);
    EXPECT(memory.figures.rss_bytes != MEMSCOPE_UNKNOWN);
    EXPECT(memory.figures.rss_bytes == UINT64_C(1628) * 1024);
    EXPECT(memory.figures.pss_bytes == UINT64_C(283) * 1024);
    EXPECT(memory.figures.swap_bytes != MEMSCOPE_UNKNOWN);
    EXPECT(memory.figures.pss_dirty_bytes == MEMSCOPE_UNKNOWN);
    EXPECT(memory.figures.shared_clean_bytes == MEMSCOPE_UNKNOWN);
    EXPECT(memory.figures.lazy_free_bytes == MEMSCOPE_UNKNOWN);
    EXPECT(memscope_process_memory_parse("VmHWM:\t 8 kB\nTHP_enabled:\t0\nThreads:\t1", "status", &memory) ==
           MEMSCOPE_OK);
    EXPECT(memory.figures.peak_rss_bytes == 8192);
    EXPECT(memory.figures.thp_enabled == 0);
    EXPECT(memory.figures.threads == MEMSCOPE_UNKNOWN); /* cut short: it may have been 12 */
    EXPECT(memscope_process_memory_parse("Rss: 1 kB\n", "status", &memory) == MEMSCOPE_MALFORMED);
    EXPECT(memscope_process_memory_parse("", "status", &memory) == MEMSCOPE_MALFORMED);
}

static uint64_t rss(void) {
    struct memscope_statm statm;

    EXPECT(memscope_statm_read(&statm) == MEMSCOPE_OK);
    return statm.resident_bytes;
}

/* Reads a newly opened statm, with which the kept descriptor must agree. */
static uint64_t true_rss(void) {
    struct memscope_statm statm;
    char text[256];
    int descriptor = open("/proc/self/statm", O_RDONLY);
    ssize_t length = read(descriptor, text, sizeof text - 1);

    EXPECT(length > 0);
    text[length] = '\0';
    close(descriptor);
    EXPECT(memscope_statm_parse(text, &statm) == MEMSCOPE_OK);
    return statm.resident_bytes;
}

static void expect_truth(void) {
    uint64_t read = rss();
    uint64_t truth = true_rss();

    EXPECT(read + MIB > truth && truth + MIB > read);
}

static void touch(size_t size) {
    char *block = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    EXPECT(block != MAP_FAILED);
    memset(block, 1, size);
}

static bool is_statm(int descriptor) {
    char link[64], target[PATH_MAX];
    ssize_t length;

    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    length = readlink(link, target, sizeof target);
    return length > 6 && strncmp(target + length - 6, "/statm", 6) == 0;
}

static int count_statms(int *last) {
    int count = 0;

    for (int descriptor = 0; descriptor < 1024; descriptor++)
        if (is_statm(descriptor)) {
            count++;
            *last = descriptor;
        }
    return count;
}

static void in_child(void (*body)(void)) {
    int status;
    pid_t pid = fork();

    EXPECT(pid >= 0);
    if (pid == 0) {
        body();
        exit(0);
    }
    EXPECT(waitpid(pid, &status, 0) == pid);
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void *read_at_barrier(void *barrier) {
    pthread_barrier_wait(barrier);
    for (int turn = 0; turn < 100; turn++)
        rss();
    return NULL;
}

static void test_threads_open_one_descriptor(void) {
    pthread_t threads[8];
    pthread_barrier_t barrier;
    int descriptor;

    EXPECT(count_statms(&descriptor) == 0);
    EXPECT(pthread_barrier_init(&barrier, NULL, 8) == 0);
    for (int index = 0; index < 8; index++)
        EXPECT(pthread_create(&threads[index], NULL, read_at_barrier, &barrier) == 0);
    for (int index = 0; index < 8; index++)
        EXPECT(pthread_join(threads[index], NULL) == 0);
    EXPECT(count_statms(&descriptor) == 1);
    EXPECT(fcntl(descriptor, F_GETFD) & FD_CLOEXEC);
    expect_truth();
}

static void expect_own_rss(void) {
    uint64_t before = rss();
    int descriptor;

    expect_truth();
    touch(32 * MIB);
    EXPECT(rss() >= before + 32 * MIB);
    expect_truth();
    EXPECT(count_statms(&descriptor) == 1);
}

static void with_a_grandchild(void) {
    in_child(expect_own_rss);
    expect_own_rss();
    in_child(expect_own_rss);
}

static void read_after_reuse(void) {
    struct stat before, after;
    int descriptor, other;

    expect_truth();
    EXPECT(count_statms(&descriptor) == 1);
    other = open("/dev/zero", O_RDONLY);
    EXPECT(dup2(other, descriptor) == descriptor && fstat(descriptor, &before) == 0);
    expect_truth();
    EXPECT(fstat(descriptor, &after) == 0);
    EXPECT(before.st_ino == after.st_ino && before.st_dev == after.st_dev);
    expect_truth();
}

/* Every descriptor number is taken over by a file whose text looks like another process's statm. */
static void read_after_reuse_of_all(void) {
    FILE *file = tmpfile();
    int imposter;

    EXPECT(file && fputs("1 1 1 1 0 1 0\n", file) >= 0 && fflush(file) == 0);
    imposter = dup(fileno(file));
    expect_truth();
    for (int descriptor = 3; descriptor < 1000; descriptor++)
        if (descriptor != imposter)
            EXPECT(dup2(imposter, descriptor) == descriptor);
    expect_truth();
    for (int descriptor = 3; descriptor < 1000; descriptor++)
        EXPECT(fcntl(descriptor, F_GETFD) >= 0 && !is_statm(descriptor));
}

static void read_after_close_of_all(void) {
    expect_truth();
    for (int descriptor = 3; descriptor < 1024; descriptor++)
        close(descriptor);
    expect_truth();
    expect_truth();
}

static void stay_clear_of_standard_numbers(void) {
    close(0);
    read_after_close_of_all();
    EXPECT(fcntl(0, F_GETFD) < 0);
}

static void fail_in_an_empty_root(void) {
    struct memscope_statm statm;
    char directory[] = "process_test_XXXXXX";

    if (geteuid() != 0)
        SKIP("chroot needs root");
    EXPECT(mkdtemp(directory) && chroot(directory) == 0 && chdir("/") == 0);
    EXPECT(memscope_statm_read(&statm) == MEMSCOPE_NOT_FOUND);
    EXPECT(memscope_statm_read(&statm) == MEMSCOPE_NOT_FOUND);
}

static void read_on_signal(int signal) {
    struct memscope_statm statm;

    (void)signal;
    memscope_statm_read(&statm); /* NOLINT(bugprone-signal-handler): the test is that a handler may call it */
}

static void read_under_signals(void) {
    struct itimerval interval = {{0, 200}, {0, 200}};
    int descriptor;

    signal(SIGALRM, read_on_signal);
    EXPECT(setitimer(ITIMER_REAL, &interval, NULL) == 0);
    for (int turn = 0; turn < 20000; turn++) {
        struct memscope_statm statm;

        EXPECT(memscope_statm_read(&statm) == MEMSCOPE_OK);
    }
    signal(SIGALRM, SIG_IGN);
    EXPECT(count_statms(&descriptor) == 1);
}

static void test_memory_read(void) {
    struct memscope_process_memory memory;
    uint64_t read;

    EXPECT(memscope_process_memory_read("self", &memory) == MEMSCOPE_OK);
    EXPECT(memory.status == MEMSCOPE_OK && memory.smaps_rollup == MEMSCOPE_OK);
    EXPECT(memory.figures.threads != MEMSCOPE_UNKNOWN);
    EXPECT(memory.figures.threads >= 1); /* a sanitizer may have threads of its own */
    read = memory.figures.rss_bytes;
    EXPECT(read + MIB > true_rss() && true_rss() + MIB > read);
    EXPECT(memory.figures.peak_rss_bytes + MIB > read);
}

static void test_memory_read_of_another_process(void) {
    struct memscope_process_memory memory;
    char process[24];

    snprintf(process, sizeof process, "%ld", (long)getppid());
    EXPECT(memscope_process_memory_read(process, &memory) == MEMSCOPE_OK);
    EXPECT(memory.figures.virtual_bytes > 0 && memory.figures.virtual_bytes != MEMSCOPE_UNKNOWN);
    EXPECT(memscope_process_memory_read("0", &memory) == MEMSCOPE_NOT_FOUND);
    EXPECT(memory.found[0] == 0 && memory.found[1] == 0);
}

static void run_all(void) {
    in_child(fail_in_an_empty_root);
    test_threads_open_one_descriptor();
    in_child(fail_in_an_empty_root);
    in_child(with_a_grandchild);
    in_child(read_after_reuse);
    in_child(read_after_reuse_of_all);
    in_child(read_after_close_of_all);
    in_child(stay_clear_of_standard_numbers);
    in_child(read_under_signals);
    test_memory_read();
    test_memory_read_of_another_process();
}

int main(void) {
    test_statm_parse();
    test_memory_parse();
    run_all();
    return 0;
}
