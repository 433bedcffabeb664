#include "sampling/native_frames.h"

#include "base/protections.h"
#include "base/scratch.h"
#include "elf/object_lookup.h"
#include "elf/shared_objects.h"
#include "sampling/unwind_rules.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unwind.h>

#define PROBED_BYTES 4000

/* Only reads, at worst memory below a signal handler's stack. */
static __attribute__((noinline)) void read_below(void) {
    char page[PROBED_BYTES];
    const volatile char *lowest = page;

    __asm__ volatile("" ::"r"(page) : "memory"); /* makes the compiler assume that `page` has been written */
    if (PROTECTS(stack_probe))
        (void)*lowest;
}

bool memscope_probe_stack(void) {
    uintptr_t lowest = (uintptr_t)__builtin_frame_address(0) - PROBED_BYTES;
    stack_t handlers;

    /* Takes 0.1 µs. The unsigned difference wraps around below the start of the stack, and exceeds ss_size. */
    if (sigaltstack(NULL, &handlers) == 0 && handlers.ss_flags & SS_ONSTACK &&
        lowest - (uintptr_t)handlers.ss_sp >= handlers.ss_size && PROTECTS(stack_probe))
        return false;
    read_below();
    return true;
}

#define END_LIMIT 4

static uint64_t ends[END_LIMIT];
static unsigned end_count;
static struct memscope_range own, skipped, unwinder;

/*
 * Loaded at run time, not linked, since libgcc_s takes 100 KiB of resident memory, and only a process with a malloc
 * profile unwinds.
 */
static struct {
    __typeof__(&_Unwind_Backtrace) backtrace;
    __typeof__(&_Unwind_GetIP) address;
    __typeof__(&_Unwind_GetRegionStart) function;
} libgcc;

static void load_libgcc(void) {
    void *library = dlopen("libgcc_s.so.1", RTLD_NOW);

    if (!library)
        return;
    libgcc.address = (__typeof__(libgcc.address))dlsym(library, "_Unwind_GetIP");
    libgcc.function = (__typeof__(libgcc.function))dlsym(library, "_Unwind_GetRegionStart");
    libgcc.backtrace = (__typeof__(libgcc.backtrace))dlsym(library, "_Unwind_Backtrace");
}

struct search {
    uintptr_t address;
    struct memscope_range found;
};

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

/* Returns false for a program with libgcc linked in, most of whose frames are not the unwinder's. */
bool memscope_native_frames_unwinder(const struct memscope_shared_object *object) {
    return *object->path && memscope_shared_object_contains(object, (uintptr_t)(void *)libgcc.backtrace);
}

