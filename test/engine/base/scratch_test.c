#include "../expect.h"
#include "base/scratch.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

static size_t listed;

static void count(uintptr_t start, uintptr_t end, void *context) {
    const struct memscope_scratch *wanted = context;

    EXPECT(end > start);
    listed += wanted == NULL || start == (uintptr_t)wanted->base;
}

static size_t list_open(const struct memscope_scratch *wanted) {
    listed = 0;
    memscope_scratch_each(count, (void *)wanted);
    return listed;
}

static void test_takes_and_extends(void) {
    struct memscope_scratch scratch;
    char *first, *added;

    EXPECT(memscope_scratch_open(&scratch) == MEMSCOPE_OK);
    first = memscope_scratch_take(&scratch, 10);
    added = memscope_scratch_extend(&scratch, 1 << 20);
    EXPECT(first != NULL && added == first + 10);
    for (size_t index = 0; index < 1 << 20; index++)
        EXPECT(added[index] == 0);
    memset(first, 1, 10 + (1 << 20));
    EXPECT((uintptr_t)memscope_scratch_take(&scratch, 1) % 16 == 0);
    EXPECT(memscope_scratch_take(&scratch, SIZE_MAX) == NULL);
    EXPECT(memscope_scratch_extend(&scratch, scratch.reserved) == NULL);
    memscope_scratch_close(&scratch);
    memscope_scratch_close(&scratch);
}

static void test_lists_what_is_open(void) {
    struct memscope_scratch scratches[300];
    size_t with_slot = 0;

    for (int index = 0; index < 300; index++) {
        EXPECT(memscope_scratch_open(&scratches[index]) == MEMSCOPE_OK);
        with_slot += scratches[index].slot >= 0;
    }
    EXPECT(with_slot == 256 && list_open(NULL) == 256);
    for (int index = 0; index < 300; index++)
        memscope_scratch_close(&scratches[index]);
    EXPECT(list_open(NULL) == 0);
}

/* A child inherits neither the memory nor the list entry; a scratch that the child opens gets an entry. */
static void test_fork(void) {
    struct memscope_scratch scratch, own;
    int status;
    pid_t child;

    EXPECT(memscope_scratch_open(&scratch) == MEMSCOPE_OK);
    child = fork();
    EXPECT(child >= 0);
    if (child == 0) {
        EXPECT(list_open(NULL) == 0);
        EXPECT(memscope_scratch_open(&own) == MEMSCOPE_OK && list_open(&own) == 1);
        _exit(0);
    }
    EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    EXPECT(list_open(&scratch) == 1);
    memscope_scratch_close(&scratch);
}

/* More pages than one call of mincore covers. */
static void test_what_is_resident_of_what_lasts(void) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), pages = 3000;
    char *map = memscope_lasting_map(pages * page);

    EXPECT(map != NULL);
    EXPECT(memscope_lasting_resident_bytes(map, pages * page) == 0);
    map[0] = map[1500 * page + 17] = map[pages * page - 1] = 1;
    EXPECT(memscope_lasting_resident_bytes(map, pages * page) == 3 * page);
    EXPECT(memscope_lasting_resident_bytes(map + 1500 * page + 100, 1) == page);
    EXPECT(memscope_lasting_resident_bytes(map + 1499 * page + 100, page) == page);
    EXPECT(memscope_lasting_resident_bytes(map + 1501 * page, 1400 * page) == 0);
    EXPECT(memscope_lasting_resident_bytes(map, 0) == 0);
}

/* A program may lock all memory that it maps (mlockall), which would make all of a lasting mapping resident. */
static void test_what_lasts_is_not_locked(void) {
    const size_t bytes = (size_t)4 << 20;
    char *map;

    if (mlockall(MCL_FUTURE) != 0)
        return;
    map = memscope_lasting_map(bytes);
    munlockall();
    EXPECT(map != NULL && memscope_lasting_resident_bytes(map, bytes) == 0);
    map[100] = 1;
    EXPECT(memscope_lasting_resident_bytes(map, bytes) == (size_t)sysconf(_SC_PAGESIZE));
}

/* Wherever in a page the bytes begin, the page of the last one is resident too. */
static void test_pretouched_bytes_are_resident(void) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), sizes[] = {0, 1, 100, page - 100, page, 3 * page + 17};

    for (size_t index = 0; index < sizeof sizes / sizeof *sizes; index++) {
        struct memscope_scratch scratch;
        const char *next;

        EXPECT(memscope_scratch_open(&scratch) == MEMSCOPE_OK);
        next = (char *)memscope_scratch_take(&scratch, 2000) + 2000;
        memscope_scratch_pretouch(&scratch, sizes[index]);
        for (size_t offset = 0; offset < sizes[index]; offset++)
            EXPECT(memscope_lasting_resident_bytes(next + offset, 1) == page);
        memscope_scratch_close(&scratch);
    }
}

/* The sanitizer knows where a block ends, also after it was extended, and after the memory was taken again. */
static void test_poison_behind_blocks(void) {
#ifdef __SANITIZE_ADDRESS__
    struct memscope_scratch scratch;
    char *first, *second;

    EXPECT(memscope_scratch_open(&scratch) == MEMSCOPE_OK);
    first = memscope_scratch_take(&scratch, 100);
    EXPECT(memscope_scratch_extend(&scratch, 20) == first + 100);
    second = memscope_scratch_take(&scratch, 50);
    EXPECT(__asan_region_is_poisoned(first, 120) == NULL && __asan_region_is_poisoned(second, 50) == NULL);
    EXPECT(__asan_address_is_poisoned(first + 120) && __asan_address_is_poisoned(second - 1));
    scratch.used = 0;
    first = memscope_scratch_take(&scratch, 400);
    EXPECT(__asan_region_is_poisoned(first, 400) == NULL);
    memscope_scratch_close(&scratch);
#endif
}

int main(void) {
    test_takes_and_extends();
    test_poison_behind_blocks();
    test_lists_what_is_open();
    test_fork();
    test_what_is_resident_of_what_lasts();
    test_what_lasts_is_not_locked();
    test_pretouched_bytes_are_resident();
    return 0;
}
