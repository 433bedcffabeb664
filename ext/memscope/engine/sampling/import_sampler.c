#include "sampling/import_sampler.h"

#include "base/protections.h"
#include "elf/shared_objects.h"
#include "sampling/native_frames.h"

#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define INLINE inline __attribute__((always_inline))

/* ---- imports and their replacements ------------------------------------------------------------------------------ */

static void *counted_malloc(size_t size);
static void *counted_calloc(size_t number, size_t size);
static void *counted_realloc(void *block, size_t size);
static void *counted_reallocarray(void *block, size_t number, size_t size);
static void counted_free(void *block);
static int counted_posix_memalign(void **block, size_t alignment, size_t size);
static void *counted_aligned_alloc(size_t alignment, size_t size);
static void *counted_memalign(size_t alignment, size_t size);
static void *patching_dlsym(void *handle, const char *name);

enum { MALLOC, CALLOC, REALLOC, REALLOCARRAY, FREE, POSIX_MEMALIGN, ALIGNED_ALLOC, MEMALIGN, IMPORT_COUNT };

static struct memscope_import imports[IMPORT_COUNT] = {
    [MALLOC] = {"malloc", NULL, counted_malloc},
    [CALLOC] = {"calloc", NULL, counted_calloc},
    [REALLOC] = {"realloc", NULL, counted_realloc},
    [REALLOCARRAY] = {"reallocarray", NULL, counted_reallocarray},
    [FREE] = {"free", NULL, counted_free},
    [POSIX_MEMALIGN] = {"posix_memalign", NULL, counted_posix_memalign},
    [ALIGNED_ALLOC] = {"aligned_alloc", NULL, counted_aligned_alloc},
    [MEMALIGN] = {"memalign", NULL, counted_memalign},
};
/* Patches objects that are loaded later. */
static struct memscope_import late_hooks[] = {{"dlsym", NULL, patching_dlsym}};

#define ORIGINAL(index, type) ((type)imports[index].original)

/* Succeeds where native frames can be read and the slots of imports are known (elf/shared_objects.h). */
static bool find_originals(void) {
#if defined(__GLIBC__) && (defined(__x86_64__) || defined(__aarch64__))
    for (size_t index = 0; index < IMPORT_COUNT; index++)
        if (!imports[index].original && !(imports[index].original = dlsym(RTLD_DEFAULT, imports[index].name)))
            return false;
    return late_hooks[0].original || (late_hooks[0].original = dlsym(RTLD_DEFAULT, "dlsym"));
#else
    return false;
#endif
}

/*
 * Each thread counts down to its next sample. Not initial-exec: that model uses up the little static TLS that is
 * reserved for all libraries loaded by dlopen, and when none is left, libraries that need it cannot be loaded. With TLS
 * descriptors (extconf.rb), static TLS is used if there is room, and otherwise the dynamic linker allocates with a
 * malloc that is not patched.
 */
static __thread struct {
    uint64_t bytes_left; /* CHUNK at most */
    uint64_t beyond;     /* from the end of bytes_left to the next sample */
    uint64_t random;     /* 0 before the first countdown */
    unsigned session;    /* of the countdown */
    bool inside;         /* taking a sample, so that its own allocations are not sampled */
} thread;

/* Each thread re-checks the session every CHUNK bytes, to notice a restart with another rate. */
#define CHUNK 16384

static double sampling_rate;
static memscope_stack_reader read_stack;
static const struct memscope_block_record *record; /* receives every block, NULL while only samples are kept */
static atomic_bool running;
static atomic_uint session;
static struct memscope_import_patches patches;
static _Atomic(uint64_t) patched_generation; /* 0 or an earlier generation while an object is half loaded */

/*
 * Held while slots change, which may happen in any thread that calls dlsym. Also held across a fork: if another thread
 * held the dynamic linker's lock then, nobody would release it in the child. A thread that holds this mutex does not
 * wait for it again, since other libraries' atfork handlers may call dlsym.
 */
static pthread_mutex_t patching = PTHREAD_MUTEX_INITIALIZER;
static __thread bool patching_here;

#define PATCHING_NS 200000000 /* patching takes 1 to 2 ms, plus the time until another thread is scheduled */

static bool begin_patching(void) {
    if (patching_here)
        return false;
    patching_here = true;
    pthread_mutex_lock(&patching);
    return true;
}

