#include "../expect.h"
#include "base/mapped_array.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void test_grows_and_keeps(void) {
    uint32_t *array = memscope_array_map(1000, sizeof *array), *before;

    EXPECT(array != NULL && (uintptr_t)array % 64 == 0);
    for (uint32_t index = 0; index < 1000; index++) {
        EXPECT(array[index] == 0);
        array[index] = index;
    }
    for (size_t count = 2000; count < 4u << 20; count *= 2) {
        EXPECT(MEMSCOPE_ARRAY_RESERVE(array, count));
        EXPECT(array[999] == 999 && array[1000] == 0 && array[count - 1] == 0);
    }
    before = array;
    EXPECT(MEMSCOPE_ARRAY_RESERVE(array, 10) && array == before);
    EXPECT(!MEMSCOPE_ARRAY_RESERVE(array, SIZE_MAX / 2) && array == before && array[999] == 999);
    memscope_array_unmap(array);
}

static void test_reserves(void) {
    uint64_t *filled = NULL, *before;

    for (uint64_t number = 0; number < 100000; number++) {
        EXPECT(MEMSCOPE_ARRAY_RESERVE(filled, number + 1) && filled[number] == 0);
        filled[number] = number;
    }
    for (uint64_t number = 0; number < 100000; number++)
        EXPECT(filled[number] == number);
    before = filled;
    EXPECT(MEMSCOPE_ARRAY_RESERVE(filled, 10) && filled == before);
    EXPECT(!MEMSCOPE_ARRAY_RESERVE(filled, SIZE_MAX / 4) && filled == before && filled[99999] == 99999);
    memscope_array_unmap(filled);
}

/* Whether the array's mapping has this flag in smaps: "hg" asks for huge pages, "nh" forbids them. */
static bool is_flagged(const void *array, const char *flag) {
    FILE *smaps = fopen("/proc/self/smaps", "r");
    bool here = false, found = false;
    uintptr_t start, end;
    char line[512];

    while (smaps != NULL && fgets(line, sizeof line, smaps) != NULL)
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &start, &end) == 2)
            here = (uintptr_t)array >= start && (uintptr_t)array < end;
        else if (here && strncmp(line, "VmFlags:", 8) == 0)
            found = strstr(line, flag) != NULL;
    if (smaps != NULL)
        fclose(smaps);
    return found;
}

/* In its host, memscope asks for no huge pages; in a forked child it does, but not for sparse arrays. */
static void test_huge_pages(void) {
    void *before = memscope_array_map(8 << 20, 1), *sparse, *after;

    memscope_array_enter_child();
    sparse = memscope_array_map_sparse(8 << 20, 1);
    after = memscope_array_map(8 << 20, 1);
    EXPECT(before != NULL && sparse != NULL && after != NULL);
    EXPECT(!is_flagged(before, " hg") && !is_flagged(sparse, " hg"));
    if (access("/sys/kernel/mm/transparent_hugepage", R_OK) == 0 && access("/proc/self/smaps", R_OK) == 0)
        EXPECT(is_flagged(after, " hg"));
    memscope_array_unmap(before);
    memscope_array_unmap(sparse);
    memscope_array_unmap(after);
}

/* A thread keeps mappings where it was told to, until it is told otherwise. */
static void test_mappings_are_kept_for_a_while(void) {
    struct memscope_kept_mappings kept = {{NULL}};
    size_t size = 2 << 20;
    char *array = memscope_array_map(size, 1), *again;

    EXPECT(array != NULL);
    array[0] = 'x';
    memscope_array_keep_in(&kept);
    memscope_array_unmap(array);
    memscope_array_keep_in(NULL);
    EXPECT((again = memscope_array_map_unwritten(size, 1)) != NULL && again != array && again[0] == 0);
    memscope_array_keep_in(&kept);
    memscope_array_unmap(again);
    EXPECT(memscope_array_map_unwritten(size, 1) == array && array[0] == 'x');
    memscope_array_unmap(array);
    memscope_array_keep_in(NULL);
    EXPECT(kept.arrays[0] != NULL && kept.arrays[1] != NULL);
    memscope_kept_mappings_close(&kept);
    EXPECT(kept.arrays[0] == NULL && kept.arrays[1] == NULL);
    memscope_kept_mappings_close(&kept);
}

/* In a child, the mappings of unmapped arrays are reused, but only for arrays mapped unwritten. */
static void test_mappings_are_kept(void) {
    size_t size = 8 << 20;
    char *large = memscope_array_map_unwritten(size, 1), *small = memscope_array_map_unwritten(1000, 1),
         *sparse = memscope_array_map_sparse(size, 1), *again, *zeroed;

    EXPECT(large != NULL && small != NULL && sparse != NULL);
    memset(large, 'x', size);
    memscope_array_unmap(sparse);
    memscope_array_unmap(small);
    memscope_array_unmap(large);
    zeroed = memscope_array_map(size, 1);
    EXPECT(zeroed != NULL && zeroed != large && zeroed[0] == 0 && zeroed[size - 1] == 0);
    EXPECT((again = memscope_array_map_unwritten(size + 1, 1)) != large);
    memscope_array_unmap(again);
    EXPECT((again = memscope_array_map_unwritten(size - 1, 1)) == large && again[size - 2] == 'x');
    EXPECT(MEMSCOPE_ARRAY_RESERVE(again, 2 * size));
    EXPECT(again[0] == 'x' && again[size - 1] == 'x' && again[2 * size - 1] == 0);
    memscope_array_unmap(again);
    memscope_array_unmap(zeroed);
}

static void test_not_kept_before(void) {
    size_t size = 8 << 20;
    char *large = memscope_array_map_unwritten(size, 1);

    EXPECT(large != NULL);
    memset(large, 'x', size);
    memscope_array_unmap(large);
    large = memscope_array_map_unwritten(size, 1);
    EXPECT(large != NULL && large[0] == 0 && large[size - 1] == 0);
    memscope_array_unmap(large);
}

/* Mappings beyond those that can be kept are unmapped; of the kept ones, the smallest that suffices is reused. */
static void test_many_mappings(void) {
    char *arrays[20], *taken;

    for (size_t index = 0; index < 8; index++) /* what earlier tests left */
        EXPECT(memscope_array_map_unwritten((size_t)4 << 20, 1) != NULL);
    for (size_t index = 0; index < 20; index++)
        EXPECT((arrays[index] = memscope_array_map((20 - index) << 22, 1)) != NULL);
    for (size_t index = 0; index < 20; index++)
        memscope_array_unmap(arrays[index]);
    EXPECT((taken = memscope_array_map_unwritten((size_t)14 << 22, 1)) == arrays[6]);
    memscope_array_unmap(taken);
}

static void test_refuses_what_cannot_be(void) {
    EXPECT(memscope_array_map(SIZE_MAX, 1) == NULL);
    EXPECT(memscope_array_map(SIZE_MAX / 4, 8) == NULL);
    memscope_array_unmap(NULL);
    memscope_array_unmap(memscope_array_map(0, 4));
}

int main(void) {
    test_grows_and_keeps();
    test_reserves();
    test_refuses_what_cannot_be();
    test_not_kept_before();
    test_mappings_are_kept_for_a_while();
    test_huge_pages();
    test_mappings_are_kept();
    test_many_mappings();
    return 0;
}
