#include "values.h"

#include "ruby/held_memory.h"

#include "base/copy.h"
#include "fork/forked_child.h"

#include <ruby/io/buffer.h>
#include <stdio.h>
#include <string.h>

/* In nanoseconds. A dsize function that reads a field or two takes a few tens. */
#define SLOW_CALL 2000
#define BUDGET_OF_A_TYPE 2000000
#define BUDGET_OF_A_WALK 8000000
#define TIMES_IN_A_CHILD 50
/* Slow calls after which a type may be left out. A single slow call may have been interrupted. */
#define SLOW_CALLS_OF_A_TYPE 4

/* For each type, one call in TIMED_CALL is timed and, after a slow call, each of the next WATCHED_CALLS. */
#define TIMED_CALL 8
#define WATCHED_CALLS 8

/* Larger than any address of a process. */
#define UNKNOWN_SIZE ((size_t)1 << 48)

static const rb_data_type_t *fiber_type, *thread_type;

static struct memscope_asked_type *asked_type_of(struct memscope_held_walk *walk, const rb_data_type_t *type) {
    size_t place = (size_t)((uintptr_t)type / sizeof(void *) * 0x9E3779B97F4A7C15u >> 40);

    for (size_t probe = 0; probe < MEMSCOPE_ASKED_TYPES; probe++) {
        struct memscope_asked_type *asked = &walk->types[(place + probe) % MEMSCOPE_ASKED_TYPES];

        if (asked->type == NULL)
            asked->type = type;
        if (asked->type == type)
            return asked;
    }
    return &walk->types[MEMSCOPE_ASKED_TYPES];
}

static bool is_left_out(const struct memscope_held_walk *walk, const struct memscope_asked_type *type) {
    return type->slow_calls >= SLOW_CALLS_OF_A_TYPE &&
           (type->spent_ns >= walk->type_budget_ns || walk->spent_ns >= walk->budget_ns);
}

static uint64_t least_time_between_readings(clockid_t clock) {
    uint64_t least = UINT64_MAX;

    for (int pair = 0; pair < 4; pair++) {
        uint64_t start = memscope_clock_ns(clock), between = memscope_clock_ns(clock) - start;

        least = between < least ? between : least;
    }
    return least;
}

struct question {
    VALUE object;
    size_t size;
};

static VALUE put(VALUE argument) {
    struct question *question = (struct question *)argument;

    question->size = rb_obj_memsize_of(question->object);
    return Qnil;
}

/*
 * The size that an object of a C extension reports. UNKNOWN_SIZE if its dsize function raises, which must not leave the
 * walk, or reports more than a process can address, which would wrap the sums.
 */
static size_t reported_size(VALUE object) {
    VALUE previous = rb_errinfo();
    struct question question = {.object = object};
    int state;

    rb_protect(put, (VALUE)&question, &state);
    if (state == 0)
        return question.size < UNKNOWN_SIZE ? question.size : UNKNOWN_SIZE;
    rb_set_errinfo(previous);
    return UNKNOWN_SIZE;
}

/*
 * CLOCK_MONOTONIC is cheap to read, but also counts time in which this thread did not run. So after a call that is slow
 * by this clock, the next calls are timed by the thread's CPU clock, which takes a system call to read.
 */
static size_t ask_timed(struct memscope_held_walk *walk, struct memscope_asked_type *type, VALUE object) {
    bool watched = type->watched_calls > 0;
    clockid_t clock = watched ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
    uint64_t start = memscope_clock_ns(clock);
    size_t size = reported_size(object);
    uint64_t spent_ns = memscope_clock_ns(clock) - start;

    if (watched)
        type->watched_calls--;
    if (spent_ns < SLOW_CALL + (watched ? walk->clock_ns : 0))
        return size;
    type->watched_calls = WATCHED_CALLS;
    if (watched) {
        type->slow_calls++;
        type->spent_ns += spent_ns;
        walk->spent_ns += spent_ns;
    }
    return size;
}

static size_t ask_typed(struct memscope_held_walk *walk, VALUE object) {
    struct memscope_asked_type *type = asked_type_of(walk, RTYPEDDATA_TYPE(object));
    size_t size;

    if (is_left_out(walk, type)) {
        type->left_out++;
        return 0;
    }
    if (type->watched_calls > 0 || type->calls++ % TIMED_CALL == 0)
        size = ask_timed(walk, type, object);
    else
        size = reported_size(object);
    if (size < UNKNOWN_SIZE)
        return size;
    type->left_out++;
    return 0;
}

