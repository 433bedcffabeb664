/*
 * Generations of sampled objects, by the garbage collections since their allocation. Any context, one thread at a time.
 *
 * An epoch begins at the end of each mark phase, and at each call of memscope_generation_begin. A generation is a run
 * of epochs, named by its first epoch. All runs have the same length, which doubles as epochs pass, so that there are
 * few runs. Within a run, a generation begins at each call of memscope_generation_begin, and at the first unjudged
 * epoch (memscope_generation_unjudged).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MEMSCOPE_RUNS_OF_EPOCHS 64    /* of equal length */
#define MEMSCOPE_BEGUN_GENERATIONS 64 /* begun by memscope_generation_begin, only the most recent */
#define MEMSCOPE_GENERATIONS (MEMSCOPE_RUNS_OF_EPOCHS + MEMSCOPE_BEGUN_GENERATIONS + 1)

struct memscope_generations {
    uint32_t epoch; /* the current one */
    /* First epochs after the last mark phase, after the one before it, and after the last one of a major GC. */
    uint32_t after_one, after_two, after_major;
    uint32_t begun[MEMSCOPE_BEGUN_GENERATIONS]; /* epochs, a ring */
    uint32_t begun_count;
};

/* Call at the end of a mark phase. */
void memscope_generations_marked(struct memscope_generations *generations, bool minor);

/* Begins a new generation and returns its number. */
uint32_t memscope_generation_begin(struct memscope_generations *generations);

/* The first epoch not judged yet. Objects of earlier epochs have survived at least two GCs, one of them major. */
uint32_t memscope_generation_unjudged(const struct memscope_generations *generations);

uint32_t memscope_generation_of(const struct memscope_generations *generations, uint32_t epoch);

/* Lists the numbers of all generations, the current one first, and returns their count. */
size_t memscope_generations_list(const struct memscope_generations *generations, uint32_t list[MEMSCOPE_GENERATIONS]);
