#include "sampling/import_counter.h"

#if defined(__GLIBC__) && (defined(__x86_64__) || defined(__aarch64__))

#include "elf/shared_objects.h"
#include "sampling/malloc_imports.h"

#include <errno.h>
#include <malloc.h>

/* Runs at every malloc and free. */
#pragma GCC optimize("O2")

static __thread struct {
    bool counts;
    uint64_t allocated, freed;
} thread;

static atomic_bool running;
static uint64_t patched_generation; /* 0 if an object was only half loaded */

/* ---- what stands in for the imports ------------------------------------------------------------------------------ */

static void *count(void *block) {
    if (thread.counts && block != NULL)
        thread.allocated += malloc_usable_size(block);
    return block;
}

static void *counted_malloc(size_t size) {
    return count(ORIGINAL(MALLOC, void *(*)(size_t))(size));
}

static void *counted_calloc(size_t number, size_t size) {
    return count(ORIGINAL(CALLOC, void *(*)(size_t, size_t))(number, size));
}

/* realloc(block, 0) may free the block and return NULL; with another size, NULL means that the block is unchanged. */
static void *counted_realloc(void *block, size_t size) {
    size_t before = thread.counts && block != NULL ? malloc_usable_size(block) : 0;
    void *moved = count(ORIGINAL(REALLOC, void *(*)(void *, size_t))(block, size));

    if (moved != NULL || size == 0)
        thread.freed += before;
    return moved;
}

static void *counted_reallocarray(void *block, size_t number, size_t size) {
    size_t bytes;

    if (__builtin_mul_overflow(number, size, &bytes)) {
        errno = ENOMEM;
        return NULL;
    }
    return counted_realloc(block, bytes);
}

static void counted_free(void *block) {
    if (thread.counts && block != NULL)
        thread.freed += malloc_usable_size(block);
    ORIGINAL(FREE, void (*)(void *))(block);
}

static int counted_posix_memalign(void **block, size_t alignment, size_t size) {
    int error = ORIGINAL(POSIX_MEMALIGN, int (*)(void **, size_t, size_t))(block, alignment, size);

    if (error == 0)
        count(*block);
    return error;
}

static void *counted_aligned_alloc(size_t alignment, size_t size) {
    return count(ORIGINAL(ALIGNED_ALLOC, void *(*)(size_t, size_t))(alignment, size));
}

static void *counted_memalign(size_t alignment, size_t size) {
    return count(ORIGINAL(MEMALIGN, void *(*)(size_t, size_t))(alignment, size));
}

/* ---- objects loaded later ---------------------------------------------------------------------------------------- */

static enum memscope_status patch(struct memscope_import_patches *patches) {
    uint64_t generation = memscope_shared_objects_generation();
    enum memscope_status status = memscope_imports_replace(imports, IMPORT_COUNT, &running, patches);

    patched_generation = patches->complete ? generation : 0;
    return status;
}

/*
 * Ruby loads an extension with dlopen and finds its Init_ with dlsym: before Init_ runs, the extension's imports are
 * replaced. Only the counting thread replaces imports, so it needs no lock. Its next dlsym also patches objects that
 * other threads have loaded.
 */
static void *patching_dlsym(void *handle, const char *name) {
    struct memscope_import_patches patches;

    if (handle != RTLD_NEXT && thread.counts && memscope_shared_objects_generation() != patched_generation)
        patch(&patches);
    /* Must be a tail call: the C library finds the scope of RTLD_NEXT by the return address. */
    return ((void *(*)(void *, const char *))late_hooks[0].original)(handle, name);
}

/* ---- start and stop ---------------------------------------------------------------------------------------------- */

enum memscope_status memscope_import_counter_start(void) {
    struct memscope_import_patches patches = {0}, ignored = {0};
    enum memscope_status status;

    if (!find_originals())
        return MEMSCOPE_UNSUPPORTED;
    atomic_store(&running, true);
    status = patch(&patches);
    if (status == MEMSCOPE_OK)
        status = memscope_imports_replace(late_hooks, 1, &running, &ignored);
    if (status == MEMSCOPE_OK && (patches.taken || patches.slots == 0))
        status = MEMSCOPE_NOT_FOUND;
    if (status != MEMSCOPE_OK)
        memscope_import_counter_stop();
    thread.allocated = thread.freed = 0;
    thread.counts = status == MEMSCOPE_OK;
    return status;
}

struct memscope_thread_bytes memscope_import_counter_bytes(void) {
    return (struct memscope_thread_bytes){&thread.allocated, &thread.freed};
}

void memscope_import_counter_stop(void) {
    if (!atomic_load(&running))
        return;
    thread.counts = false;
    atomic_store(&running, false);
    memscope_imports_restore(late_hooks, 1);
    memscope_imports_restore(imports, IMPORT_COUNT);
}

bool memscope_import_counter_runs(void) {
    return atomic_load(&running);
}

#else

enum memscope_status memscope_import_counter_start(void) {
    return MEMSCOPE_UNSUPPORTED;
}

struct memscope_thread_bytes memscope_import_counter_bytes(void) {
    return (struct memscope_thread_bytes){0};
}

void memscope_import_counter_stop(void) {
}

bool memscope_import_counter_runs(void) {
    return false;
}

#endif