static bool find_unwinder(const struct memscope_shared_object *object, void *unused) {
    (void)unused;
    if (memscope_native_frames_unwinder(object))
        unwinder = memscope_shared_object_extent(object);
    return true;
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

/* Records a frame unless it is excluded. Returns true if the walk continues. */
static bool take_frame(struct walk *walk, uintptr_t address, bool at_end) {
    if (!walk->left && (memscope_range_contains(own, address) || memscope_range_contains(skipped, address)))
        return true;
    walk->left = true;
    if (walk->leaf_only && at_end)
        return false;
    walk->words[walk->count++] = address;
    return walk->count < walk->room;
}

/* ---- unwinding with libgcc, at any frame ------------------------------------------------------------------------ */

static bool find_unwindable(uintptr_t address, struct memscope_loaded_object *object) {
    return memscope_object_at(address, object) && object->unwind_index;
}

/*
 * A frame outside any object (JIT-compiled code) ends the walk, since libgcc returns the preceding frame's function for
 * it.
 */
static _Unwind_Reason_Code visit(struct _Unwind_Context *context, void *argument) {
    struct walk *walk = argument;
    uintptr_t address = libgcc.address(context), function = libgcc.function(context);
    struct memscope_loaded_object object;

    if (address == 0 || function == 0 || !find_unwindable(address - 1, &object))
        return _URC_END_OF_STACK;
    return take_frame(walk, walk->learning ? function : address, is_end(function)) ? _URC_NO_REASON : _URC_END_OF_STACK;
}

unsigned memscope_native_frames_by_libgcc(uint64_t *words, unsigned room, bool leaf_only) {
    struct walk walk = {.words = words, .room = room, .leaf_only = leaf_only};

    if (room > 0 && libgcc.backtrace && memscope_object_lookup_possible())
        libgcc.backtrace(visit, &walk);
    return walk.count;
}

/* ---- unwinding with cached rules -------------------------------------------------------------------------------- */

#ifdef __x86_64__

/*
 * Caches, per address, a rule that libgcc works out anew at every frame, in some 2,000 instructions and many cache
 * lines of tables.
 *
 * The rules of an unloaded object stay until other rules replace them. Another build of the object may be loaded at the
 * same place, with the same layout except for the size of a frame: by the old rule, a read may go past the end of the
 * stack. So each rule carries the offset and a digest of its FDE, and the digest is checked at every use.
 */
#define KEPT_RULES 2048
#define STEP_LIMIT ((uintptr_t)64 << 10)
#define DESCRIPTION_LIMIT 16384 /* bytes in an FDE, of which libruby's longest has 2,476 */

/*
 * Written and read by all threads without a lock. A torn read, which mixes words of different rules, is detected by the
 * seal, except with a probability of 2^-64.
 */
static struct kept_rule {
    _Atomic(uint64_t) seal;   /* a checksum: seal_of(address, rule, source) */
    _Atomic(uint64_t) rule;   /* struct packed_rule */
    _Atomic(uint64_t) source; /* struct source */
} kept_rules[KEPT_RULES];

static uint64_t seal_of(uintptr_t address, uint64_t rule, uint64_t source) {
    uint64_t mixed = (rule ^ rule >> 32) * UINT64_C(0xC2B2AE3D27D4EB4F);

    mixed = (mixed ^ mixed >> 29 ^ source) * UINT64_C(0x9E3779B97F4A7C15);
    return address ^ mixed ^ mixed >> 29;
}

/* `cfa` and `rbp` are in words. The caller's rbp is saved `rbp` words below the CFA. */
struct packed_rule {
    uint64_t kind : 3, ends : 1, cfa : 20, rbp : 13, digest : 27;
};
_Static_assert(sizeof(struct packed_rule) == sizeof(uint64_t), "it fits a word");

/* An FDE: its offset in bytes from the unwind index, and its digest. */
struct source {
    int32_t place;
    uint32_t digest;
};
_Static_assert(sizeof(struct source) == sizeof(uint64_t), "it fits a word");

struct frame {
    uintptr_t address, rsp, rbp;
};

/*
 * A 27-bit digest of the object's addresses and of the first words of its unwind index: the offset of .eh_frame, the
 * number of FDEs, and the first entry.
 */
static uint32_t digest(const struct memscope_loaded_object *object) {
    uint64_t words[5] = {object->extent.start, object->extent.end, (uintptr_t)object->unwind_index}, mixed = 0;

    memcpy(words + 3, object->unwind_index + 4, 2 * sizeof *words);
    for (unsigned index = 0; index < 5; index++)
        mixed = ((mixed ^ words[index]) * UINT64_C(0x9E3779B97F4A7C15)) ^ mixed >> 29;
    return (uint32_t)(mixed >> 37);
}

struct known_object {
    struct memscope_loaded_object object;
    uint32_t digest;
};

static bool find_object(uintptr_t address, struct known_object *known) {
    if (memscope_range_contains(known->object.extent, address))
        return true;
    if (!find_unwindable(address, &known->object))
        return false;
    known->digest = digest(&known->object);
    return true;
}

/*
 * A digest of an FDE: its length field (4 bytes) and its content, mostly some 30 bytes. One FDE in a hundred has more
 * than 128 bytes. The digest is 0 without a usable FDE.
 */
static uint32_t digest_of_description(const struct memscope_loaded_object *object, int32_t place) {
    const uint8_t *at = object->unwind_index + place;
    uintptr_t left = object->extent.end - (uintptr_t)at;
    uint64_t mixed = 0, word = 0;
    uint32_t length;

    if (place == 0 || !memscope_range_contains(object->extent, (uintptr_t)at) || left < sizeof length)
        return 0;
    memcpy(&length, at, sizeof length);
    if (length > DESCRIPTION_LIMIT || length > left - sizeof length)
        return 0;
    mixed = length;
    for (at += sizeof length; length >= sizeof word; length -= sizeof word, at += sizeof word) {
        memcpy(&word, at, sizeof word);
        mixed = (mixed ^ word) * UINT64_C(0x9E3779B97F4A7C15);
        mixed ^= mixed >> 29;
    }
    word = 0;
    memcpy(&word, at, length);
    mixed = (mixed ^ word) * UINT64_C(0x9E3779B97F4A7C15);
    return (uint32_t)(mixed >> 32);
}

static struct packed_rule work_out(const struct known_object *known, uintptr_t address, struct source *source) {
    struct memscope_unwind_rule rule = memscope_unwind_rule_of(&known->object, address);

    *source = (struct source){rule.description, digest_of_description(&known->object, rule.description)};
    return (struct packed_rule){.kind = rule.kind,
                                .ends = is_end(rule.function),
                                .cfa = (uint32_t)rule.cfa / sizeof(uintptr_t),
                                .rbp = (uint32_t)-rule.rbp / sizeof(uintptr_t),
                                .digest = known->digest};
}

static struct packed_rule rule_at(const struct known_object *known, uintptr_t address) {
    struct kept_rule *kept = &kept_rules[address * UINT64_C(0x9E3779B97F4A7C15) >> 53];
    uint64_t word = atomic_load_explicit(&kept->rule, memory_order_relaxed);
    uint64_t source_word = atomic_load_explicit(&kept->source, memory_order_relaxed);
    struct packed_rule rule;
    struct source source;

    memcpy(&rule, &word, sizeof rule);
    memcpy(&source, &source_word, sizeof source);
    if (atomic_load_explicit(&kept->seal, memory_order_relaxed) == seal_of(address, word, source_word) &&
        rule.digest == known->digest && source.digest == digest_of_description(&known->object, source.place))
        return rule;
    rule = work_out(known, address, &source);
    memcpy(&word, &rule, sizeof word);
    memcpy(&source_word, &source, sizeof source_word);
    atomic_store_explicit(&kept->rule, word, memory_order_relaxed);
    atomic_store_explicit(&kept->source, source_word, memory_order_relaxed);
    atomic_store_explicit(&kept->seal, seal_of(address, word, source_word), memory_order_relaxed);
    return rule;
}

/* Returns false if the rule does not lead to the caller. Not sanitized, because it reads other functions' frames. */
__attribute__((no_sanitize_address)) static bool step(struct frame *frame, struct packed_rule rule) {
    uintptr_t cfa = (rule.kind == MEMSCOPE_UNWIND_BY_RSP ? frame->rsp : frame->rbp) + rule.cfa * sizeof(uintptr_t);

    if ((rule.kind != MEMSCOPE_UNWIND_BY_RSP && rule.kind != MEMSCOPE_UNWIND_BY_RBP) ||
        cfa - frame->rsp - 1 >= STEP_LIMIT)
        return false;
    if (rule.rbp)
        frame->rbp = *(const uintptr_t *)(cfa - rule.rbp * sizeof(uintptr_t));
    frame->address = *(const uintptr_t *)(cfa - sizeof(uintptr_t));
    frame->rsp = cfa;
    return true;
}

/*
 * Returns true if the walk was complete, or if this very allocation comes from libgcc's unwinder, which must not be
 * called then.
 */
static bool walk_from(struct frame *frame, struct walk *walk) {
    struct known_object known = {.digest = 0};
    bool unwinding = false;

    for (;;) {
        struct packed_rule rule;

        if (!find_object(frame->address - 1, &known))
            return true;
        unwinding = unwinding || memscope_range_contains(unwinder, frame->address);
        rule = rule_at(&known, frame->address);
        if (rule.kind == MEMSCOPE_UNWIND_OTHER)
            return unwinding;
        if (!take_frame(walk, frame->address, rule.ends) || rule.kind <= MEMSCOPE_UNWIND_OUTERMOST)
            return true;
        if (!step(frame, rule))
            return unwinding;
    }
}

__attribute__((noinline)) unsigned memscope_native_frames(uint64_t *words, unsigned room, bool leaf_only) {
    struct walk walk = {.words = words, .room = room, .leaf_only = leaf_only};
    const uintptr_t *base = __builtin_frame_address(0);
    struct frame caller = {.address = base[1], .rsp = (uintptr_t)(base + 2), .rbp = base[0]};

    if (room == 0 || !memscope_object_lookup_possible())
        return 0;
    return walk_from(&caller, &walk) ? walk.count : memscope_native_frames_by_libgcc(words, room, leaf_only);
}

size_t memscope_native_frames_resident_bytes(void) {
    return memscope_lasting_resident_bytes(kept_rules, sizeof kept_rules);
}

#else

unsigned memscope_native_frames(uint64_t *words, unsigned room, bool leaf_only) {
    return memscope_native_frames_by_libgcc(words, room, leaf_only);
}

size_t memscope_native_frames_resident_bytes(void) {
    return 0;
}

#endif

void memscope_native_frames_learn_callers(unsigned count) {
    struct walk walk = {.words = ends, .room = count < END_LIMIT ? count : END_LIMIT, .learning = true};

    load_libgcc();
    own = extent_of((const void *)(uintptr_t)memscope_native_frames);
    memscope_each_shared_object(find_unwinder, NULL);
    if (libgcc.backtrace && memscope_object_lookup_possible())
        libgcc.backtrace(visit, &walk);
    end_count = walk.count;
}
