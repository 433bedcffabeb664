/*
 * Leaks: C code that takes blocks from malloc in every state that a process can be in, for tests of the malloc profile.
 *
 * The argument `how` is :here (works with the GVL), :without_gvl, or :pthread (works in a thread that Ruby does not
 * know, and that ends before the method returns). The blocks are a linked list, newest first. Only one thread at a time
 * may use it.
 */
#include "memscope_test.h"

#include <link.h>
#include <pthread.h>
#include <ruby/thread.h>
#include <ruby/vm.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <ucontext.h>

struct block {
    struct block *previous;
};

static struct block *newest;

struct work {
    size_t size;
    long count;
};

/* ---- where it is done ------------------------------------------------------------------------------------------- */

static void do_work(VALUE how, void *(*function)(void *), struct work *work) {
    pthread_t thread;

    if (how == ID2SYM(rb_intern("here"))) {
        function(work);
    } else if (how == ID2SYM(rb_intern("without_gvl"))) {
        rb_thread_call_without_gvl(function, work, NULL, NULL);
    } else if (how == ID2SYM(rb_intern("pthread"))) {
        if (pthread_create(&thread, NULL, function, work) != 0)
            rb_sys_fail("pthread_create");
        pthread_join(thread, NULL);
    } else {
        rb_raise(rb_eArgError, "how must be :here, :without_gvl or :pthread");
    }
}

static VALUE work_how(VALUE how, void *(*function)(void *), size_t size, long count) {
    struct work work = {size, count};

    if (size < sizeof(struct block))
        rb_raise(rb_eArgError, "a block holds a pointer");
    do_work(how, function, &work);
    return Qnil;
}

/* ---- blocks ----------------------------------------------------------------------------------------------------- */

/* Not inlined, and does not call malloc in tail position: tests look for this function in the stacks. */
static __attribute__((noinline)) struct block *leaks_take_block(size_t size) {
    struct block *block = malloc(size);

    if (!block)
        abort();
    block->previous = NULL;
    return block;
}

static void *blocks_added(void *argument) {
    struct work *work = argument;

    for (long index = 0; index < work->count; index++) {
        struct block *block = leaks_take_block(work->size);

        block->previous = newest;
        newest = block;
    }
    return NULL;
}

static void *blocks_freed(void *argument) {
    struct work *work = argument;

    for (long index = 0; index < work->count && newest; index++) {
        struct block *block = newest;

        newest = block->previous;
        free(block);
    }
    return NULL;
}

static __attribute__((noinline)) struct block *leaks_resize_block(struct block *block, size_t size) {
    struct block *resized = realloc(block, size);

    if (!resized)
        abort();
    resized->previous = resized->previous; /* so that realloc is not called in tail position */
    __asm__ volatile("" ::: "memory");
    return resized;
}

static void *blocks_resized(void *argument) {
    struct work *work = argument;
    struct block **link = &newest;

    for (long index = 0; index < work->count && *link; index++) {
        *link = leaks_resize_block(*link, work->size);
        link = &(*link)->previous;
    }
    return NULL;
}

/* Takes blocks of work->size bytes, or of up to 4 KiB if that is 0, and frees each immediately. */
static void *blocks_churned(void *argument) {
    struct work *work = argument;
    unsigned state = (unsigned)(uintptr_t)pthread_self();

    for (long index = 0; index < work->count; index++)
        free(leaks_take_block(work->size ? work->size : 16 + (size_t)rand_r(&state) % 4096));
    return NULL;
}

/* Leaks.leak(size, count, how) -> nil: adds `count` blocks of `size` bytes. */
static VALUE leaks_leak(VALUE self, VALUE size, VALUE count, VALUE how) {
    return work_how(how, blocks_added, NUM2SIZET(size), NUM2LONG(count));
}

/* Leaks.free(count, how) -> nil: frees the newest `count` blocks. */
static VALUE leaks_free(VALUE self, VALUE count, VALUE how) {
    return work_how(how, blocks_freed, sizeof(struct block), NUM2LONG(count));
}

