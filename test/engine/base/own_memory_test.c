#include "../expect.h"
#include "base/own_memory.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOBODY 65534
#define SEEN ((uintptr_t)0x5a5a5a5a5a5a5a5a)

/* mapped: four pages, the first and third readable, the second unmapped, the fourth inaccessible. */
static void expect_readings(const struct memscope_own_memory *memory, uintptr_t mapped) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), addresses[600], values[600], seen = 0;
    static char copy[64 * 4096 * 16];
    static char large[sizeof copy];

    EXPECT(memscope_own_memory_read(memory, mapped, &seen, sizeof seen));
    EXPECT(seen == SEEN);
    EXPECT(!memscope_own_memory_read(memory, mapped + page, &seen, sizeof seen));
    EXPECT(!memscope_own_memory_read(memory, mapped + page - 4, &seen, sizeof seen));
    EXPECT(!memscope_own_memory_read(memory, 0, &seen, sizeof seen));

    memset(large, 7, sizeof large);
    EXPECT(memscope_own_memory_read(memory, (uintptr_t)large, copy, sizeof copy));
    EXPECT(memcmp(copy, large, sizeof copy) == 0);

    for (size_t index = 0; index < 600; index++)
        addresses[index] = mapped + (index % 3) * page; /* every third address is on the unmapped page */
    memset(values, 1, sizeof values);
    memscope_own_memory_read_each(memory, addresses, 600, sizeof values[0], values);
    for (size_t index = 0; index < 600; index++)
        EXPECT(values[index] == (index % 3 == 1 ? 0 : SEEN));
}

/* Memory that only this process maps. */
static long own_kib(void) {
    FILE *rollup = fopen("/proc/self/smaps_rollup", "r");
    char line[256];
    long kib, sum = 0;

    EXPECT(rollup != NULL);
    while (fgets(line, sizeof line, rollup) != NULL)
        if (sscanf(line, "Private_Clean: %ld", &kib) == 1 || sscanf(line, "Private_Dirty: %ld", &kib) == 1)
            sum += kib;
    fclose(rollup);
    return sum;
}

/* A forked child reads pages that it shares with its parent, and still shares them afterwards. */
static void expect_sharing(void) {
    static char heap[16 << 20], copy[64 << 10];
    int status;
    pid_t child;

    memset(heap, 1, sizeof heap);
    child = fork();
    if (child == 0) {
        struct memscope_own_memory memory;
        long before;

        memset(copy, 1, sizeof copy);
        EXPECT(memscope_own_memory_open(&memory) == MEMSCOPE_OK);
        before = own_kib();
        for (size_t at = 0; at < sizeof heap; at += sizeof copy)
            EXPECT(memscope_own_memory_read(&memory, (uintptr_t)heap + at, copy, sizeof copy));
        _exit(own_kib() - before < 2 << 10 ? 0 : 1);
    }
    EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(void) {
    struct memscope_own_memory memory;
    struct memscope_range window;
    struct rlimit no_files = {.rlim_cur = 0, .rlim_max = RLIM_INFINITY};
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *mapped = mmap(NULL, 4 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    EXPECT(mapped != MAP_FAILED);
    memset(mapped, 0x5a, 4 * page);
    EXPECT(munmap(mapped + page, page) == 0);
    EXPECT(mprotect(mapped + 3 * page, page, PROT_NONE) == 0);

    EXPECT(memscope_own_memory_open(&memory) == MEMSCOPE_OK);
    EXPECT(memory.refusal == MEMSCOPE_OK);
    window = memscope_own_memory_window(&memory);
    EXPECT(window.end - window.start == 65536);
    expect_readings(&memory, (uintptr_t)mapped);
    memscope_own_memory_close(&memory);
    expect_sharing();

    /* With this limit, a write to any file, even a memfd, would kill the process with SIGXFSZ. */
    EXPECT(setrlimit(RLIMIT_FSIZE, &no_files) == 0);
    EXPECT(memscope_own_memory_open(&memory) == MEMSCOPE_OK);
    EXPECT(memory.refusal == MEMSCOPE_DENIED);
    window = memscope_own_memory_window(&memory);
    EXPECT(window.end == window.start);
    expect_readings(&memory, (uintptr_t)mapped);
    memscope_own_memory_close(&memory);
    expect_sharing();

    /* A process that is neither dumpable nor root may not open /proc/self/mem, but may create a memfd. */
    EXPECT(getuid() != 0 || setuid(NOBODY) == 0);
    EXPECT(prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0);
    EXPECT(memscope_own_memory_open(&memory) == MEMSCOPE_OK);
    EXPECT(memory.refusal == MEMSCOPE_DENIED && memory.pipe_in >= 0);
    expect_readings(&memory, (uintptr_t)mapped);
    memscope_own_memory_close(&memory);
    no_files.rlim_cur = 65536;
    EXPECT(setrlimit(RLIMIT_FSIZE, &no_files) == 0);
    EXPECT(memscope_own_memory_open(&memory) == MEMSCOPE_OK);
    EXPECT(memory.refusal == MEMSCOPE_OK);
    expect_readings(&memory, (uintptr_t)mapped);
    memscope_own_memory_close(&memory);
    return 0;
}
