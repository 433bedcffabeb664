#include "sampling/generations.h"

void memscope_generations_marked(struct memscope_generations *generations, bool minor) {
    generations->epoch++;
    generations->after_two = generations->after_one;
    generations->after_one = generations->epoch;
    if (!minor)
        generations->after_major = generations->epoch;
}

uint32_t memscope_generation_begin(struct memscope_generations *generations) {
    generations->begun[generations->begun_count++ % MEMSCOPE_BEGUN_GENERATIONS] = ++generations->epoch;
    return generations->epoch;
}

uint32_t memscope_generation_unjudged(const struct memscope_generations *generations) {
    return generations->after_two < generations->after_major ? generations->after_two : generations->after_major;
}

uint32_t memscope_generation_of(const struct memscope_generations *generations, uint32_t epoch) {
    uint32_t unjudged = memscope_generation_unjudged(generations), shift = 0, first;

    while (generations->epoch >> shift >= MEMSCOPE_RUNS_OF_EPOCHS)
        shift++;
    first = epoch >> shift << shift;
    if (unjudged <= epoch && unjudged > first)
        first = unjudged;
    for (uint32_t index = 0; index < generations->begun_count && index < MEMSCOPE_BEGUN_GENERATIONS; index++)
        if (generations->begun[index] <= epoch && generations->begun[index] > first)
            first = generations->begun[index];
    return first;
}

size_t memscope_generations_list(const struct memscope_generations *generations, uint32_t list[MEMSCOPE_GENERATIONS]) {
    uint32_t first = generations->epoch + 1;
    size_t count = 0;

    while (first > 0 && count < MEMSCOPE_GENERATIONS)
        list[count++] = first = memscope_generation_of(generations, first - 1);
    return count;
}
