#include "base/mapped_array.h"

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

/* Precedes the items in the mapping. */
struct header {
    size_t size; /* bytes of the mapping */
    bool sparse; /* without huge pages */
};

/* Bytes before the items. */
#define HEADER 64

/*
 * In a child, mappings of this size and more get huge pages: filling them takes 10 to 20 % less time and hardly more
 * memory.
 */
#define LARGE ((size_t)4 << 20)

/* Bytes of the smallest mapping that is kept for other arrays, in a child too. */
#define MIN_KEPT ((size_t)1 << 20)

static bool in_child;
static struct memscope_kept_mappings kept_in_child;
static __thread struct memscope_kept_mappings *kept_by_thread; /* NULL if none are kept */

/* A child does not use the thread's variable: its first use in a thread may call malloc, whose locks it inherits. */
static struct memscope_kept_mappings *kept_mappings(void) {
    return in_child ? &kept_in_child : kept_by_thread;
}

static bool size_mapping(size_t count, size_t item_size, size_t *size) {
    if (item_size != 0 && count > (PTRDIFF_MAX - HEADER) / item_size)
        return false;
    *size = HEADER + count * item_size;
    return true;
}

void memscope_array_enter_child(void) {
    in_child = true;
}

static struct header *header_of(void *array) {
    return (struct header *)(void *)((char *)array - HEADER);
}

static void *items_of(struct header *header) {
    return header == NULL ? NULL : (char *)header + HEADER;
}

/* With THP set to madvise, a mapping gets huge pages only by madvise. The kernel may refuse. */
static void advise(struct header *header, size_t size, bool sparse) {
    if (size >= LARGE && (sparse || in_child))
        madvise(header, size, sparse ? MADV_NOHUGEPAGE : MADV_HUGEPAGE);
}

static struct header *map(size_t size, bool sparse) {
    void *base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    struct header *header = base;

    if (base == MAP_FAILED)
        return NULL;
    advise(header, size, sparse);
    *header = (struct header){.size = size, .sparse = sparse};
    return header;
}

static bool keep(struct header *header) {
    struct memscope_kept_mappings *kept = kept_mappings();

    if (kept == NULL || header->sparse || header->size < MIN_KEPT)
        return false;
    for (size_t place = 0; place < MEMSCOPE_KEPT_MAPPINGS; place++)
        if (kept->arrays[place] == NULL) {
            kept->arrays[place] = items_of(header);
            return true;
        }
    return false;
}

/* The array of the smallest kept mapping of at least this size, or NULL. */
static void *take_kept(size_t size) {
    struct memscope_kept_mappings *kept = kept_mappings();
    void **best = NULL, *array;

    for (size_t place = 0; kept != NULL && size >= MIN_KEPT && place < MEMSCOPE_KEPT_MAPPINGS; place++) {
        array = kept->arrays[place];
        if (array != NULL && header_of(array)->size >= size &&
            (best == NULL || header_of(array)->size < header_of(*best)->size))
            best = &kept->arrays[place];
    }
    if (best == NULL)
        return NULL;
    array = *best;
    *best = NULL;
    return array;
}

void memscope_array_keep_in(struct memscope_kept_mappings *mappings) {
    if (!in_child)
        kept_by_thread = mappings;
}

void memscope_kept_mappings_close(struct memscope_kept_mappings *mappings) {
    memscope_array_keep_in(NULL);
    memscope_array_unmap_each(mappings->arrays, MEMSCOPE_KEPT_MAPPINGS);
    memset(mappings, 0, sizeof *mappings);
}

void *memscope_array_map(size_t count, size_t item_size) {
    size_t size;

    return size_mapping(count, item_size, &size) ? items_of(map(size, false)) : NULL;
}

void *memscope_array_map_sparse(size_t count, size_t item_size) {
    size_t size;

    return size_mapping(count, item_size, &size) ? items_of(map(size, true)) : NULL;
}

void *memscope_array_map_unwritten(size_t count, size_t item_size) {
    size_t size;
    void *array = size_mapping(count, item_size, &size) ? take_kept(size) : NULL;

    return array == NULL ? memscope_array_map(count, item_size) : array;
}

void memscope_array_unmap(void *array) {
    if (array != NULL) {
        struct header *header = header_of(array);

        if (!keep(header))
            munmap(header, header->size);
    }
}

void memscope_array_unmap_each(void *const *arrays, size_t count) {
    for (size_t index = 0; index < count; index++)
        memscope_array_unmap(arrays[index]);
}

static struct header *grow(struct header *header, size_t size) {
    void *base = mremap(header, header->size, size, MREMAP_MAYMOVE);

    if (base == MAP_FAILED)
        return NULL;
    header = base;
    header->size = size;
    return header;
}

bool memscope_array_reserve(void *place_of_array, size_t count, size_t item_size) {
    struct header *header;
    void *array;
    size_t size;

    memcpy(&array, place_of_array, sizeof array);
    if (!size_mapping(count, item_size, &size))
        return false;
    header = array == NULL ? map(size, false) : header_of(array);
    if (array != NULL && size > header->size)
        header = grow(header, size > 2 * header->size ? size : 2 * header->size);
    if (header == NULL)
        return false;
    array = items_of(header);
    memcpy(place_of_array, &array, sizeof array);
    return true;
}
