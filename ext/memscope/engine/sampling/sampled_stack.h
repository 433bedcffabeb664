/*
 * The stacks of sampled mallocs, as words: native return addresses, and other frames that are not addresses.
 *
 * The allocator's profiler only compares, hashes and prints the words of a stack (jemalloc 5.3.0 src/prof_data.c), so a
 * word may mean anything as long as it cannot be mistaken for a return address.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Maximum words in a stack: PROF_BT_MAX of jemalloc 5.3.0, the capacity of the array that its hook is given. */
#define MEMSCOPE_STACK_WORDS 128

enum memscope_word_kind {
    MEMSCOPE_WORD_NATIVE,     /* a return address */
    MEMSCOPE_WORD_RUBY,       /* index: a frame of the binding, line: in its file */
    MEMSCOPE_WORD_STATE,      /* index: an enum memscope_stack_state */
    MEMSCOPE_WORD_GENERATION, /* index: the generation that was current */
    MEMSCOPE_WORD_TAG,        /* index: a tag of the binding */
    MEMSCOPE_WORD_THREAD,     /* index: a thread's name of the binding */
};

/* Reasons for a stack without frames, or without some of them. */
enum memscope_stack_state {
    MEMSCOPE_STACK_DURING_GC = 1,
    MEMSCOPE_STACK_NO_GVL,
    MEMSCOPE_STACK_NOT_RUBY, /* a thread that Ruby did not create, or whose Ruby thread has ended */
    MEMSCOPE_STACK_RUBY_ENDED,
    MEMSCOPE_STACK_NO_FRAMES,
    MEMSCOPE_STACK_NO_ROOM,         /* no room for another distinct frame */
    MEMSCOPE_STACK_CALLERS_DROPPED, /* a stack without live samples that was shortened to its innermost frames */
};

/*
 * The top byte of a word that is not an address. User space ends at 2^56 at most on x86-64 and aarch64, so such a word
 * is above every user-space address.
 */
#define MEMSCOPE_WORD_MARK UINT64_C(0xFE)

static inline uint64_t memscope_word(enum memscope_word_kind kind, uint32_t index, uint32_t line) {
    return MEMSCOPE_WORD_MARK << 56 | (uint64_t)kind << 48 | (uint64_t)(index & 0xffffff) << 24 | (line & 0xffffff);
}

static inline enum memscope_word_kind memscope_word_kind(uint64_t word) {
    return word >> 56 == MEMSCOPE_WORD_MARK ? (enum memscope_word_kind)(word >> 48 & 0xff) : MEMSCOPE_WORD_NATIVE;
}

static inline uint32_t memscope_word_index(uint64_t word) {
    return word >> 24 & 0xffffff;
}

static inline uint32_t memscope_word_line(uint64_t word) {
    return word & 0xffffff;
}

/*
 * Writes the stack of the calling thread, leaf first, to words[0..room - 1], and returns the number of words. Runs
 * inside malloc, in any thread and state: must not take a lock that is held around malloc, allocate objects, or fail.
 */
typedef unsigned (*memscope_stack_reader)(uint64_t *words, unsigned room);

/* One stack, and the sums of its samples. */
struct memscope_sampled_stack {
    const uint64_t *words;
    uint32_t length;
    uint64_t samples;  /* live ones */
    double live_bytes; /* estimates, see memscope_sample_weight */
    double live_objects;
    double variance;        /* of live_bytes */
    double allocated_bytes; /* since the start, negative if the allocator does not count them */
    double allocated_objects;
};

struct memscope_sampled_stacks {
    struct memscope_sampled_stack *list; /* in the scratch of the reading */
    size_t count;
    uint64_t dropped_samples; /* for lack of room */
    uint64_t lost_frees;      /* blocks whose free was not seen: another block was sampled at the address */
};

/*
 * The number of blocks that a sampled block of this size represents. Sampling is a Poisson process that takes one byte
 * in `rate`: a block of `size` bytes is sampled with probability 1 − e^(−size/rate).
 */
double memscope_sample_weight(double size, double rate);
