/* SipHash-1-3: a hash under a secret key, so that nobody can construct inputs that collide. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct memscope_hash_key {
    uint64_t words[2];
};

/* Draws a key from the kernel or, if it cannot give one yet, from the clock and this process's randomized addresses. */
void memscope_hash_key_draw(struct memscope_hash_key *key);

uint64_t memscope_keyed_hash(const struct memscope_hash_key *key, const void *bytes, size_t size);
