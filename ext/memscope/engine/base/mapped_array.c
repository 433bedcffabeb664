#include "base/mapped_array.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

/* Bytes before the items, in which the size of the mapping is kept. */
#define HEADER 64

/* From this size on, huge pages: filling an array takes 10 to 20 % less time, and hardly more memory. */
#define LARGE ((size_t)4 << 20)

static bool size_mapping(size_t count, size_t item_size, size_t *size) {
    if (item_size != 0 && count > (PTRDIFF_MAX - HEADER) / item_size)
        return false;
    *size = HEADER + count * item_size;
    return true;
}

static bool prefers_huge_pages;

void memscope_array_prefer_huge_pages(void) {
    prefers_huge_pages = true;
}

#if defined(MADV_HUGEPAGE) && defined(MADV_NOHUGEPAGE)
#define ADVICE (prefers_huge_pages ? MADV_HUGEPAGE : MADV_NORMAL)
#define ADVICE_FOR_SPARSE MADV_NOHUGEPAGE
#else
#define ADVICE MADV_NORMAL
#define ADVICE_FOR_SPARSE MADV_NORMAL
#endif

static void *map(size_t size, int advice) {
    char *base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (base == MAP_FAILED)
        return NULL;
    if (size >= LARGE && advice != MADV_NORMAL)
        madvise(base, size, advice); /* by the kernel's default, this asks for them; it may refuse */
    *(size_t *)base = size;
    return base + HEADER;
}

void *memscope_array_map(size_t count, size_t item_size) {
    size_t size;

    return size_mapping(count, item_size, &size) ? map(size, ADVICE) : NULL;
}

void *memscope_array_map_sparse(size_t count, size_t item_size) {
    size_t size;

    return size_mapping(count, item_size, &size) ? map(size, ADVICE_FOR_SPARSE) : NULL;
}

void *memscope_array_grow(void *array, size_t count, size_t item_size) {
    char *base = (char *)array - HEADER;
    size_t old = *(size_t *)base, size;

    if (!size_mapping(count, item_size, &size))
        return NULL;
    if (size <= old)
        return array;
#ifdef MREMAP_MAYMOVE
    base = mremap(base, old, size, MREMAP_MAYMOVE);
    if (base == MAP_FAILED)
        return NULL;
    *(size_t *)base = size;
    return base + HEADER;
#else
    char *larger = map(size, ADVICE);

    if (larger == NULL)
        return NULL;
    memcpy(larger, array, old - HEADER);
    munmap(base, old);
    return larger;
#endif
}

void memscope_array_unmap(void *array) {
    if (array != NULL) {
        char *base = (char *)array - HEADER;

        munmap(base, *(size_t *)base);
    }
}
