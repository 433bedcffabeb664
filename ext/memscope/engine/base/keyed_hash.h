/*
 * SipHash-1-3: a hash of text under a key that nobody else knows, so that no input can be made to collide.
 */
#ifndef MEMSCOPE_KEYED_HASH_H
#define MEMSCOPE_KEYED_HASH_H

#include <stddef.h>
#include <stdint.h>

struct memscope_hash_key {
    uint64_t words[2];
};

/* From the kernel; where it has none yet, from the clock and where this process was placed. */
void memscope_hash_key_draw(struct memscope_hash_key *key);

uint64_t memscope_keyed_hash(const struct memscope_hash_key *key, const void *bytes, size_t size);

#endif
