#include "base/address_map.h"

#include "base/scratch.h"

#define ROOM_BYTES ((uint64_t)1 << 30)
#define UNITS (sizeof((struct memscope_address_chunk *)0)->numbers / sizeof(uint32_t))
#define CHUNKS (sizeof((struct memscope_address_branch *)0)->chunks / sizeof(void *))

struct memscope_address_map *memscope_address_map_create(void) {
    struct memscope_address_map *map = memscope_lasting_map(sizeof *map + ROOM_BYTES);

    if (map != NULL)
        map->room = (char *)(map + 1);
    return map;
}

/* Returns zeroed room, or NULL. Room taken by a thread that then loses the race to install it stays unused. */
static void *take(struct memscope_address_map *map, size_t bytes) {
    uint64_t at = atomic_fetch_add_explicit(&map->taken, bytes, memory_order_relaxed);

    return at + bytes <= ROOM_BYTES ? map->room + at : NULL;
}

/* The branch or chunk at a place, put there if there is none. NULL if no room is left. */
static void *put(struct memscope_address_map *map, _Atomic(void *) *place, size_t bytes) {
    void *known = atomic_load_explicit(place, memory_order_acquire), *added;

    if (known != NULL || (added = take(map, bytes)) == NULL)
        return known;
    return atomic_compare_exchange_strong(place, &known, added) ? added : known;
}

static struct memscope_address_chunk *chunk_at(struct memscope_address_map *map, uintptr_t address) {
    struct memscope_address_branch *branch =
        put(map, &map->branches[address >> MEMSCOPE_ADDRESS_BRANCH_BITS], sizeof *branch);

    return branch == NULL ? NULL
                          : put(map, &branch->chunks[(address >> MEMSCOPE_ADDRESS_CHUNK_BITS) % CHUNKS],
                                sizeof(struct memscope_address_chunk));
}

/* The address's chunk if it exists already, or NULL. */
static struct memscope_address_chunk *known_chunk(const struct memscope_address_map *map, uintptr_t address) {
    struct memscope_address_branch *branch;

    if (map == NULL || address >> MEMSCOPE_ADDRESS_BITS != 0)
        return NULL;
    branch = atomic_load_explicit(&map->branches[address >> MEMSCOPE_ADDRESS_BRANCH_BITS], memory_order_acquire);
    if (branch == NULL)
        return NULL;
    return atomic_load_explicit(&branch->chunks[(address >> MEMSCOPE_ADDRESS_CHUNK_BITS) % CHUNKS],
                                memory_order_acquire);
}

void memscope_address_map_set(struct memscope_address_map *map, uintptr_t address, uint32_t number) {
    struct memscope_address_chunk *chunk = known_chunk(map, address);

    if (chunk == NULL && number == 0)
        return;
    if (chunk == NULL && address >> MEMSCOPE_ADDRESS_BITS == 0)
        chunk = chunk_at(map, address);
    if (chunk == NULL)
        atomic_fetch_add_explicit(&map->lost, 1, memory_order_relaxed);
    else
        atomic_store_explicit(&chunk->numbers[(address >> MEMSCOPE_ADDRESS_UNIT_BITS) % UNITS], number,
                              memory_order_relaxed);
}

uint32_t memscope_address_map_get(const struct memscope_address_map *map, uintptr_t address) {
    const struct memscope_address_chunk *chunk = known_chunk(map, address);

    if (chunk == NULL)
        return 0;
    return atomic_load_explicit(&chunk->numbers[(address >> MEMSCOPE_ADDRESS_UNIT_BITS) % UNITS], memory_order_relaxed);
}

uint32_t memscope_address_map_take(struct memscope_address_map *map, uintptr_t address) {
    struct memscope_address_chunk *chunk = known_chunk(map, address);

    if (chunk == NULL)
        return 0;
    return atomic_exchange_explicit(&chunk->numbers[(address >> MEMSCOPE_ADDRESS_UNIT_BITS) % UNITS], 0,
                                    memory_order_relaxed);
}
