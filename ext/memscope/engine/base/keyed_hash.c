#include "base/keyed_hash.h"

#include <string.h>
#include <time.h>

#include <sys/random.h>

static uint64_t rotate(uint64_t word, int bits) {
    return word << bits | word >> (64 - bits);
}

static void mix(uint64_t state[4], int rounds) {
    for (int round = 0; round < rounds; round++) {
        state[0] += state[1];
        state[1] = rotate(state[1], 13) ^ state[0];
        state[0] = rotate(state[0], 32);
        state[2] += state[3];
        state[3] = rotate(state[3], 16) ^ state[2];
        state[0] += state[3];
        state[3] = rotate(state[3], 21) ^ state[0];
        state[2] += state[1];
        state[1] = rotate(state[1], 17) ^ state[2];
        state[2] = rotate(state[2], 32);
    }
}

void memscope_hash_key_draw(struct memscope_hash_key *key) {
    struct timespec now = {0};

    if (getrandom(key, sizeof *key, GRND_NONBLOCK) == (ssize_t)sizeof *key)
        return;
    clock_gettime(CLOCK_MONOTONIC, &now);
    key->words[0] = (uint64_t)now.tv_sec << 32 ^ (uint64_t)now.tv_nsec ^ (uintptr_t)&now;
    key->words[1] = (uintptr_t)memscope_hash_key_draw;
}

/* https://github.com/veorq/SipHash, with one round for each word and three at the end. */
uint64_t memscope_keyed_hash(const struct memscope_hash_key *key, const void *bytes, size_t size) {
    uint64_t state[4] = {key->words[0] ^ 0x736f6d6570736575u, key->words[1] ^ 0x646f72616e646f6du,
                         key->words[0] ^ 0x6c7967656e657261u, key->words[1] ^ 0x7465646279746573u};
    uint64_t word, last = (uint64_t)size << 56;
    const unsigned char *at = bytes, *end = at + (size & ~(size_t)7);

    for (; at < end; at += 8) {
        memcpy(&word, at, sizeof word);
        state[3] ^= word;
        mix(state, 1);
        state[0] ^= word;
    }
    for (size_t index = 0; index < (size & 7); index++)
        last |= (uint64_t)end[index] << (8 * index);
    state[3] ^= last;
    mix(state, 1);
    state[0] ^= last;
    state[2] ^= 0xff;
    mix(state, 3);
    return state[0] ^ state[1] ^ state[2] ^ state[3];
}
