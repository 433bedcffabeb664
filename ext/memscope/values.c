#include "values.h"

#include <time.h>

VALUE rb_mMemscope;
VALUE rb_mMemscopeNative;

uint64_t memscope_now_ns(void) {
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

VALUE memscope_cost(const char *tier, uint64_t wall_ns, uint64_t gvl_ns, size_t scratch_bytes) {
    VALUE cost = rb_hash_new();

    memscope_hash_set(cost, "tier", memscope_symbol(tier));
    memscope_hash_set(cost, "wall_us", ULL2NUM(wall_ns / 1000));
    memscope_hash_set(cost, "gvl_us", ULL2NUM(gvl_ns / 1000));
    memscope_hash_set(cost, "scratch_bytes", SIZET2NUM(scratch_bytes));
    return cost;
}
