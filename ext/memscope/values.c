#include "values.h"

#include "base/copy.h"
#include "graph/names.h"

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

VALUE memscope_name_value(const struct memscope_names *names, uint64_t number) {
    struct memscope_text name = memscope_names_get(names, (uint32_t)number);

    name.length = strnlen(name.start, name.length);
    return name.length == 0 ? Qnil : rb_utf8_str_new(name.start, (long)name.length);
}

VALUE memscope_set_pairs(VALUE hash, const struct memscope_pair *pairs, size_t count) {
    for (size_t index = 0; index < count; index++)
        memscope_hash_set(hash, pairs[index].key, pairs[index].value);
    return hash;
}

static VALUE value_of(const struct memscope_member *member, const char *at, const struct memscope_names *names) {
    union {
        uint64_t number;
        int64_t signed_number;
        double real;
        struct memscope_text text;
    } value;

    memcpy(&value, at, member->kind >= MEMSCOPE_MEMBER_TEXT ? sizeof value.text : sizeof value.number);
    switch ((enum memscope_member_kind)member->kind) {
    case MEMSCOPE_MEMBER_NUMBER:
        return memscope_number_or_nil(value.number);
    case MEMSCOPE_MEMBER_SIGNED:
        return value.signed_number == MEMSCOPE_UNKNOWN_SIGNED ? Qnil : LL2NUM(value.signed_number);
    case MEMSCOPE_MEMBER_BOOLEAN:
        return value.signed_number < 0 ? Qnil : value.signed_number ? Qtrue : Qfalse;
    case MEMSCOPE_MEMBER_REAL:
        return isnan(value.real) ? Qnil : DBL2NUM(value.real);
    case MEMSCOPE_MEMBER_ROUNDED:
        return isfinite(value.real) ? LL2NUM(llround(value.real)) : Qnil;
    case MEMSCOPE_MEMBER_NAME:
        return memscope_name_value(names, value.number);
    case MEMSCOPE_MEMBER_TEXT:
        return memscope_text_value(value.text);
    case MEMSCOPE_MEMBER_SYMBOL:
        return value.text.start == NULL ? Qnil : ID2SYM(rb_intern2(value.text.start, (long)value.text.length));
    }
    return Qnil;
}

void memscope_set_members(VALUE hash, const struct memscope_record *record, const void *values,
                          const struct memscope_names *names) {
    for (size_t index = 0; index < record->count; index++) {
        const struct memscope_member *member = &record->members[index];

        if (record->keys[index] == 0)
            record->keys[index] = memscope_symbol(member->name);
        rb_hash_aset(hash, record->keys[index], value_of(member, (const char *)values + member->offset, names));
    }
}

VALUE memscope_record_hash(const struct memscope_record *record, const void *values,
                           const struct memscope_names *names) {
    VALUE hash = rb_hash_new();

    memscope_set_members(hash, record, values, names);
    return hash;
}

VALUE memscope_record_list(const struct memscope_record *record, const void *rows, size_t count,
                           const struct memscope_names *names) {
    VALUE list = rb_ary_new_capa((long)count);

    for (size_t index = 0; index < count; index++)
        rb_ary_push(list, memscope_record_hash(record, (const char *)rows + index * record->size, names));
    return list;
}

VALUE memscope_cost(const char *tier, uint64_t wall_ns, uint64_t gvl_ns, size_t scratch_bytes) {
    const struct memscope_cost cost = {memscope_text_of(tier), wall_ns / 1000, gvl_ns / 1000, scratch_bytes};

    return memscope_cost_hash(&cost);
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

static VALUE nothing(VALUE argument, VALUE error) {
    return Qnil;
}

VALUE memscope_attempt(VALUE (*call)(VALUE argument), VALUE argument) {
    return rb_rescue2(call, argument, nothing, Qnil, rb_eStandardError, (VALUE)0);
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

    if (memscope_is_copy())
        work(argument);
    else
        rb_thread_call_without_gvl(do_work, &free_work, NULL, NULL);
    return memscope_now_ns() - start;
}