/*
 * The caller of dlsym may be a dl_iterate_phdr visitor, which holds the dynamic linker's lock, while the patching
 * thread waits for that lock. To end such a deadlock, this function gives up after PATCHING_NS, much longer than
 * patching normally takes.
 */
static bool begin_patching_soon(void) {
    struct timespec limit;

    if (patching_here)
        return false;
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_nsec += PATCHING_NS;
    limit.tv_sec += limit.tv_nsec / 1000000000;
    limit.tv_nsec %= 1000000000;
    patching_here = true;
    return patching_here = pthread_mutex_timedlock(&patching, &limit) == 0;
}

static void end_patching(void) {
    pthread_mutex_unlock(&patching);
    patching_here = false;
}

/* ---- when to sample --------------------------------------------------------------------------------------------- */

static uint64_t seed(void) {
    struct timespec now;
    uint64_t bits;

    clock_gettime(CLOCK_MONOTONIC, &now);
    bits = (uint64_t)(uintptr_t)&thread * UINT64_C(0x9E3779B97F4A7C15) ^ (uint64_t)now.tv_nsec << 20 ^
           (uint64_t)now.tv_sec ^ (uint64_t)getpid() << 40;
    return bits ? bits : 1;
}

/* xorshift64: Marsaglia, Xorshift RNGs (2003). */
static uint64_t next_random(void) {
    uint64_t bits = thread.random;

    bits ^= bits << 13;
    bits ^= bits >> 7;
    bits ^= bits << 17;
    return thread.random = bits;
}

/*
 * Draws the number of bytes before the next sampled byte: geometric, as the integer part of an exponential. The
 * distribution is memoryless, so earlier counts do not matter.
 */
static uint64_t draw(void) {
    double uniform = ((double)(next_random() >> 11) + 1) * 0x1p-53; /* (0, 1] */

    return (uint64_t)(-log(uniform) * sampling_rate);
}

/* Returns true if the next sample is within these bytes, which exceed bytes_left. If so, draws the next countdown. */
static bool is_due(uint64_t size) {
    unsigned now = atomic_load_explicit(&session, memory_order_acquire); /* before sampling_rate is read */
    uint64_t left = thread.bytes_left + thread.beyond;
    bool due;

    if (thread.session != now) {
        /* The new countdown starts before this block, which must be as likely to be sampled as any other. */
        thread.session = now;
        thread.random = thread.random ? thread.random : seed();
        left = draw();
    }
    due = size > left;
    left = due ? draw() : left - size;
    thread.bytes_left = left < CHUNK ? left : CHUNK;
    thread.beyond = left - thread.bytes_left;
    return due;
}

/* ---- a sample --------------------------------------------------------------------------------------------------- */

static __attribute__((noinline)) void *take_sample(void *block, size_t size) {
    uint64_t words[MEMSCOPE_STACK_WORDS];
    int error = errno;

    thread.inside = true;
    memscope_sample_table_add((uintptr_t)block, size, words, read_stack(words, MEMSCOPE_STACK_WORDS));
    thread.inside = false;
    errno = error;
    return block;
}

/* Slow path, out of line. take_sample is a tail call, which saves one frame to unwind. */
static __attribute__((noinline)) void *count_slowly(void *block, size_t size) {
    /* Acquire pairs with the store in patch_all, since aarch64 reorders loads. */
    if (!block || !atomic_load_explicit(&running, memory_order_acquire))
        return block;
    if (record) {
        record->add(block);
        return block;
    }
    if (!is_due(size))
        return block;
    if ((thread.inside || memscope_sample_table_is_held()) && PROTECTS(inside))
        return block;
    return memscope_probe_stack() ? take_sample(block, size) : block;
}

/*
 * Counts before the allocation, so that the call of the original function can be a tail call. Nothing is kept across
 * that call, and the replacement takes no stack. A failed allocation is counted too, without effect on the samples,
 * because the countdown is memoryless.
 */
static INLINE bool count(size_t size) {
    uint64_t *left = &thread.bytes_left;

    if (__builtin_expect(size >= *left, 0))
        return false;
    *left -= size;
    return true;
}

static struct memscope_sample forget(void *block) {
    struct memscope_sample none = {0};