/* Leaks.resize(size, count, how) -> nil: reallocates the newest `count` blocks. */
static VALUE leaks_resize(VALUE self, VALUE size, VALUE count, VALUE how) {
    return work_how(how, blocks_resized, NUM2SIZET(size), NUM2LONG(count));
}

/* Leaks.churn(count, how) -> nil: takes `count` blocks of up to 4 KiB, and frees each before the next. */
static VALUE leaks_churn(VALUE self, VALUE count, VALUE how) {
    struct work work = {0, NUM2LONG(count)};

    do_work(how, blocks_churned, &work);
    return Qnil;
}

/* Leaks.refused -> nil: asks for impossible amounts, but not under a sanitizer, which would end the process. */
static VALUE leaks_refused(VALUE self) {
    volatile size_t much = SIZE_MAX - 64, half = (size_t)1 << 63;
    struct block *block = leaks_take_block(64);

    if (!getenv("MEMSCOPE_SANITIZER") && (malloc(much) || malloc(half) || calloc(half, 4) || realloc(block, half)))
        rb_bug("malloc gave what it cannot have");
    free(block);
    return Qnil;
}

/* ---- odd moments ------------------------------------------------------------------------------------------------ */

static void churn_some(long count) {
    struct work work = {0, count};

    blocks_churned(&work);
}

static void *churn_for_a_while(void *rounds) {
    for (long round = (long)(intptr_t)rounds; round > 0; round--) {
        struct timespec pause = {.tv_nsec = 100000};

        churn_some(100);
        nanosleep(&pause, NULL);
    }
    return NULL;
}

/* Leaks.churn_behind(rounds) -> nil: churns in a detached pthread, which runs for 0.1 ms per round. */
static VALUE leaks_churn_behind(VALUE self, VALUE rounds) {
    pthread_attr_t attributes;
    pthread_t thread;

    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    if (pthread_create(&thread, &attributes, churn_for_a_while, (void *)(intptr_t)NUM2LONG(rounds)) != 0)
        rb_sys_fail("pthread_create");
    pthread_attr_destroy(&attributes);
    return Qnil;
}

/*
 * malloc in a signal handler is not allowed, but profilers and crash reporters call it all the same. If the handler has
 * interrupted malloc itself, that fails even without memscope. So this handler churns only if it has interrupted
 * memscope's code.
 */
static uintptr_t memscope_start, memscope_end;
static atomic_long handled;

static int find_memscope(struct dl_phdr_info *info, size_t size, void *unused) {
    const char *base = strrchr(info->dlpi_name, '/');

    if (!base || strcmp(base, "/memscope.so") != 0)
        return 0;
    memscope_start = info->dlpi_addr;
    for (unsigned index = 0; index < info->dlpi_phnum; index++)
        if (info->dlpi_phdr[index].p_type == PT_LOAD)
            memscope_end = info->dlpi_addr + info->dlpi_phdr[index].p_vaddr + info->dlpi_phdr[index].p_memsz;
    return 1;
}

static uintptr_t interrupted_at(const ucontext_t *context) {
#if defined(__x86_64__)
    return (uintptr_t)context->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
    return (uintptr_t)context->uc_mcontext.pc;
#else
    return 0;
#endif
}

static void churn_in_handler(int number, siginfo_t *info, void *context) {
    uintptr_t at = interrupted_at(context);

    if (at < memscope_start || at >= memscope_end)
        return;
    churn_some(3);
    atomic_fetch_add(&handled, 1);
}

/*
 * Leaks.churn_on_alarm(microseconds) -> Integer: churns in a C signal handler at this interval. 0 stops it. Returns how
 * often the handler has churned so far.
 */
