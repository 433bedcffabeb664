/* Pseudo-random numbers, the same for a seed wherever the tests run. */
#pragma once

#include <math.h>
#include <stdint.h>

/* splitmix64, in [0, 1) */
static inline double random_uniform(uint64_t *state) {
    uint64_t value = *state += 0x9E3779B97F4A7C15u;

    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
    value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
    return (double)((value ^ (value >> 31)) >> 11) / 9007199254740992.0;
}

/* By Box and Muller: mean 0, standard deviation 1. */
static inline double random_normal(uint64_t *state) {
    double length = sqrt(-2 * log(1 - random_uniform(state)));

    return length * cos(6.283185307179586 * random_uniform(state));
}