    if (record)
        return (struct memscope_sample){.stack = record->remove(block)};
    if (!memscope_sample_table_is_held() || !PROTECTS(deferred_removal))
        return memscope_sample_table_remove((uintptr_t)block);
    memscope_sample_table_remove_later((uintptr_t)block);
    return none;
}

/* ---- replacements of the imports --------------------------------------------------------------------------------- */

static void *counted_malloc(size_t size) {
    if (count(size))
        return ORIGINAL(MALLOC, void *(*)(size_t))(size);
    return count_slowly(ORIGINAL(MALLOC, void *(*)(size_t))(size), size);
}

static void *counted_calloc(size_t number, size_t size) {
    if (count(number * size))
        return ORIGINAL(CALLOC, void *(*)(size_t, size_t))(number, size);
    return count_slowly(ORIGINAL(CALLOC, void *(*)(size_t, size_t))(number, size), number * size);
}

/*
 * A recorded block keeps its number when it moves, and a block without a number gets none. Returns false if record or
 * block is NULL.
 */
static bool put_back(void *moved, void *block, size_t size, struct memscope_sample sample) {
    void *now = moved || size == 0 ? moved : block;

    if (!record || !block)
        return false;
    if (now && sample.stack != 0)
        record->put_back(now, sample.stack, moved != NULL);
    return true;
}

/* Removes the sample first, as free does: once the block is freed, another thread may get its address and sample it. */
static __attribute__((noinline)) void *realloc_slowly(void *block, size_t size) {
    struct memscope_sample sample = {0};
    void *moved;

    if (memscope_may_be_sample((uintptr_t)block))
        sample = forget(block);
    moved = ORIGINAL(REALLOC, void *(*)(void *, size_t))(block, size);
    if (put_back(moved, block, size, sample))
        return moved;
    if (!moved && size > 0 && sample.stack != 0)
        memscope_sample_table_put_back(sample);
    return count(size) ? moved : count_slowly(moved, size);
}

static void *counted_realloc(void *block, size_t size) {
    if (__builtin_expect(memscope_may_be_sample((uintptr_t)block), 0) || !count(size))
        return realloc_slowly(block, size);
    return ORIGINAL(REALLOC, void *(*)(void *, size_t))(block, size);
}

static void *counted_reallocarray(void *block, size_t number, size_t size) {
    size_t bytes;

    if (__builtin_mul_overflow(number, size, &bytes)) {
        errno = ENOMEM;
        return NULL;
    }
    return counted_realloc(block, bytes);
}

static __attribute__((noinline)) void forget_and_free(void *block) {
    if (PROTECTS(removal_first))
        forget(block);
    ORIGINAL(FREE, void (*)(void *))(block);
    if (!PROTECTS(removal_first))
        forget(block);
}

static void counted_free(void *block) {
    if (__builtin_expect(memscope_may_be_sample((uintptr_t)block), 0))
        forget_and_free(block);
    else
        ORIGINAL(FREE, void (*)(void *))(block);
}

static int counted_posix_memalign(void **block, size_t alignment, size_t size) {
    int error = ORIGINAL(POSIX_MEMALIGN, int (*)(void **, size_t, size_t))(block, alignment, size);

    if (error == 0 && !count(size))
        count_slowly(*block, size);
    return error;
}

static void *counted_aligned_alloc(size_t alignment, size_t size) {
    if (count(size))
        return ORIGINAL(ALIGNED_ALLOC, void *(*)(size_t, size_t))(alignment, size);
    return count_slowly(ORIGINAL(ALIGNED_ALLOC, void *(*)(size_t, size_t))(alignment, size), size);
}

static void *counted_memalign(size_t alignment, size_t size) {
    if (count(size))
        return ORIGINAL(MEMALIGN, void *(*)(size_t, size_t))(alignment, size);
    return count_slowly(ORIGINAL(MEMALIGN, void *(*)(size_t, size_t))(alignment, size), size);
}

/* ---- objects loaded later ------------------------------------------------------------------------------------- */

/*
 * Ruby loads an extension with dlopen and finds its Init_ with dlsym, so the extension is patched before Init_ runs.
 * Objects that other code loads are patched at the next dlsym or reading.
 */
static void *patching_dlsym(void *handle, const char *name) {
    if (handle != RTLD_NEXT && atomic_load(&running) && !thread.inside)
        memscope_import_sampler_patch_new();
    /* Must be a tail call: the C library finds the scope of RTLD_NEXT by the return address. */
    return ((void *(*)(void *, const char *))late_hooks[0].original)(handle, name);
}

