#include "sampling/jemalloc_profile.h"

#include "base/descriptors.h"
#include "base/text_file.h"
#include "malloc/allocator.h"
#include "malloc/jemalloc_keys.h"
#include "sampling/native_frames.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- parsing ---------------------------------------------------------------------------------------------------- */

struct counts {
    uint64_t objects, bytes, all_objects, all_bytes;
};

/*
 * "  t*: 13: 6688 [20: 10240]" counts live blocks over all threads, and in brackets all allocated ones, which are 0
 * without opt.prof_accum.
 */
static bool parse_counts(const char *line, struct counts *counts) {
    return memscope_text_skip(&line, "  t*: ") && memscope_text_decimal(&line, &counts->objects) &&
           memscope_text_skip(&line, ": ") && memscope_text_decimal(&line, &counts->bytes) &&
           memscope_text_skip(&line, " [") && memscope_text_decimal(&line, &counts->all_objects) &&
           memscope_text_skip(&line, ": ") && memscope_text_decimal(&line, &counts->all_bytes) &&
           memscope_text_skip(&line, "]\n");
}

/* Parses a line such as "@ 0x7f00 0x7f10\n" into words in scratch. */
static enum memscope_status parse_words(const char **line, struct memscope_scratch *scratch, const uint64_t **words,
                                        uint32_t *length) {
    uint64_t parsed[MEMSCOPE_STACK_WORDS], *kept;

    *length = 0;
    (*line)++;
    while (**line != '\n') {
        if (*length == MEMSCOPE_STACK_WORDS || !memscope_text_skip(line, " 0x") ||
            !memscope_text_hexadecimal(line, &parsed[*length]))
            return MEMSCOPE_MALFORMED;
        (*length)++;
    }
    (*line)++;
    kept = memscope_scratch_take(scratch, *length * sizeof *kept + 1);
    if (kept == NULL)
        return MEMSCOPE_NO_MEMORY;
    memcpy(kept, parsed, *length * sizeof *kept);
    *words = kept;
    return MEMSCOPE_OK;
}

/*
 * jeprof's arithmetic: each sampled block stands for 1/p blocks, where p is the probability that a block of the mean
 * size is sampled.
 */
static double scale(uint64_t objects, uint64_t bytes, double rate) {
    return objects == 0 ? 0 : memscope_sample_weight((double)bytes / (double)objects, rate);
}

static struct memscope_sampled_stack estimate(const struct counts *counts, double rate, bool accumulates) {
    double live = scale(counts->objects, counts->bytes, rate);
    double all = scale(counts->all_objects, counts->all_bytes, rate);
    double bytes = (double)counts->bytes;

    return (struct memscope_sampled_stack){
        .samples = counts->objects,
        .live_bytes = bytes * live,
        .live_objects = (double)counts->objects * live,
        .variance = counts->objects == 0 ? 0 : bytes * bytes / (double)counts->objects * live * (live - 1),
        .allocated_bytes = accumulates ? (double)counts->all_bytes * all : -1,
        .allocated_objects = accumulates ? (double)counts->all_objects * all : -1,
    };
}

static enum memscope_status parse_stack(const char **line, double rate, bool accumulates,
                                        struct memscope_scratch *scratch, struct memscope_sampled_stack *stack) {
    struct counts counts;
    const uint64_t *words;
    uint32_t length;
    enum memscope_status status = parse_words(line, scratch, &words, &length);

    if (status != MEMSCOPE_OK)
        return status;
    if (!parse_counts(*line, &counts))
        return MEMSCOPE_MALFORMED;
    *stack = estimate(&counts, rate, accumulates);
    stack->words = words;
    stack->length = length;
    return MEMSCOPE_OK;
}

static size_t count_stacks(const char *text) {
    size_t count = 0;

    for (const char *line = text; *line; line = memscope_text_next_line(line))
        count += *line == '@';
    return count;
}

