/* Stacks, and threads that never take the GVL. */
#include "memscope_test.h"

#include <alloca.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHURN_BLOCKS 512
#define MAXIMUM_THREADS 64

static pthread_t churning[MAXIMUM_THREADS];
static size_t churning_count;
static atomic_bool stop_churning;
static bool churning_trims;

static __attribute__((noinline)) void touch_below(size_t bytes) {
    volatile char *pages = alloca(bytes);

    for (size_t offset = 0; offset < bytes; offset += page_size)
        pages[offset] = 1;
}

/* Host.touch_stack(bytes) -> nil: touches this many bytes below the current thread's or fiber's stack pointer. */
static VALUE host_touch_stack(VALUE self, VALUE bytes) {
    touch_below(NUM2SIZET(bytes));
    return Qnil;
}

#define SIGNAL_STACK_BYTES 16384
#define LEFT_BYTES 3500 /* enough for a malloc, too little for a sample of it */

static char *signal_stack;
static void *volatile allocated_there;

static __attribute__((noinline)) void allocate_large(void) {
    allocated_there = malloc(100000);
    free(allocated_there);
}

static void allocate_at_the_end(int signal) {
    char here, *taken = alloca((size_t)(&here - signal_stack) - LEFT_BYTES);

    (void)signal;
    __asm__ volatile("" ::"r"(taken) : "memory");
    allocate_large();
    __asm__ volatile("" ::"r"(taken) : "memory");
}

/*
 * Host.malloc_on_a_signal_stack -> nil: calls malloc with 3.5 KB of an alternate stack left, above an inaccessible
 * page.
 */
