#include "native_frames.h"

#include "protections.h"
#include "shared_objects.h"

__attribute__((noinline)) void memscope_probe_stack(void) {
    char page[4000];
    const volatile char *lowest = page;

    __asm__ volatile("" ::"r"(page) : "memory"); /* for all that the compiler knows, it has been written to */
    if (PROTECTS(stack_probe))
        (void)*lowest;
}

#if defined(__linux__) && defined(__GLIBC__)

#include <unwind.h>

#define END_LIMIT 4

/* Since glibc 2.35 libgcc finds unwind tables through it, and else through dl_iterate_phdr, under a lock. */
extern int _dl_find_object(void *address, void *result) __attribute__((weak));

static uintptr_t ends[END_LIMIT];
static unsigned end_count;
static struct memscope_range own, skipped;

bool memscope_native_frames_possible(void) {
    return _dl_find_object != NULL;
}

struct search {
    uintptr_t address;
    struct memscope_range found;
};

static bool is_in(uintptr_t address, struct memscope_range extent) {
    return address >= extent.start && address < extent.end;
}

static bool find_extent(const struct memscope_shared_object *object, void *context) {
    struct search *search = context;

    if (!memscope_shared_object_contains(object, search->address))
        return true;
    search->found = memscope_shared_object_extent(object);
    return false;
}

static struct memscope_range extent_of(const void *address) {
    struct search search = {.address = (uintptr_t)address};

    memscope_each_shared_object(find_extent, &search);
    return search.found;
}

void memscope_native_frames_skip_object_of(const void *address) {
    skipped = address ? extent_of(address) : (struct memscope_range){0};
}

struct walk {
    uint64_t *words;
    unsigned count, room;
    bool leaf_only, learning, left;
};

static bool is_end(uintptr_t function) {
    for (unsigned index = 0; index < end_count; index++)
        if (ends[index] == function)
            return true;
    return false;
}

/* Frames that no table describes (compiled by a JIT) end the walk: they have no function. */
static _Unwind_Reason_Code visit(struct _Unwind_Context *context, void *argument) {
    struct walk *walk = argument;
    uintptr_t address = _Unwind_GetIP(context), function = _Unwind_GetRegionStart(context);

    if (address == 0 || function == 0)
        return _URC_END_OF_STACK;
    if (!walk->left && (is_in(address, own) || is_in(address, skipped)))
        return _URC_NO_REASON;
    walk->left = true;
    if (walk->leaf_only && is_end(function))
        return _URC_END_OF_STACK;
    walk->words[walk->count++] = walk->learning ? function : address;
    return walk->count < walk->room ? _URC_NO_REASON : _URC_END_OF_STACK;
}

unsigned memscope_native_frames(uint64_t *words, unsigned room, bool leaf_only) {
    struct walk walk = {.words = words, .room = room, .leaf_only = leaf_only};

    if (room > 0 && memscope_native_frames_possible())
        _Unwind_Backtrace(visit, &walk);
    return walk.count;
}

void memscope_native_frames_learn_callers(unsigned count) {
    uint64_t functions[END_LIMIT];
    struct walk walk = {.words = functions, .room = count < END_LIMIT ? count : END_LIMIT, .learning = true};

    own = extent_of((const void *)(uintptr_t)memscope_native_frames);
    if (memscope_native_frames_possible())
        _Unwind_Backtrace(visit, &walk);
    end_count = walk.count;
    for (unsigned index = 0; index < end_count; index++)
        ends[index] = functions[index];
}

#else

bool memscope_native_frames_possible(void) {
    return false;
}

unsigned memscope_native_frames(uint64_t *words, unsigned room, bool leaf_only) {
    (void)words, (void)room, (void)leaf_only;
    return 0;
}

void memscope_native_frames_learn_callers(unsigned count) {
    (void)count;
}

void memscope_native_frames_skip_object_of(const void *address) {
    (void)address;
}

#endif
