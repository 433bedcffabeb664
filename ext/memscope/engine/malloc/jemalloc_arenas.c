#include "malloc/jemalloc_arenas.h"

#include <stdio.h>
#include <string.h>

#include "malloc/jemalloc.h"
#include "malloc/jemalloc_keys.h"

#define IS_SIGNED(type) ((type)-1 < (type)1)
#define PLAIN false
#define PAGES true
#define KEY(group, field, key, type, unit)                                                                             \
    {#field, key, MEMSCOPE_JEMALLOC_##group, sizeof(type), IS_SIGNED(type), unit},
static const struct memscope_jemalloc_key keys[] = {
#include "malloc/jemalloc_arenas.def"
};

#define KEYS (sizeof keys / sizeof keys[0])

/*
 * The mutexes of 5.0 to 5.3.1 and the development branch (MUTEX_PROF_ARENA_MUTEXES in mutex_prof.h). Each version has
 * some of them.
 */
static const char *const mutex_names[] = {
    "large",          "extent_avail",   "extents_dirty", "extents_muzzy", "extents_retained",
    "extents_pinned", "decay_dirty",    "decay_muzzy",   "base",          "tcache_list",
    "hpa_shard",      "hpa_shard_grow", "hpa_sec"};

#define MUTEXES (sizeof mutex_names / sizeof mutex_names[0])

/* The prefixes of the groups' keys, with 0 for each index. The name of the mutex follows MUTEX's prefix. */
static const char *const prefixes[MEMSCOPE_JEMALLOC_GROUPS] = {
    [MEMSCOPE_JEMALLOC_ARENA] = "stats.arenas.0.",    [MEMSCOPE_JEMALLOC_MUTEX] = "stats.arenas.0.mutexes.",
    [MEMSCOPE_JEMALLOC_SLAB] = "arenas.bin.0.",       [MEMSCOPE_JEMALLOC_BIN] = "stats.arenas.0.bins.0.",
    [MEMSCOPE_JEMALLOC_EXTENT] = "arenas.lextent.0.", [MEMSCOPE_JEMALLOC_LARGE] = "stats.arenas.0.lextents.0.",
};

/* The table begins with ARENA, the largest group, so the place of the first MUTEX key is the size of ARENA. */
#define KEY(group, field, key, type, unit) PLACE_OF_##group##_##field,
enum place {
#include "malloc/jemalloc_arenas.def"
};
_Static_assert(PLACE_OF_MUTEX_operations <= MEMSCOPE_JEMALLOC_ROW_FIELDS, "a row has a place for each field");

/* A group's keys are contiguous in the table. */
const struct memscope_jemalloc_key *memscope_jemalloc_keys(enum memscope_jemalloc_group group, size_t *count) {
    const struct memscope_jemalloc_key *first = keys;

    while (first->group != group)
        first++;
    *count = 0;
    while (first + *count < keys + KEYS && first[*count].group == group)
        ++*count;
    return first;
}

const char *const *memscope_jemalloc_mutex_names(size_t *count) {
    *count = MUTEXES;
    return mutex_names;
}

/* The keys of one group, with their mibs in this process. */
struct resolved {
    const struct memscope_jemalloc_key *keys;
    size_t count;
    struct memscope_mib mibs[MEMSCOPE_JEMALLOC_ROW_FIELDS];
};

static void resolve(const struct memscope_jemalloc_binding *jemalloc, enum memscope_jemalloc_group group,
                    const char *mutex, struct resolved *resolved) {
    resolved->keys = memscope_jemalloc_keys(group, &resolved->count);
    for (size_t index = 0; index < resolved->count; index++) {
        char name[96];

        snprintf(name, sizeof name, "%s%s%s%s", prefixes[group], mutex ? mutex : "", mutex ? "." : "",
                 resolved->keys[index].key);
        resolved->mibs[index] = memscope_jemalloc_mib(jemalloc, name);
    }
}

/* Reads a group, with arena and class in place of the indexes in its keys. */
static void read_row(const struct memscope_jemalloc_binding *jemalloc, struct resolved *resolved, size_t arena,
                     size_t class, struct memscope_jemalloc_row *row) {
    enum memscope_jemalloc_group group = resolved->keys[0].group;
    bool constant = group == MEMSCOPE_JEMALLOC_SLAB || group == MEMSCOPE_JEMALLOC_EXTENT;
    bool classed = group == MEMSCOPE_JEMALLOC_BIN || group == MEMSCOPE_JEMALLOC_LARGE;

    *row = (struct memscope_jemalloc_row){.known = 0};
    for (size_t index = 0; index < resolved->count; index++) {
        struct memscope_mib *mib = &resolved->mibs[index];

        mib->parts[MEMSCOPE_MIB_ARENA] = constant ? class : arena;
        if (classed)
            mib->parts[MEMSCOPE_MIB_CLASS] = class;
        if (memscope_jemalloc_read_mib(jemalloc, mib, resolved->keys[index].size, &row->values[index]))
            row->known |= UINT64_C(1) << index;
    }
}

static uint64_t read_epoch(void) {
    uint64_t epoch = 0;

    return memscope_jemalloc_read("epoch", &epoch, sizeof epoch) == MEMSCOPE_OK ? epoch : 0;
}

/*
 * The index of the huge arena, right after the automatic ones (src/arena.c arena_init_huge), or MEMSCOPE_ALL_ARENAS if
 * no threshold is set.
 */
static unsigned huge_arena(void) {
    unsigned automatic = 0;
    size_t threshold = 0;

    if (memscope_jemalloc_read("opt.narenas", &automatic, sizeof automatic) != MEMSCOPE_OK ||
        memscope_jemalloc_read("opt.oversize_threshold", &threshold, sizeof threshold) != MEMSCOPE_OK || threshold == 0)
        return MEMSCOPE_ALL_ARENAS;
    return automatic;
}

/* Checks that statistics can be read, and advances the epoch on request. */
static enum memscope_status begin(const struct memscope_jemalloc_binding *jemalloc, bool advance, unsigned *narenas) {
    if (memscope_jemalloc_unsupported_reason() != NULL)
        return MEMSCOPE_UNSUPPORTED;
    if (memscope_jemalloc_read("arenas.narenas", narenas, sizeof *narenas) != MEMSCOPE_OK)
        return MEMSCOPE_UNSUPPORTED;
    return advance ? memscope_jemalloc_advance_epoch(jemalloc) : MEMSCOPE_OK;
}

/*
 * For this key, oldp points to a char pointer, and mallctl copies the name to that pointer's target (5.3.1, src/ctl.c
 * arena_i_name_ctl). memscope_jemalloc_read_mib cannot be used: it passes the address of a number, whose value mallctl
 * would use as that pointer.
 */
static void read_name(const struct memscope_jemalloc_binding *jemalloc, struct memscope_mib *mib,
                      struct memscope_jemalloc_arena *arena) {
    char *name = arena->name;
    size_t length = sizeof name;

    arena->name[0] = '\0';
    mib->parts[MEMSCOPE_MIB_CONTROL] = arena->index;
    if (arena->index != MEMSCOPE_ALL_ARENAS && mib->length > 0)
        jemalloc->by_mib(mib->parts, mib->length, &name, &length, NULL, 0);
    arena->name[MEMSCOPE_ARENA_NAME - 1] = '\0';
}

static bool is_initialized(const struct memscope_jemalloc_arena *arena) {
    return arena->row.known != 0;
}

static enum memscope_status read_list(const struct memscope_jemalloc_binding *jemalloc,
                                      struct memscope_scratch *scratch, struct resolved *groups,
                                      struct memscope_jemalloc_arenas *arenas) {
    struct memscope_mib name = memscope_jemalloc_mib(jemalloc, "arena.0.name");
    unsigned huge = huge_arena();

    arenas->count = 0;
    arenas->list = memscope_scratch_take(scratch, (arenas->narenas + 1) * sizeof *arenas->list);
    if (arenas->list == NULL)
        return MEMSCOPE_NO_MEMORY;
    for (unsigned index = 0; index <= arenas->narenas; index++) {
        struct memscope_jemalloc_arena *arena = &arenas->list[arenas->count];

        arena->index = index < arenas->narenas ? index : MEMSCOPE_ALL_ARENAS;
        arena->huge = index == huge;
        arena->mutexes = NULL;
        read_row(jemalloc, &groups[0], arena->index, 0, &arena->row);
        if (!is_initialized(arena))
            continue;
        arenas->count++;
        read_name(jemalloc, &name, arena);
        arena->mutexes = memscope_scratch_take(scratch, MUTEXES * sizeof *arena->mutexes);
        if (arena->mutexes == NULL)
            return MEMSCOPE_NO_MEMORY;
        for (size_t mutex = 0; mutex < MUTEXES; mutex++)
            read_row(jemalloc, &groups[1 + mutex], arena->index, 0, &arena->mutexes[mutex]);
    }
    return MEMSCOPE_OK;
}

enum memscope_status memscope_jemalloc_read_arenas(struct memscope_scratch *scratch, bool advance,
                                                   struct memscope_jemalloc_arenas *arenas) {
    struct memscope_jemalloc_binding jemalloc = memscope_jemalloc_binding();
    struct resolved *groups = memscope_scratch_take(scratch, (1 + MUTEXES) * sizeof *groups);
    size_t page = 0;
    enum memscope_status status;

    memset(arenas, 0, sizeof *arenas);
    status = begin(&jemalloc, advance, &arenas->narenas);
    if (status != MEMSCOPE_OK)
        return status;
    if (groups == NULL)
        return MEMSCOPE_NO_MEMORY;
    resolve(&jemalloc, MEMSCOPE_JEMALLOC_ARENA, NULL, &groups[0]);
    for (size_t mutex = 0; mutex < MUTEXES; mutex++)
        resolve(&jemalloc, MEMSCOPE_JEMALLOC_MUTEX, mutex_names[mutex], &groups[1 + mutex]);
    if (memscope_jemalloc_read("arenas.page", &page, sizeof page) == MEMSCOPE_OK)
        arenas->page_bytes = page;
    for (int attempt = 0; attempt < 2; attempt++) {
        arenas->epoch = read_epoch();
        status = read_list(&jemalloc, scratch, groups, arenas);
        arenas->mixed_epochs = arenas->epoch != read_epoch();
        if (status != MEMSCOPE_OK || !arenas->mixed_epochs)
            break;
    }
    return status;
}

static void read_classes(const struct memscope_jemalloc_binding *jemalloc, struct resolved *groups, unsigned arena,
                         unsigned bins, struct memscope_jemalloc_classes *classes) {
    for (size_t index = 0; index < classes->count; index++) {
        struct memscope_jemalloc_class *class = &classes->list[index];
        enum memscope_jemalloc_group size, statistics;

        class->large = index >= bins;
        size = class->large ? MEMSCOPE_JEMALLOC_EXTENT : MEMSCOPE_JEMALLOC_SLAB;
        statistics = class->large ? MEMSCOPE_JEMALLOC_LARGE : MEMSCOPE_JEMALLOC_BIN;
        read_row(jemalloc, &groups[size], 0, class->large ? index - bins : index, &class->size);
        read_row(jemalloc, &groups[statistics], arena, class->large ? index - bins : index, &class->statistics);
    }
}

enum memscope_status memscope_jemalloc_read_classes(struct memscope_scratch *scratch, bool advance, unsigned arena,
                                                    struct memscope_jemalloc_classes *classes) {
    struct memscope_jemalloc_binding jemalloc = memscope_jemalloc_binding();
    struct resolved *groups = memscope_scratch_take(scratch, MEMSCOPE_JEMALLOC_GROUPS * sizeof *groups);
    unsigned bins, extents;
    enum memscope_status status;

    memset(classes, 0, sizeof *classes);
    status = begin(&jemalloc, advance, &classes->narenas);
    if (status != MEMSCOPE_OK)
        return status;
    if (memscope_jemalloc_read("arenas.nbins", &bins, sizeof bins) != MEMSCOPE_OK ||
        memscope_jemalloc_read("arenas.nlextents", &extents, sizeof extents) != MEMSCOPE_OK)
        return MEMSCOPE_UNSUPPORTED;
    if (arena != MEMSCOPE_ALL_ARENAS && arena >= classes->narenas)
        return MEMSCOPE_NOT_FOUND;
    /* New in 5.3.1 and on by default. Before, every large allocation was rounded up to its class's size. */
    memscope_jemalloc_read("opt.disable_large_size_classes", &classes->large_by_pages, sizeof classes->large_by_pages);
    classes->count = (size_t)bins + extents;
    classes->list = memscope_scratch_take(scratch, classes->count * sizeof *classes->list);
    if (groups == NULL || classes->list == NULL)
        return MEMSCOPE_NO_MEMORY;
    for (int group = MEMSCOPE_JEMALLOC_SLAB; group < MEMSCOPE_JEMALLOC_GROUPS; group++)
        resolve(&jemalloc, (enum memscope_jemalloc_group)group, NULL, &groups[group]);
    for (int attempt = 0; attempt < 2; attempt++) {
        classes->epoch = read_epoch();
        read_classes(&jemalloc, groups, arena, bins, classes);
        classes->mixed_epochs = classes->epoch != read_epoch();
        if (!classes->mixed_epochs)
            break;
    }
    return classes->count > 0 && classes->list[0].statistics.known == 0 ? MEMSCOPE_NOT_FOUND : MEMSCOPE_OK;
}