/*
 * The dsize functions of fibers and threads count the whole VM stack, 1 MiB for a thread. The VM stack is mapped with
 * the machine stack, and is not malloc memory (cont.c, vm.c: rb_ec_initialize_vm_stack), except that since 3.3 a
 * thread's VM stack comes from malloc (thread_pthread.c: native_thread_create_dedicated). Only the part that the thread
 * has used is resident.
 */
bool memscope_is_thread_or_fiber(VALUE object) {
    return RTYPEDDATA_TYPE(object) == fiber_type || RTYPEDDATA_TYPE(object) == thread_type;
}

/* Returns 0 for an object that is left out, and for a fiber or thread. */
static size_t ask(struct memscope_held_walk *walk, VALUE object) {
    if (RB_BUILTIN_TYPE(object) != RUBY_T_DATA || !RTYPEDDATA_P(object))
        return rb_obj_memsize_of(object);
    if (!memscope_is_thread_or_fiber(object))
        return ask_typed(walk, object);
    walk->held->unasked_stacks++;
    return 0;
}

const void *memscope_block_of_buffer(VALUE object, size_t *bytes) {
    /* Learned from the first one, since making one prints a warning (3.1 to 4.1dev). */
    static const rb_data_type_t *buffer_type;
    void *base;

    *bytes = 0;
    if (RB_BUILTIN_TYPE(object) != RUBY_T_DATA || !RTYPEDDATA_P(object))
        return NULL;
    if (buffer_type == NULL && RBASIC_CLASS(object) == rb_cIOBuffer)
        buffer_type = RTYPEDDATA_TYPE(object);
    if (RTYPEDDATA_TYPE(object) != buffer_type)
        return NULL;
    return rb_io_buffer_get_bytes(object, &base, bytes) & RB_IO_BUFFER_INTERNAL ? base : NULL;
}

/* An IO::Buffer reports its size, whoever owns its bytes (io_buffer.c: rb_io_buffer_type_size). */
static size_t outside_malloc(VALUE object) {
    size_t bytes;

    return memscope_block_of_buffer(object, &bytes) == NULL ? bytes : 0;
}

size_t memscope_held_bytes_asked(struct memscope_held_walk *walk, VALUE object, size_t slot_bytes) {
    size_t size = ask(walk, object);

    return size > slot_bytes ? size - slot_bytes : 0;
}

void memscope_heap_held_visit(struct memscope_held_walk *walk, VALUE object, size_t slot_bytes) {
    size_t bytes = memscope_held_bytes_of(walk, object, slot_bytes);
    size_t outside = bytes == 0 ? 0 : outside_malloc(object);

    if (outside > bytes)
        outside = bytes;
    walk->held->bytes += bytes - outside;
    walk->held->outside_bytes += outside;
}

static void name_left_out(const struct memscope_asked_type *type, struct memscope_left_out *named) {
    const char *name = type->type == NULL ? NULL : type->type->wrap_struct_name;

    snprintf(named->name, sizeof named->name, "%s", name == NULL ? "" : name);
    named->objects = type->left_out;
}

static void list_left_out(const struct memscope_held_walk *walk, struct memscope_held_memory *held) {
    for (size_t index = 0; index <= MEMSCOPE_ASKED_TYPES; index++) {
        const struct memscope_asked_type *type = &walk->types[index];

        if (type->left_out == 0)
            continue;
        held->left_out_objects += type->left_out;
        if (held->left_out_count < MEMSCOPE_LEFT_OUT_NAMES)
            name_left_out(type, &held->left_out[held->left_out_count++]);
    }
}

void memscope_heap_held_open(struct memscope_held_walk *walk, struct memscope_held_memory *held) {
    uint64_t times = memscope_is_forked_child() || memscope_is_copy() ? TIMES_IN_A_CHILD : 1;

    memset(held, 0, sizeof *held);
    *walk = (struct memscope_held_walk){.held = held,
                                        .clock_ns = least_time_between_readings(CLOCK_THREAD_CPUTIME_ID),
                                        .type_budget_ns = BUDGET_OF_A_TYPE * times,
                                        .budget_ns = BUDGET_OF_A_WALK * times};
}

void memscope_heap_held_close(struct memscope_held_walk *walk) {
    list_left_out(walk, walk->held);
    walk->held->known = true;
}

void memscope_held_memory_learn(void) {
    fiber_type = RTYPEDDATA_TYPE(rb_fiber_current());
    thread_type = RTYPEDDATA_TYPE(rb_thread_current());
}
