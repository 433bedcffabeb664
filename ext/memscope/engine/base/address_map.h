/*
 * A number for each address of a block: of malloc, or of a slot of Ruby's heap. Blocks begin at multiples of 8 bytes:
 * jemalloc's smallest have 8 (LG_TINY_MIN).
 *
 * Takes 4 bytes per 8 bytes of each page in which a block begins: a lasting mapping (base/scratch.h), inherited by
 * forked children. No lock, and no allocation but the kernel's: callable from any thread, inside malloc, and in a
 * hook of Ruby's.
 */
#ifndef MEMSCOPE_ADDRESS_MAP_H
#define MEMSCOPE_ADDRESS_MAP_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/status.h"

#define MEMSCOPE_ADDRESS_BITS 48 /* of user space: x86-64 hands out 47, aarch64 48, unless asked to by mmap */
#define MEMSCOPE_ADDRESS_BRANCH_BITS 30
#define MEMSCOPE_ADDRESS_CHUNK_BITS 21
#define MEMSCOPE_ADDRESS_UNIT_BITS 3

/* The numbers of 2 MiB of addresses, and the chunks of 1 GiB of them. */
struct memscope_address_chunk {
    _Atomic(uint32_t) numbers[1u << (MEMSCOPE_ADDRESS_CHUNK_BITS - MEMSCOPE_ADDRESS_UNIT_BITS)];
};

struct memscope_address_branch {
    _Atomic(struct memscope_address_chunk *) chunks[1u << (MEMSCOPE_ADDRESS_BRANCH_BITS - MEMSCOPE_ADDRESS_CHUNK_BITS)];
};

struct memscope_address_map {
    _Atomic(struct memscope_address_branch *) branches[1u << (MEMSCOPE_ADDRESS_BITS - MEMSCOPE_ADDRESS_BRANCH_BITS)];
    char *room; /* for branches and chunks, taken from its beginning */
    _Atomic(uint64_t) taken;
    _Atomic(uint64_t) lost; /* addresses without a number, since there was no room left */
};

/* Maps an empty map for up to 2 GiB of addresses; NULL if the kernel refuses. It is kept for the rest of the process.
 */
struct memscope_address_map *memscope_address_map_create(void);

/* Sets the number of an address; 0 forgets it. */
void memscope_address_map_set(struct memscope_address_map *map, uintptr_t address, uint32_t number);

/* The number of an address; 0 if it has none, or if there is no map. */
uint32_t memscope_address_map_get(const struct memscope_address_map *map, uintptr_t address);

#endif