enum memscope_status memscope_jemalloc_profile_parse(const char *text, size_t size, struct memscope_scratch *scratch,
                                                     struct memscope_sampled_stacks *stacks) {
    struct counts whole;
    uint64_t rate;

    *stacks = (struct memscope_sampled_stacks){0};
    if (strlen(text) != size || !memscope_text_skip(&text, "heap_v2/") || !memscope_text_decimal(&text, &rate) ||
        rate == 0 || !memscope_text_skip(&text, "\n") || !parse_counts(text, &whole))
        return MEMSCOPE_MALFORMED;
    stacks->list = memscope_scratch_take(scratch, (count_stacks(text) + 1) * sizeof *stacks->list);
    if (!stacks->list)
        return MEMSCOPE_NO_MEMORY;
    while (*text && strncmp(text, "\nMAPPED_LIBRARIES", 17) != 0) {
        enum memscope_status status = MEMSCOPE_OK;

        if (*text != '@') {
            text = memscope_text_next_line(text);
            continue;
        }
        status = parse_stack(&text, (double)rate, whole.all_objects > 0, scratch, &stacks->list[stacks->count++]);
        if (status != MEMSCOPE_OK)
            return status;
    }
    return MEMSCOPE_OK;
}

/*
 * Returns true if jemalloc promotes sampled small blocks to whole pages (after 5.3.0) instead of SC_LARGE_MINCLASS. A
 * build from between 5.3.0 and the next release reports 5.3.0.
 */
static bool promotes_to_pages(void) {
    const char *version = NULL;
    uint64_t major, minor, patch;

    if (memscope_jemalloc_read("version", &version, sizeof version) != MEMSCOPE_OK ||
        !memscope_text_decimal(&version, &major) || !memscope_text_skip(&version, ".") ||
        !memscope_text_decimal(&version, &minor) || !memscope_text_skip(&version, ".") ||
        !memscope_text_decimal(&version, &patch))
        return false;
    return major > 5 || (major == 5 && (minor > 3 || (minor == 3 && patch > 0)));
}

/*
 * A sampled block smaller than `limit` gets an extent of a multiple of `unit`, plus `pad`: one page with
 * cache_oblivious, which shifts the block's start. All in bytes.
 */
struct promotion {
    double limit, unit, pad;
};

static struct promotion promotion_here(void) {
    size_t large = 16384, page = 4096;
    bool shifted = true;

    memscope_jemalloc_read("arenas.lextent.0.size", &large, sizeof large);
    memscope_jemalloc_read("arenas.page", &page, sizeof page);
    memscope_jemalloc_read("opt.cache_oblivious", &shifted, sizeof shifted);
    return (struct promotion){(double)large, (double)(promotes_to_pages() ? page : large), shifted ? (double)page : 0};
}

/*
 * The extent, without `pad`, of a block that has the mean size of a stack's blocks. With prof_unbias, that mean may be
 * up to 1 % too large, hence the tolerance of an eighth of a unit. No size class exceeds a whole number of pages by so
 * little: the next class exceeds it by a quarter of a page.
 */
static double extent_of(double size, struct promotion promotion) {
    return fmax(1, ceil(size / promotion.unit - 0.125)) * promotion.unit;
}

struct memscope_jemalloc_inflation memscope_jemalloc_profile_inflation(const struct memscope_sampled_stacks *stacks) {
    struct promotion promotion = promotion_here();
    double active = 0, allocated = 0;

    for (size_t index = 0; index < stacks->count; index++) {
        const struct memscope_sampled_stack *stack = &stacks->list[index];
        double size = stack->live_objects > 0 ? stack->live_bytes / stack->live_objects : 0;

        if (stack->samples > 0 && size < promotion.limit) {
            double extent = extent_of(size, promotion);

            active += (double)stack->samples * fmax(0, extent + promotion.pad - size);
            allocated += (double)stack->samples * ((extent < promotion.limit ? 0 : extent) - size);
        }
    }
    return (struct memscope_jemalloc_inflation){(uint64_t)active, (int64_t)allocated};
}

/* ---- jemalloc's switches ---------------------------------------------------------------------------------------- */

typedef void (*backtrace_hook)(void **words, unsigned *length, unsigned room);

static memscope_stack_reader read_stack;
static backtrace_hook hook_before;
static bool active_before;

/* As declared in prof_hook.h of 5.3.0. */
static void hook(void **words, unsigned *length, unsigned room) {
    _Static_assert(sizeof *words == sizeof(uint64_t), "a word is an address");
    *length = memscope_probe_stack() ? read_stack((uint64_t *)words, room) : 0;
}

static bool read_key(const char *key, void *value, size_t size) {
    return memscope_jemalloc_read(key, value, size) == MEMSCOPE_OK;
}

