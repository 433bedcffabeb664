#include "sampling/block_owners.h"

#include <stdatomic.h>

#include "base/address_map.h"
#include "base/scratch.h"
#include "malloc/allocator.h"
#include "sampling/import_sampler.h"

#include <malloc.h>

/* The lowest bits of a glibc chunk's size are flags. */
#define CHUNK_FLAGS ((size_t)7)

struct tally {
    _Atomic(uint64_t) count, bytes;
};

static struct memscope_address_map *owners;
static struct tally *tallies; /* MEMSCOPE_OWNER_LIMIT of them */
static _Atomic(uint64_t) freed_unseen;
static bool glibc_serves;
static __thread uint32_t current;

/*
 * A table that grows by copying keeps its owner, as a block that realloc moves does. Otherwise a single file would be
 * charged with up to megabytes when it makes one of Ruby's own tables (frozen strings, symbols, loaded features)
 * double. Such a table allocates two new arrays, of twice the bytes, and then frees the old ones (st.c, rebuild_table),
 * with no allocation in between.
 */
#define TABLE_BYTES ((size_t)8 << 10) /* smaller arrays are ignored */
#define ARRAYS 2

static __thread struct {
    void *block; /* NULL if small, handed over, or freed */
    size_t bytes;
} newest[ARRAYS]; /* the last blocks that this thread allocated */
static __thread unsigned next_newest;

/* A block's bytes, as a ledger counts them. The block must be in use. */
static size_t bytes_of(void *block) {
    return glibc_serves ? ((const size_t *)block)[-1] & ~CHUNK_FLAGS : malloc_usable_size(block);
}

static void count(uint32_t owner, uint64_t blocks, uint64_t bytes) {
    atomic_fetch_add_explicit(&tallies[owner].count, blocks, memory_order_relaxed);
    atomic_fetch_add_explicit(&tallies[owner].bytes, bytes, memory_order_relaxed);
}

static void give(void *block, uint32_t owner) {
    if (memscope_address_map_get(owners, (uintptr_t)block) != 0)
        atomic_fetch_add_explicit(&freed_unseen, 1, memory_order_relaxed);
    memscope_address_map_set(owners, (uintptr_t)block, owner);
    if (memscope_address_map_get(owners, (uintptr_t)block) == owner)
        count(owner, 1, bytes_of(block));
}

static void add(void *block) {
    size_t bytes = bytes_of(block);

    give(block, memscope_owner());
    newest[next_newest].block = bytes >= TABLE_BYTES ? block : NULL;
    newest[next_newest].bytes = bytes;
    next_newest = (next_newest + 1) % ARRAYS;
}

/* Takes `bytes` from the caller, since another thread may have freed and unmapped the block. */
static uint32_t disown(void *block, size_t bytes) {
    uint32_t owner = memscope_address_map_take(owners, (uintptr_t)block);

    if (owner != 0)
        count(owner, UINT64_MAX, -(uint64_t)bytes);
    return owner;
}

/* Returns true if a new block has twice these bytes, within malloc's rounding. */
static bool is_double(size_t index, size_t bytes) {
    return newest[index].block && newest[index].bytes / 2 <= bytes + bytes / 8 &&
           newest[index].bytes / 2 >= bytes - bytes / 8;
}

/* Gives the freed block's owner to a new block that replaces it. Skipped in a GC, whose frees are not replacements. */
static void hand_over(void *block, uint32_t owner, size_t bytes) {
    for (size_t index = 0; index < ARRAYS; index++) {
        void *grown = newest[index].block;

        if (grown == block)
            newest[index].block = NULL;
        if (grown == block || memscope_owner() == MEMSCOPE_OWNER_RUBY || !is_double(index, bytes))
            continue;
        newest[index].block = NULL;
        if (disown(grown, newest[index].bytes) == 0)
            continue;
        if (owner != 0)
            give(grown, owner);
        return;
    }
}

static uint32_t forget(void *block) {
    size_t bytes;
    uint32_t owner;

    if (!block)
        return 0;
    bytes = bytes_of(block);
    owner = disown(block, bytes);
    if (bytes >= TABLE_BYTES / 2)
        hand_over(block, owner, bytes);
    return owner;
}

static void put_back(void *block, uint32_t owner, bool moved) {
    (void)moved;
    give(block, owner);
}

enum memscope_status memscope_block_owners_start(void) {
    static const struct memscope_block_record record = {add, forget, put_back};
    const struct memscope_allocator *allocator = memscope_allocator_current();

    glibc_serves = allocator->proved && allocator->name == MEMSCOPE_ALLOCATOR_GLIBC;
    owners = owners ? owners : memscope_address_map_create();
    tallies = tallies ? tallies : memscope_lasting_map(MEMSCOPE_OWNER_LIMIT * sizeof *tallies);
    return owners && tallies ? memscope_import_sampler_record(&record) : MEMSCOPE_NO_MEMORY;
}

void memscope_block_owners_stop(void) {
    memscope_import_sampler_stop();
}

uint32_t memscope_owner_set(uint32_t owner) {
    uint32_t before = memscope_owner();

    current = owner;
    return before;
}

uint32_t memscope_owner(void) {
    return current ? current : MEMSCOPE_OWNER_OUTSIDE;
}

void memscope_owner_give(uintptr_t address, uint32_t owner) {
    void *block = (void *)address;

    if (owners && memscope_address_map_get(owners, address) != 0 && disown(block, bytes_of(block)) != 0)
        give(block, owner);
}

struct memscope_owned_blocks memscope_owned_blocks(uint32_t owner) {
    if (!tallies)
        return (struct memscope_owned_blocks){0};
    return (struct memscope_owned_blocks){atomic_load(&tallies[owner].count), atomic_load(&tallies[owner].bytes)};
}

uint64_t memscope_blocks_freed_unseen(void) {
    return atomic_load(&freed_unseen);
}

uint64_t memscope_blocks_without_room(void) {
    return owners ? atomic_load(&owners->lost) : 0;
}