static VALUE leaks_churn_on_alarm(VALUE self, VALUE microseconds) {
    struct sigaction action = {.sa_sigaction = churn_in_handler, .sa_flags = SA_SIGINFO | SA_RESTART};
    struct itimerval timer = {.it_interval.tv_usec = NUM2INT(microseconds), .it_value.tv_usec = NUM2INT(microseconds)};

    dl_iterate_phdr(find_memscope, NULL);
    sigemptyset(&action.sa_mask);
    if (sigaction(SIGALRM, &action, NULL) != 0 || setitimer(ITIMER_REAL, &timer, NULL) != 0)
        rb_sys_fail("setitimer");
    return LONG2NUM(atomic_load(&handled));
}

static void churn_of_object(void *unused) {
    churn_some(20);
}

static void free_with_churn(void *block) {
    churn_some(20);
    free(block);
}

static const rb_data_type_t churning_type = {
    .wrap_struct_name = "Leaks.churning_object",
    .function = {.dmark = churn_of_object, .dfree = free_with_churn, .dcompact = churn_of_object},
    .flags = RUBY_TYPED_FREE_IMMEDIATELY,
};

/* Leaks.churning_object -> an object that churns when it is marked, moved and freed. */
static VALUE leaks_churning_object(VALUE self) {
    return TypedData_Wrap_Struct(rb_cObject, &churning_type, leaks_take_block(sizeof(struct block)));
}

static pthread_key_t last_rites;
static atomic_int rounds_left;

static void churn_at_thread_end(void *value) {
    churn_some(200);
    if (atomic_fetch_sub(&rounds_left, 1) > 0)
        pthread_setspecific(last_rites, value);
}

/* Leaks.churn_at_thread_end -> nil: churns when this native thread ends, after Ruby is done with it. */
static VALUE leaks_churn_at_thread_end(VALUE self) {
    atomic_store(&rounds_left, 2);
    pthread_setspecific(last_rites, &last_rites);
    return Qnil;
}

static bool churn_at_the_end;

static void churn_at_vm_exit(ruby_vm_t *vm) {
    churn_some(5000);
}

__attribute__((destructor)) static void churn_in_destructor(void) {
    if (churn_at_the_end)
        churn_some(5000);
}

/* Leaks.churn_at_exit -> nil: churns when the VM exits, and again in this library's destructor. */
static VALUE leaks_churn_at_exit(VALUE self) {
    churn_at_the_end = true;
    ruby_vm_at_exit(churn_at_vm_exit);
    return Qnil;
}

static void churn_around_fork(void) {
    churn_some(50);
}

/* Leaks.churn_around_forks -> nil: churns in pthread_atfork handlers, where libraries with threads allocate too. */
static VALUE leaks_churn_around_forks(VALUE self) {
    if (pthread_atfork(churn_around_fork, churn_around_fork, churn_around_fork) != 0)
        rb_sys_fail("pthread_atfork");
    return Qnil;
}

void init_leaks(void) {
    VALUE leaks = rb_define_module("Leaks");

    pthread_key_create(&last_rites, churn_at_thread_end);
    rb_define_singleton_method(leaks, "leak", leaks_leak, 3);
    rb_define_singleton_method(leaks, "free", leaks_free, 2);
    rb_define_singleton_method(leaks, "resize", leaks_resize, 3);
    rb_define_singleton_method(leaks, "churn", leaks_churn, 2);
    rb_define_singleton_method(leaks, "refused", leaks_refused, 0);
    rb_define_singleton_method(leaks, "churn_behind", leaks_churn_behind, 1);
    rb_define_singleton_method(leaks, "churn_on_alarm", leaks_churn_on_alarm, 1);
    rb_define_singleton_method(leaks, "churning_object", leaks_churning_object, 0);
    rb_define_singleton_method(leaks, "churn_at_thread_end", leaks_churn_at_thread_end, 0);
    rb_define_singleton_method(leaks, "churn_at_exit", leaks_churn_at_exit, 0);
    rb_define_singleton_method(leaks, "churn_around_forks", leaks_churn_around_forks, 0);
}
