#include "malloc/jemalloc_control.h"

#include "malloc/allocator.h"
#include "malloc/jemalloc_keys.h"

#include <errno.h>
#include <string.h>
#include <sys/types.h>

static bool serves_malloc(void) {
    return memscope_allocator_current()->name == MEMSCOPE_ALLOCATOR_JEMALLOC;
}

/*
 * One mallctl. A key with arena.0 is that of `arena`. size is the size of *old and of *new. Actions take neither: NULL,
 * NULL and 0 (EPERM otherwise). EFAULT means "arena not in use", except for background_thread, where it means the
 * thread could not start.
 */
static enum memscope_status control(const char *key, unsigned arena, void *old, const void *new, size_t size) {
    struct memscope_jemalloc_binding jemalloc = memscope_jemalloc_binding();
    struct memscope_mib mib;
    size_t old_size = size;
    int error;

    if (!serves_malloc() || !jemalloc.by_name)
        return MEMSCOPE_UNSUPPORTED;
    mib = memscope_jemalloc_mib(&jemalloc, key);
    if (mib.length == 0)
        return MEMSCOPE_NOT_FOUND;
    if (strncmp(key, "arena.0.", 8) == 0)
        mib.parts[MEMSCOPE_MIB_CONTROL] = arena;
    error = jemalloc.by_mib(mib.parts, mib.length, old, old ? &old_size : NULL, (void *)new, new ? size : 0);
    if (error == EFAULT)
        return MEMSCOPE_NOT_FOUND;
    return error == 0 ? MEMSCOPE_OK : memscope_status_of_errno(error);
}

unsigned memscope_jemalloc_arena_count(void) {
    unsigned count;

    return control("arenas.narenas", 0, &count, NULL, sizeof count) == MEMSCOPE_OK ? count : 0;
}

static bool is_arena(unsigned arena) {
    return arena < memscope_jemalloc_arena_count();
}

enum memscope_status memscope_jemalloc_decay(void) {
    return control("arena.0.decay", MEMSCOPE_ALL_ARENAS, NULL, NULL, 0);
}

enum memscope_status memscope_jemalloc_purge(void) {
    return control("arena.0.purge", MEMSCOPE_ALL_ARENAS, NULL, NULL, 0);
}

enum memscope_status memscope_jemalloc_flush_thread_cache(void) {
    return control("thread.tcache.flush", 0, NULL, NULL, 0);
}

static enum memscope_status decay_ms(unsigned arena, enum memscope_jemalloc_decay_kind kind, ssize_t *old,
                                     const ssize_t *new) {
    bool dirty = kind == MEMSCOPE_JEMALLOC_DIRTY;

    if (!serves_malloc())
        return MEMSCOPE_UNSUPPORTED;
    if (arena == MEMSCOPE_LATER_ARENAS)
        return control(dirty ? "arenas.dirty_decay_ms" : "arenas.muzzy_decay_ms", 0, old, new, sizeof(ssize_t));
    if (!is_arena(arena))
        return MEMSCOPE_NOT_FOUND;
    return control(dirty ? "arena.0.dirty_decay_ms" : "arena.0.muzzy_decay_ms", arena, old, new, sizeof(ssize_t));
}

enum memscope_status memscope_jemalloc_read_decay_ms(unsigned arena, enum memscope_jemalloc_decay_kind kind,
                                                     int64_t *ms) {
    ssize_t old = 0;
    enum memscope_status status = decay_ms(arena, kind, &old, NULL);

    *ms = old;
    return status;
}

enum memscope_status memscope_jemalloc_set_decay_ms(unsigned arena, enum memscope_jemalloc_decay_kind kind,
                                                    int64_t ms) {
    ssize_t new = (ssize_t)ms;

    if (ms < -1 || ms > MEMSCOPE_JEMALLOC_MAX_DECAY_MS || new != ms)
        return MEMSCOPE_MALFORMED;
    return decay_ms(arena, kind, NULL, &new);
}

enum memscope_status memscope_jemalloc_read_background_thread(bool *on) {
    *on = false;
    return control("background_thread", 0, on, NULL, sizeof *on);
}

enum memscope_status memscope_jemalloc_set_background_thread(bool on) {
    bool was;
    enum memscope_status known = memscope_jemalloc_read_background_thread(&was), status;

    if (known != MEMSCOPE_OK)
        return known;
    status = control("background_thread", 0, NULL, &on, sizeof on);
    return status == MEMSCOPE_NOT_FOUND ? MEMSCOPE_IO : status;
}