static bool write_key(const char *key, void *value, size_t size) {
    memscope_mallctl mallctl = memscope_jemalloc_entry();

    return mallctl && mallctl(key, NULL, NULL, value, size) == 0;
}

static bool exchange_hook(backtrace_hook *old, backtrace_hook new) {
    memscope_mallctl mallctl = memscope_jemalloc_entry();
    size_t size = sizeof *old;

    return mallctl("experimental.hooks.prof_backtrace", old, &size, &new, sizeof new) == 0;
}

enum memscope_jemalloc_profiling memscope_jemalloc_profiling(void) {
    backtrace_hook now;
    bool built = false, on = false;

    if (memscope_allocator_current()->name != MEMSCOPE_ALLOCATOR_JEMALLOC)
        return MEMSCOPE_PROFILING_OTHER;
    if (!read_key("config.prof", &built, sizeof built) || !built)
        return MEMSCOPE_PROFILING_NOT_BUILT;
    if (!read_key("opt.prof", &on, sizeof on) || !on)
        return MEMSCOPE_PROFILING_OFF;
    return read_key("experimental.hooks.prof_backtrace", &now, sizeof now) ? MEMSCOPE_PROFILING_ON
                                                                           : MEMSCOPE_PROFILING_NO_HOOK;
}

enum memscope_status memscope_jemalloc_profile_prepare(void) {
    return memscope_jemalloc_profiling() == MEMSCOPE_PROFILING_ON ? MEMSCOPE_OK : MEMSCOPE_UNSUPPORTED;
}

enum memscope_status memscope_jemalloc_profile_start(unsigned rate_log, memscope_stack_reader reader) {
    size_t rate = rate_log;
    bool on = true;

    if (memscope_jemalloc_profile_prepare() != MEMSCOPE_OK)
        return MEMSCOPE_UNSUPPORTED;
    read_stack = reader;
    active_before = false;
    read_key("prof.active", &active_before, sizeof active_before);
    memscope_native_frames_skip_object_of((const void *)(uintptr_t)memscope_jemalloc_entry());
    if (!exchange_hook(&hook_before, hook))
        return MEMSCOPE_UNSUPPORTED;
    if (write_key("prof.reset", &rate, sizeof rate) && write_key("prof.active", &on, sizeof on))
        return MEMSCOPE_OK;
    memscope_jemalloc_profile_stop();
    return MEMSCOPE_UNSUPPORTED;
}

void memscope_jemalloc_profile_stop(void) {
    backtrace_hook ours;

    write_key("prof.active", &active_before, sizeof active_before);
    exchange_hook(&ours, hook_before);
}

/* ---- reading ---------------------------------------------------------------------------------------------------- */

static enum memscope_status dump_into(int descriptor) {
    char path[64];
    const char *name = path;

    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
    if (access(path, W_OK) != 0) /* checked here, because jemalloc reports no errno */
        return memscope_status_of_errno(errno);
    return write_key("prof.dump", &name, sizeof name) ? MEMSCOPE_OK : MEMSCOPE_IO;
}

static enum memscope_status parse_file(int descriptor, struct memscope_scratch *scratch,
                                       struct memscope_sampled_stacks *stacks) {
    enum memscope_status status;
    struct stat file;
    char *text;

    if (fstat(descriptor, &file) != 0 || ftruncate(descriptor, file.st_size + 1) != 0)
        return MEMSCOPE_IO; /* the extra byte, a NUL, ends the text */
    text = mmap(NULL, (size_t)file.st_size + 1, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (text == MAP_FAILED)
        return MEMSCOPE_NO_MEMORY;
    status = memscope_jemalloc_profile_parse(text, (size_t)file.st_size, scratch, stacks);
    munmap(text, (size_t)file.st_size + 1);
    return status;
}

enum memscope_status memscope_jemalloc_profile_read(struct memscope_scratch *scratch,
                                                    struct memscope_sampled_stacks *stacks) {
    enum memscope_status status;
    int descriptor;

    if (memscope_file_size_limit() != UINT64_MAX) /* the size of the profile is unknown */
        return MEMSCOPE_DENIED;
    descriptor = memscope_descriptor_of_memory("memscope profile");
    if (descriptor < 0)
        return memscope_status_of_errno(errno);
    status = dump_into(descriptor);
    if (status == MEMSCOPE_OK)
        status = parse_file(descriptor, scratch, stacks);
    memscope_descriptor_close(descriptor);
    return status;
}
