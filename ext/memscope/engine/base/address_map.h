/*
 * Maps the address of each block (of malloc, or a slot of Ruby's heap) to a number. Blocks begin at multiples of 8
 * bytes, the size of jemalloc's smallest block (LG_TINY_MIN).
 *
 * Takes 4 bytes per 8 bytes of each page in which a block begins, in a lasting mapping (base/scratch.h), inherited by
 * forked children. Takes no lock and allocates nothing: callable from any thread, inside malloc, and in a Ruby hook.
 */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#define MEMSCOPE_ADDRESS_BITS 48 /* of user space: x86-64 hands out 47, aarch64 48, unless mmap asks for more */
#define MEMSCOPE_ADDRESS_BRANCH_BITS 30
#define MEMSCOPE_ADDRESS_CHUNK_BITS 21
#define MEMSCOPE_ADDRESS_UNIT_BITS 3

/* A chunk holds the numbers of 2 MiB of addresses, a branch the chunks of 1 GiB. */
struct memscope_address_chunk {
    _Atomic(uint32_t) numbers[1u << (MEMSCOPE_ADDRESS_CHUNK_BITS - MEMSCOPE_ADDRESS_UNIT_BITS)];
};

struct memscope_address_branch {
    _Atomic(void *) chunks[1u << (MEMSCOPE_ADDRESS_BRANCH_BITS - MEMSCOPE_ADDRESS_CHUNK_BITS)];
};

struct memscope_address_map {
    _Atomic(void *) branches[1u << (MEMSCOPE_ADDRESS_BITS - MEMSCOPE_ADDRESS_BRANCH_BITS)];
    char *room; /* for branches and chunks, taken from its beginning */
    _Atomic(uint64_t) taken;
    _Atomic(uint64_t) lost; /* numbers not set: no room was left, or the address has more than 48 bits */
};

/* Creates an empty map for up to 2 GiB of addresses, kept for the rest of the process. NULL if the kernel refuses. */
struct memscope_address_map *memscope_address_map_create(void);

/* Sets the number of an address. 0 forgets it. */
void memscope_address_map_set(struct memscope_address_map *map, uintptr_t address, uint32_t number);

/* Forgets the number of an address and returns it, 0 if it has none. Of two threads, one gets it. */
uint32_t memscope_address_map_take(struct memscope_address_map *map, uintptr_t address);

/* The number of an address, 0 if it has none, or if there is no map. */
uint32_t memscope_address_map_get(const struct memscope_address_map *map, uintptr_t address);