static VALUE host_malloc_on_a_signal_stack(VALUE self) {
    struct sigaction action = {.sa_handler = allocate_at_the_end, .sa_flags = SA_ONSTACK}, before;
    char *pages =
        mmap(NULL, page_size + SIGNAL_STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    stack_t stack, stack_before;

    if (pages == MAP_FAILED || mprotect(pages, page_size, PROT_NONE) != 0)
        rb_sys_fail("mmap");
    signal_stack = pages + page_size;
    stack = (stack_t){.ss_sp = signal_stack, .ss_size = SIGNAL_STACK_BYTES};
    allocate_large(); /* binds malloc now: later, the dynamic linker would need more stack than is left */
    if (sigaltstack(&stack, &stack_before) != 0 || sigaction(SIGRTMIN + 5, &action, &before) != 0)
        rb_sys_fail("sigaltstack");
    raise(SIGRTMIN + 5);
    sigaction(SIGRTMIN + 5, &before, NULL);
    sigaltstack(&stack_before, NULL);
    munmap(pages, page_size + SIGNAL_STACK_BYTES);
    return Qnil;
}

static void spin(int signal) {
    struct timespec now, end;

    (void)signal;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_nsec += 300000000;
    do
        clock_gettime(CLOCK_MONOTONIC, &now);
    while (now.tv_sec < end.tv_sec + end.tv_nsec / 1000000000 ||
           (now.tv_sec == end.tv_sec + end.tv_nsec / 1000000000 && now.tv_nsec < end.tv_nsec % 1000000000));
}

/* Host.spin_on_a_signal_stack -> nil: computes for 0.3 s with the GVL, in a signal handler on Ruby's alternate stack.
 */
static VALUE host_spin_on_a_signal_stack(VALUE self) {
    struct sigaction action = {.sa_handler = spin, .sa_flags = SA_ONSTACK}, before;

    if (sigaction(SIGRTMIN + 5, &action, &before) != 0)
        rb_sys_fail("sigaction");
    raise(SIGRTMIN + 5);
    sigaction(SIGRTMIN + 5, &before, NULL);
    return Qnil;
}

/*
 * Host.vfork(seconds) -> nil: has a child, as between vfork and exec, for so long. Meanwhile this thread cannot be
 * stopped.
 */
static VALUE host_vfork(VALUE self, VALUE seconds) {
    const struct timespec wait = {.tv_sec = NUM2LONG(seconds)};
    pid_t child = vfork(); /* this is what is tested: NOLINT(clang-analyzer-security.insecureAPI.vfork) */

    if (child == 0) {
        nanosleep(&wait, NULL); /* a bare system call: NOLINT(clang-analyzer-unix.Vfork) */
        _exit(0);
    }
    if (child < 0 || waitpid(child, NULL, 0) < 0)
        rb_sys_fail("vfork");
    return Qnil;
}

/* Most blocks have up to 16 KiB. With trims, some are so large that glibc mmaps them. */
static size_t churned_size(unsigned *state) {
    size_t size = 16 + (size_t)rand_r(state) % 16384;

    return churning_trims && rand_r(state) % 64 == 0 ? size * 32 : size;
}

/* Replaces blocks of random sizes, so that free lists, thread caches and arena tops keep moving. */
static void *churn(void *seed) {
    void *blocks[CHURN_BLOCKS] = {NULL};
    unsigned state = (unsigned)(uintptr_t)seed;

    while (!atomic_load_explicit(&stop_churning, memory_order_relaxed)) {
        struct timespec pause = {.tv_nsec = 50000};

        for (int round = 0; round < 64; round++) {
            size_t slot = (size_t)rand_r(&state) % CHURN_BLOCKS;
            size_t size = churned_size(&state);

            free(blocks[slot]);
            blocks[slot] = malloc(size);
            if (blocks[slot])
                memset(blocks[slot], 0x5a, size);
        }
        if (churning_trims && rand_r(&state) % 16 == 0)
            malloc_trim(0);
        nanosleep(&pause, NULL);
    }
    for (size_t slot = 0; slot < CHURN_BLOCKS; slot++)
        free(blocks[slot]);
    return NULL;
}

/*
 * Host.start_churning(count, trims = false) -> nil: starts `count` pthreads that allocate and free without the GVL
 * until stop_churning. With trims they call malloc_trim as well.
 */
static VALUE host_start_churning(int argc, VALUE *argv, VALUE self) {
    VALUE count_value, trims;
    size_t count;

    rb_scan_args(argc, argv, "11", &count_value, &trims);
    count = NUM2SIZET(count_value);
    churning_trims = RTEST(trims);
    if (count > MAXIMUM_THREADS - churning_count)
        rb_raise(rb_eArgError, "at most %d threads churn at once", MAXIMUM_THREADS);
    atomic_store(&stop_churning, false);
    while (count-- > 0) {
        int error = pthread_create(&churning[churning_count], NULL, churn, (void *)(uintptr_t)(churning_count + 1));

        if (error)
            rb_syserr_fail(error, "pthread_create");
        churning_count++;
    }
    return Qnil;
}

/* Host.stop_churning -> nil: when it returns, the threads are gone and their blocks are free. */
static VALUE host_stop_churning(VALUE self) {
    atomic_store(&stop_churning, true);
    while (churning_count > 0)
        pthread_join(churning[--churning_count], NULL);
    return Qnil;
}

static void *touch_and_wait(void *bytes) {
    touch_below((size_t)(uintptr_t)bytes);
    for (;;) {
        struct timespec pause = {.tv_sec = 3600};

        nanosleep(&pause, NULL);
    }
    return NULL;
}

/*
 * Host.sleeping_pthread(stack_bytes, touched_bytes) -> Integer: address of the stack of a new pthread that never ends.
 */
static VALUE host_sleeping_pthread(VALUE self, VALUE stack_bytes, VALUE touched_bytes) {
    size_t bytes = NUM2SIZET(stack_bytes);
    char *stack = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    pthread_attr_t attributes;
    pthread_t thread;
    int error;

    if (stack == MAP_FAILED)
        rb_sys_fail("mmap");
    pthread_attr_init(&attributes);
    error = pthread_attr_setstack(&attributes, stack, bytes);
    if (!error)
        error = pthread_create(&thread, &attributes, touch_and_wait, (void *)(uintptr_t)NUM2SIZET(touched_bytes));
    pthread_attr_destroy(&attributes);
    if (error)
        rb_syserr_fail(error, "pthread_create");
    pthread_detach(thread);
    return ULL2NUM((uintptr_t)stack);
}

void init_stacks(VALUE host) {
    rb_define_singleton_method(host, "malloc_on_a_signal_stack", host_malloc_on_a_signal_stack, 0);
    rb_define_singleton_method(host, "spin_on_a_signal_stack", host_spin_on_a_signal_stack, 0);
    rb_define_singleton_method(host, "vfork", host_vfork, 1);
    rb_define_singleton_method(host, "touch_stack", host_touch_stack, 1);
    rb_define_singleton_method(host, "start_churning", host_start_churning, -1);
    rb_define_singleton_method(host, "stop_churning", host_stop_churning, 0);
    rb_define_singleton_method(host, "sleeping_pthread", host_sleeping_pthread, 2);
}
