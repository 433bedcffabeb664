#include "values.h"

#include <ruby/thread.h>

VALUE rb_mMemscope;
VALUE rb_mMemscopeNative;

uint64_t memscope_clock_ns(clockid_t clock) {
    struct timespec now;

    clock_gettime(clock, &now);
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

VALUE memscope_text_or_nil(const char *text) {
    return text && *text ? rb_utf8_str_new_cstr(text) : Qnil;
}

struct free_work {
    void (*work)(void *argument);
    void *argument;
};

static void *do_work(void *argument) {
    const struct free_work *free_work = argument;

    free_work->work(free_work->argument);
    return NULL;
}

uint64_t memscope_without_gvl(void (*work)(void *argument), void *argument) {
    struct free_work free_work = {.work = work, .argument = argument};
    uint64_t start = memscope_now_ns();

    rb_thread_call_without_gvl(do_work, &free_work, NULL, NULL);
    return memscope_now_ns() - start;
}
