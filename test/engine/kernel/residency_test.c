#include "../expect.h"
#include "kernel/process.h"
#include "kernel/residency.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGES 64

static struct memscope_scratch list, names;
static const struct memscope_mappings_memory memory = {&list, &names};

#if __has_include(<linux/seccomp.h>) /* musl-gcc does not find the kernel's headers */

#include "../refuse_call.h"

/* Makes every ioctl of this process fail with ENOTTY, as PAGEMAP_SCAN does before Linux 6.7. */
static void deny_ioctl(void) {
    EXPECT(refuse_call(SYS_ioctl, ENOTTY));
}

#else

static void deny_ioctl(void) {
    SKIP("no seccomp headers to deny PAGEMAP_SCAN with");
}

#endif

/* Of every three pages, the first is written, and the second only read: it maps the zero page and so is in no RSS. */
static char *checkered_mapping(size_t page) {
    char *mapped = mmap(NULL, PAGES * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    volatile char sink = 0;

    EXPECT(mapped != MAP_FAILED);
    EXPECT(madvise(mapped, PAGES * page, MADV_NOHUGEPAGE) == 0 || errno == EINVAL);
    for (size_t index = 0; index < PAGES; index += 3) {
        mapped[index * page] = 1;
        if (index + 1 < PAGES)
            sink += mapped[(index + 1) * page];
    }
    (void)sink;
    return mapped;
}

static void read_residency(struct memscope_mappings *mappings, struct memscope_residency *residency) {
    list.used = names.used = 0;
    EXPECT(memscope_mappings_read(false, &memory, mappings) == MEMSCOPE_OK);
    EXPECT(memscope_residency_read(mappings, &memory, residency) == MEMSCOPE_OK);
}

static void check(enum memscope_residency_source source, const char *mapped, size_t page, bool zero_pages_told) {
    struct memscope_mappings mappings;
    struct memscope_residency residency;
    struct memscope_statm statm;
    uint64_t difference, sum = 0;

    for (int warm_up = 0; warm_up < 2; warm_up++) {
        read_residency(&mappings, &residency);
        EXPECT(memscope_statm_read(&statm) == MEMSCOPE_OK);
    }
    EXPECT(residency.source == source);
    difference = statm.resident_bytes > residency.resident_bytes ? statm.resident_bytes - residency.resident_bytes
                                                                 : residency.resident_bytes - statm.resident_bytes;
    EXPECT(difference <= 64 * 1024 + (zero_pages_told ? 0 : PAGES * page));
    for (size_t index = 0; index < residency.range_count; index++) {
        EXPECT(residency.ranges[index].start < residency.ranges[index].end);
        EXPECT(index == 0 || residency.ranges[index - 1].end < residency.ranges[index].start);
        sum += residency.ranges[index].end - residency.ranges[index].start;
    }
    EXPECT(sum == residency.resident_bytes);
    for (size_t index = 0; index < PAGES; index++) {
        uintptr_t start = (uintptr_t)mapped + index * page;
        uint64_t resident = memscope_residency_between(&residency, start, start + page);

        if (index % 3 != 1 || zero_pages_told)
            EXPECT(resident == (index % 3 == 0 ? page : 0));
    }
    EXPECT(memscope_residency_between(&residency, (uintptr_t)mapped + 1, (uintptr_t)mapped + 11) == 10);
}

/*
 * So many zero pages that pagemap exceeds RSS by more than the allowed drift; then smaps tells them from resident
 * pages.
 */
static void test_many_zero_pages_by_pagemap(size_t page) {
    size_t size = (size_t)8 << 20;
    volatile const char *mapped = mmap(NULL, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct memscope_mappings mappings;
    struct memscope_residency residency;
    char sink = 0;

    EXPECT(mapped != MAP_FAILED);
    for (size_t offset = 0; offset < size; offset += page)
        sink += mapped[offset];
    (void)sink;
    read_residency(&mappings, &residency);
    EXPECT(residency.source == MEMSCOPE_RESIDENCY_PAGEMAP);
    EXPECT(memscope_residency_between(&residency, (uintptr_t)mapped, (uintptr_t)mapped + size) == 0);
}

/* The kernel counts memory of hugetlbfs in no RSS. Here, an ordinary mapping has the name that such memory has. */
static void test_hugetlb_is_left_out(const char *mapped, size_t page) {
    struct memscope_mappings mappings;
    struct memscope_residency residency;
    uint64_t all;

    read_residency(&mappings, &residency);
    if (residency.source < MEMSCOPE_RESIDENCY_PAGEMAP)
        return;
    all = residency.resident_bytes;
    for (size_t index = 0; index < mappings.count; index++)
        if ((uintptr_t)mapped >= mappings.list[index].start && (uintptr_t)mapped < mappings.list[index].end)
            mappings.list[index].name = "/anon_hugepage (deleted)";
    EXPECT(memscope_residency_read(&mappings, &memory, &residency) == MEMSCOPE_OK);
    EXPECT(memscope_residency_between(&residency, (uintptr_t)mapped, (uintptr_t)mapped + PAGES * page) == 0);
    EXPECT(residency.resident_bytes < all);
}

static void test_what_is_mapped_later_is_not_listed(size_t page) {
    struct memscope_mappings mappings;
    struct memscope_residency residency;
    char *mapped;

    read_residency(&mappings, &residency);
    EXPECT(memscope_residency_is_listed(&residency, &mappings));
    mapped = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT(mapped != MAP_FAILED && memscope_is_mapped_by_now((uintptr_t)mapped));
    *mapped = 1;
    EXPECT(memscope_residency_read(&mappings, &memory, &residency) == MEMSCOPE_OK);
    EXPECT(memscope_residency_is_listed(&residency, &mappings) ==
           (residency.source != MEMSCOPE_RESIDENCY_PAGEMAP_SCAN));
    EXPECT(munmap(mapped, page) == 0 && !memscope_is_mapped_by_now((uintptr_t)mapped));
}

int main(void) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *mapped = checkered_mapping(page);
    struct memscope_mappings mappings;
    struct memscope_residency residency;

    EXPECT(memscope_scratch_open(&list) == MEMSCOPE_OK && memscope_scratch_open(&names) == MEMSCOPE_OK);
    read_residency(&mappings, &residency);
    if (residency.source == MEMSCOPE_RESIDENCY_PAGEMAP_SCAN)
        check(MEMSCOPE_RESIDENCY_PAGEMAP_SCAN, mapped, page, true);
    test_hugetlb_is_left_out(mapped, page);
    test_what_is_mapped_later_is_not_listed(page);
#ifdef __SANITIZE_ADDRESS__
    SKIP("pagemap is not read where a sanitizer maps terabytes");
#endif
    deny_ioctl();
    check(MEMSCOPE_RESIDENCY_PAGEMAP, mapped, page, false);
    test_hugetlb_is_left_out(mapped, page);
    test_many_zero_pages_by_pagemap(page);
    return 0;
}
