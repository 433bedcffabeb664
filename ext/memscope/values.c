#include "values.h"

#include <ruby/thread.h>
#include <string.h>

VALUE rb_mMemscope;
VALUE rb_mMemscopeNative;

uint64_t memscope_clock_ns(clockid_t clock) {
    struct timespec now;

    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

VALUE memscope_text_value(struct memscope_text text) {
    return text.start == NULL ? Qnil : rb_utf8_str_new(text.start, (long)text.length);
}

static VALUE symbol_of(struct memscope_text text) {
    return text.start == NULL ? Qnil : ID2SYM(rb_intern2(text.start, (long)text.length));
}

static VALUE value_of(const struct memscope_member *member, const char *at) {
    union {
        uint64_t number;
        int64_t signed_number;
        double real;
        struct memscope_text text;
    } value;

    memcpy(&value, at, member->kind >= MEMSCOPE_MEMBER_TEXT ? sizeof value.text : sizeof value.number);
    switch ((enum memscope_member_kind)member->kind) {
    case MEMSCOPE_MEMBER_NUMBER:
        return value.number == MEMSCOPE_UNKNOWN ? Qnil : ULL2NUM(value.number);
    case MEMSCOPE_MEMBER_SIGNED:
        return value.signed_number == MEMSCOPE_UNKNOWN_SIGNED ? Qnil : LL2NUM(value.signed_number);
    case MEMSCOPE_MEMBER_BOOLEAN:
        return value.signed_number < 0 ? Qnil : value.signed_number ? Qtrue : Qfalse;
    case MEMSCOPE_MEMBER_REAL:
        return isnan(value.real) ? Qnil : DBL2NUM(value.real);
    case MEMSCOPE_MEMBER_TEXT:
        return memscope_text_value(value.text);
    case MEMSCOPE_MEMBER_SYMBOL:
        return symbol_of(value.text);
    }
    return Qnil;
}

void memscope_set_members(VALUE hash, const struct memscope_record *record, const void *values) {
    for (size_t index = 0; index < record->count; index++)
        memscope_hash_set(hash, record->members[index].name,
                          value_of(&record->members[index], (const char *)values + record->members[index].offset));
}

VALUE memscope_cost(const char *tier, uint64_t wall_ns, uint64_t gvl_ns, size_t scratch_bytes) {
    VALUE cost = rb_hash_new();

    memscope_hash_set(cost, "tier", memscope_symbol(tier));
    memscope_hash_set(cost, "wall_us", ULL2NUM(wall_ns / 1000));
    memscope_hash_set(cost, "gvl_us", ULL2NUM(gvl_ns / 1000));
    memscope_hash_set(cost, "scratch_bytes", SIZET2NUM(scratch_bytes));
    return cost;
}

VALUE memscope_finish(VALUE reading, VALUE reasons, const char *tier, uint64_t start_ns, uint64_t without_gvl_ns,
                      size_t scratch_bytes) {
    uint64_t wall_ns = memscope_now_ns() - start_ns;

    memscope_hash_set(reading, "reasons", reasons);
    memscope_hash_set(reading, "cost", memscope_cost(tier, wall_ns, wall_ns - without_gvl_ns, scratch_bytes));
    return reading;
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
