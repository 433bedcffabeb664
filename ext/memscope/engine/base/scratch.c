#include "base/scratch.h"

#include "base/range.h"

#include <limits.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

#define MAX_RESERVATION ((size_t)512 << 20)
#define MIN_RESERVATION ((size_t)4 << 20)
#define COMMIT_STEP ((size_t)256 << 10)
#define OPEN_LIMIT 256

/* With AddressSanitizer, poisoned bytes lie between blocks, so that it finds accesses past the end of a block. */
#ifndef __has_feature
#define __has_feature(feature) 0 /* of clang */
#endif
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
#include <sanitizer/asan_interface.h>
#define GAP ((size_t)16)
#else
#define GAP ((size_t)0)
#define ASAN_POISON_MEMORY_REGION(start, size)
#define ASAN_UNPOISON_MEMORY_REGION(start, size)
#endif

/*
 * `owner` is the pid of the process that the scratch belongs to, so that entries inherited across fork are recognised
 * as stale. -pid marks an entry under construction. EVERYONE marks a mapping that outlives the call and is inherited by
 * forked children.
 */
#define EVERYONE INT_MAX

static struct {
    _Atomic(pid_t) owner;
    _Atomic(uintptr_t) start;
    _Atomic(uintptr_t) end;
} open_scratches[OPEN_LIMIT];

static int list_scratch(uintptr_t start, uintptr_t end, pid_t as) {
    pid_t self = getpid();

    for (int slot = 0; slot < OPEN_LIMIT; slot++) {
        pid_t owner = atomic_load(&open_scratches[slot].owner);

        if (owner == self || owner == -self || owner == EVERYONE)
            continue;
        if (!atomic_compare_exchange_strong(&open_scratches[slot].owner, &owner, -self))
            continue;
        atomic_store(&open_scratches[slot].start, start);
        atomic_store(&open_scratches[slot].end, end);
        atomic_store(&open_scratches[slot].owner, as);
        return slot;
    }
    return -1;
}

void memscope_scratch_each(void (*visit)(uintptr_t start, uintptr_t end, void *context), void *context) {
    pid_t self = getpid();

    for (int slot = 0; slot < OPEN_LIMIT; slot++) {
        pid_t owner = atomic_load(&open_scratches[slot].owner);

        if (owner == self || owner == EVERYONE)
            visit(atomic_load(&open_scratches[slot].start), atomic_load(&open_scratches[slot].end), context);
    }
}

void *memscope_lasting_map(size_t needed) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), size = (needed + page - 1) & -page;
    void *base = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (base == MAP_FAILED)
        return NULL;
    munlock(base, size); /* after mlockall(MCL_FUTURE), all of it would be made resident when it becomes writable */
    if (mprotect(base, size, PROT_READ | PROT_WRITE) != 0) {
        munmap(base, size);
        return NULL;
    }
    madvise(base, size, MADV_NOHUGEPAGE);
    list_scratch((uintptr_t)base, (uintptr_t)base + size, EVERYONE);
    return base;
}

/* MADV_DONTNEED fails on locked pages (mlockall). */
void memscope_lasting_empty(void *start, size_t size) {
    if (madvise(start, size, MADV_DONTNEED) != 0)
        memset(start, 0, size);
}

size_t memscope_lasting_resident_bytes(const void *start, size_t bytes) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *first = (char *)((uintptr_t)start & -(uintptr_t)page);
    size_t pages = ((uintptr_t)start + bytes - (uintptr_t)first + page - 1) / page, resident = 0;
    unsigned char states[1024];

    for (size_t done = 0, part; done < pages; done += part) {
        part = pages - done < sizeof states ? pages - done : sizeof states;
        if (mincore(first + done * page, part * page, states) != 0)
            return pages * page;
        for (size_t index = 0; index < part; index++)
            resident += states[index] & 1;
    }
    return resident * page;
}

