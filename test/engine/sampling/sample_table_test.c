/* The table of samples against a model that keeps everything: whatever is shortened, what lives is reported exactly. */
#include "sampling/sample_table.h"

#include "../expect.h"

#include <stdbool.h>
#include <string.h>

#define BLOCKS 20000
#define PATHS 60000
#define DEPTH 30

/* At a rate of 1 byte, each block stands for itself. */
#define RATE 1

static struct { uint32_t path, size; /* size 0: not allocated */ } model[BLOCKS];
static double live_bytes[PATHS], allocated;
static uint64_t live_samples[PATHS];

static uint32_t dice(void) {
    static uint64_t bits = 88172645463325252;

    bits ^= bits << 13;
    bits ^= bits >> 7;
    bits ^= bits << 17;
    return (uint32_t)(bits >> 32);
}

static uintptr_t address_of(uint32_t block) {
    return 0x100000 + (uintptr_t)block * 16;
}

static void add(uint32_t block, uint32_t path, uint32_t size) {
    uint64_t words[DEPTH];

    for (uint32_t index = 0; index < DEPTH; index++)
        words[index] = memscope_word(MEMSCOPE_WORD_RUBY, index == DEPTH - 1 ? path : index + path % 50, 1);
    memscope_sample_table_add(address_of(block), size, words, DEPTH);
    model[block].path = path;
    model[block].size = size;
    live_bytes[path] += size;
    live_samples[path]++;
    allocated += size;
}

static void drop_from_model(uint32_t block) {
    live_bytes[model[block].path] -= model[block].size;
    live_samples[model[block].path]--;
    model[block].size = 0;
}

/* Path of a stack that kept its outermost frame; PATHS if it has lost it. */
static uint32_t path_of(const struct memscope_sampled_stack *stack) {
    uint64_t outermost = stack->words[stack->length - 1];

    return memscope_word_kind(outermost) == MEMSCOPE_WORD_RUBY ? memscope_word_index(outermost) : PATHS;
}

static void check(uint64_t dropped, uint64_t lost) {
    struct memscope_scratch scratch;
    struct memscope_sampled_stacks read;
    double live = 0, all = 0, seen = 0;

    EXPECT(memscope_scratch_open(&scratch) == MEMSCOPE_OK);
    EXPECT(memscope_sample_table_read(&scratch, &read) == MEMSCOPE_OK);
    for (size_t index = 0; index < read.count; index++) {
        const struct memscope_sampled_stack *stack = &read.list[index];
        uint32_t path = path_of(stack);

        all += stack->allocated_bytes;
        live += stack->live_bytes;
        EXPECT(path < PATHS || stack->samples == 0);
        if (path == PATHS)
            continue;
        EXPECT(stack->samples == live_samples[path]);
        EXPECT(stack->live_bytes - live_bytes[path] < 1 && live_bytes[path] - stack->live_bytes < 1);
        seen += live_bytes[path];
    }
    for (uint32_t path = 0; path < PATHS; path++)
        seen -= live_bytes[path];
    EXPECT(seen == 0); /* every stack with live samples is there */
    EXPECT(all - allocated <= 1e-6 * allocated && allocated - all <= 1e-6 * allocated);
    EXPECT(read.dropped_samples == dropped && read.lost_frees == lost);
    memscope_scratch_close(&scratch);
}

/* Most blocks are freed soon; one in a hundred stays. */
static void test_against_a_model(void) {
    uint64_t lost = 0;

    memscope_sample_table_clear(RATE);
    for (uint32_t step = 0; step < 150000; step++) {
        uint32_t block = dice() % BLOCKS;

        if (model[block].size > 0 && (dice() % 4 > 0 || block % 100 == 0)) {
            struct memscope_sample removed = memscope_sample_table_remove(address_of(block));

            EXPECT(memscope_sample_table_remove(address_of(block)).stack == 0);
            EXPECT(removed.stack != 0 && removed.size == model[block].size);
            if (block % 100 == 0)
                memscope_sample_table_put_back(removed);
            else
                drop_from_model(block);
            continue;
        }
        if (model[block].size > 0) {
            drop_from_model(block);
            lost++;
        }
        add(block, step % PATHS, 40 + dice() % 1000);
        if (step % 25000 == 0)
            check(0, lost);
    }
    check(0, lost);
}

/* As realloc does when it fails: meanwhile, others may have been sampled. */
static void test_a_sample_of_an_earlier_numbering(void) {
    struct memscope_sample removed;

    memset(model, 0, sizeof model);
    memset(live_bytes, 0, sizeof live_bytes);
    memset(live_samples, 0, sizeof live_samples);
    allocated = 0;
    memscope_sample_table_clear(RATE);
    add(0, 0, 100);
    removed = memscope_sample_table_remove(address_of(0));
    drop_from_model(0);
    for (uint32_t path = 1; path < 5000; path++) {
        add(1, path, 100);
        memscope_sample_table_remove(address_of(1));
        drop_from_model(1);
    }
    memscope_sample_table_put_back(removed);
    check(1, 0);
    memscope_sample_table_clear(RATE);
    allocated = 0;
    memscope_sample_table_put_back(removed);
    check(1, 0);
}

/* However the bytes of a block are estimated: those that live and those that were allocated are the same. */
static void test_nothing_freed(void) {
    struct memscope_scratch scratch;
    struct memscope_sampled_stacks read;

    memscope_sample_table_clear(4096);
    for (uint32_t block = 0; block < 1000; block++)
        add(block, block % 7, 10 + 13 * block);
    EXPECT(memscope_scratch_open(&scratch) == MEMSCOPE_OK);
    EXPECT(memscope_sample_table_read(&scratch, &read) == MEMSCOPE_OK && read.count == 7);
    for (size_t index = 0; index < read.count; index++)
        EXPECT(read.list[index].live_bytes == read.list[index].allocated_bytes);
    memscope_scratch_close(&scratch);
}

static void test_resident_bytes(void) {
    size_t before;

    memscope_sample_table_clear(RATE);
    before = memscope_sample_table_bytes();
    for (uint32_t path = 0; path < PATHS; path++) {
        add(0, path, 100);
        memscope_sample_table_remove(address_of(0));
    }
    EXPECT(memscope_sample_table_bytes() > before);
    EXPECT(memscope_sample_table_bytes() < before + (5 << 20));
}

int main(void) {
    if (memscope_sample_table_open() != MEMSCOPE_OK)
        SKIP("no table");
    test_against_a_model();
    test_a_sample_of_an_earlier_numbering();
    test_nothing_freed();
    test_resident_bytes();
    return 0;
}