/*
 * Reads the generation only while holding the mutex: the walk that reports it takes a lock of the dynamic linker that
 * fork does not release in the child (dl_load_write_lock). When the generation was read before the mutex was taken,
 * children hung in two of three runs of the test that forks while another thread calls dlsym. The mutex and the walk
 * take about 50 of the 400 ns of a dlsym.
 */
void memscope_import_sampler_patch_new(void) {
    uint64_t generation;

    if (!begin_patching_soon())
        return;
    generation = memscope_shared_objects_generation();
    if (generation != atomic_load(&patched_generation) && atomic_load(&running)) {
        memscope_imports_replace(imports, IMPORT_COUNT, &running, &patches);
        if (patches.complete)
            atomic_store(&patched_generation, generation);
    }
    end_patching();
}

/* ---- start and stop --------------------------------------------------------------------------------------------- */

static bool patching_for_fork;

/* If a signal handler forks while this thread changes slots, the child continues without the linker's lock. */
static void before_fork(void) {
    bool begun = begin_patching();

    patching_for_fork = patching_for_fork || begun;
    memscope_sample_table_before_fork();
}

static void after_fork(void) {
    memscope_sample_table_after_fork();
    if (patching_here && patching_for_fork) {
        patching_for_fork = false;
        end_patching();
    }
}

/* The child draws its own random numbers. Otherwise it would repeat the sampling errors of its parent and siblings. */
static void in_child(void) {
    after_fork();
    thread.bytes_left = thread.beyond = thread.random = 0;
    thread.session = 0;
}

static void listen_for_forks(void) {
    static bool listening;

    if (!listening)
        pthread_atfork(before_fork, after_fork, in_child);
    listening = true;
}

enum memscope_status memscope_import_sampler_prepare(void) {
    return find_originals() ? memscope_sample_table_open() : MEMSCOPE_UNSUPPORTED;
}

/* Patches the imports. The caller has set sampling_rate, read_stack and record. */
static enum memscope_status patch_all(void) {
    struct memscope_import_patches ignored = {0};
    enum memscope_status status;
    uint64_t generation;

    thread.bytes_left = 0; /* this thread notices the new session immediately, not after the rest of its countdown */
    atomic_fetch_add(&session, 1);
    atomic_store(&running, true);
    begin_patching();
    generation = memscope_shared_objects_generation();
    status = memscope_imports_replace(imports, IMPORT_COUNT, &running, &patches);
    if (status == MEMSCOPE_OK)
        status = memscope_imports_replace(late_hooks, 1, &running, &ignored);
    if (status == MEMSCOPE_OK && patches.taken)
        status = MEMSCOPE_NOT_FOUND;
    atomic_store(&patched_generation, patches.complete && ignored.complete ? generation : 0);
    end_patching();
    if (status != MEMSCOPE_OK)
        memscope_import_sampler_stop();
    return status;
}

enum memscope_status memscope_import_sampler_start(double rate, memscope_stack_reader reader) {
    enum memscope_status status = memscope_import_sampler_prepare();

    if (status != MEMSCOPE_OK)
        return status;
    if (record && atomic_load(&running))
        return MEMSCOPE_NOT_FOUND;
    listen_for_forks();
    memscope_sample_table_clear(rate);
    sampling_rate = rate;
    read_stack = reader;
    record = NULL;
    return patch_all();
}

/* No thread counts bytes down while blocks are recorded, and every free looks for its block. */
enum memscope_status memscope_import_sampler_record(const struct memscope_block_record *wanted) {
    enum memscope_status status = memscope_import_sampler_prepare();

    if (status != MEMSCOPE_OK)
        return status;
    if (atomic_load(&running))
        return MEMSCOPE_NOT_FOUND;
    listen_for_forks();
    memscope_sample_table_admit_all();
    record = wanted;
    return patch_all();
}

void memscope_import_sampler_stop(void) {
    atomic_store(&running, false);
    begin_patching();
    memscope_imports_restore(late_hooks, 1);
    memscope_imports_restore(imports, IMPORT_COUNT);
    end_patching();
}

struct memscope_import_patches memscope_import_sampler_patches(void) {
    struct memscope_import_patches now;

    begin_patching();
    now = patches;
    end_patching();
    return now;
}