enum memscope_status memscope_scratch_open(struct memscope_scratch *scratch) {
    memset(scratch, 0, sizeof *scratch);
    for (size_t size = MAX_RESERVATION; size >= MIN_RESERVATION; size /= 2) {
        /* PROT_NONE is not charged against the overcommit limit. RLIMIT_AS may still refuse the larger sizes. */
        void *base = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        if (base == MAP_FAILED)
            continue;
        madvise(base, size, MADV_DONTFORK);
        scratch->base = base;
        scratch->reserved = size;
        scratch->slot = list_scratch((uintptr_t)base, (uintptr_t)base + size, getpid());
        return MEMSCOPE_OK;
    }
    return MEMSCOPE_NO_MEMORY;
}

static int commit(struct memscope_scratch *scratch, size_t needed) {
    size_t target = (needed + COMMIT_STEP - 1) / COMMIT_STEP * COMMIT_STEP;

    if (needed <= scratch->committed)
        return 1;
    if (scratch->base == NULL || target < needed || target > scratch->reserved)
        return 0;
    if (mprotect(scratch->base + scratch->committed, target - scratch->committed, PROT_READ | PROT_WRITE) != 0)
        return 0;
    scratch->committed = target;
    return 1;
}

void *memscope_scratch_extend(struct memscope_scratch *scratch, size_t size) {
    void *added = scratch->base + scratch->used;

    if (size > scratch->reserved - scratch->used || !commit(scratch, scratch->used + size))
        return NULL;
    scratch->used += size;
    ASAN_UNPOISON_MEMORY_REGION(added, size);
    return added;
}

void *memscope_scratch_take(struct memscope_scratch *scratch, size_t size) {
    size_t padding = (-scratch->used & 15) + GAP;

    if (padding > scratch->reserved - scratch->used || !commit(scratch, scratch->used + padding))
        return NULL;
    ASAN_POISON_MEMORY_REGION(scratch->base + scratch->used, padding);
    scratch->used += padding;
    return memscope_scratch_extend(scratch, size);
}

bool memscope_scratch_add(struct memscope_scratch *scratch, size_t *count, const void *item, size_t size) {
    void *added = memscope_scratch_extend(scratch, size);

    if (added == NULL)
        return false;
    memcpy(added, item, size);
    ++*count;
    return true;
}

bool memscope_scratch_add_range(struct memscope_scratch *scratch, size_t *count, uintptr_t start, uintptr_t end) {
    struct memscope_range *next = (struct memscope_range *)(void *)(scratch->base + scratch->used);

    if (*count == 0 || next[-1].end != start)
        return memscope_scratch_add(scratch, count, &(struct memscope_range){start, end}, sizeof *next);
    next[-1].end = end;
    return true;
}

void memscope_scratch_pretouch(struct memscope_scratch *scratch, size_t size) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    if (size > scratch->reserved - scratch->used || !commit(scratch, scratch->used + size))
        return;
    ASAN_UNPOISON_MEMORY_REGION(scratch->base + scratch->used, size);
    for (size_t offset = scratch->used; offset < scratch->used + size; offset += page)
        *(volatile char *)(scratch->base + offset) = 0;
    if (size > 0) /* the last byte may lie one page past the loop's last step */
        *(volatile char *)(scratch->base + scratch->used + size - 1) = 0;
}

void memscope_scratch_inherit(struct memscope_scratch *scratch, int inherited) {
    if (scratch->base != NULL)
        madvise(scratch->base, scratch->reserved, inherited ? MADV_DOFORK : MADV_DONTFORK);
}

void memscope_scratch_close(struct memscope_scratch *scratch) {
    if (scratch->base == NULL)
        return;
    ASAN_UNPOISON_MEMORY_REGION(scratch->base, scratch->committed);
    munmap(scratch->base, scratch->reserved);
    if (scratch->slot >= 0)
        atomic_store(&open_scratches[scratch->slot].owner, 0);
    memset(scratch, 0, sizeof *scratch);
}

void memscope_scratch_close_each(struct memscope_scratch *const *scratches, size_t count) {
    for (size_t index = 0; index < count; index++)
        memscope_scratch_close(scratches[index]);
}
