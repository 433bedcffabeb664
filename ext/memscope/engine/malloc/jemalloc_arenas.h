/*
 * jemalloc's statistics by arena and by size class, all of one epoch.
 *
 * jemalloc_arenas.def is the table of every key read. A row holds the fields of one group, in the table's order. A key
 * that this jemalloc lacks leaves its bit in `known` clear and its value 0. No GVL needed. The rows are in the caller's
 * scratch memory, and nothing is allocated with malloc once jemalloc has set up its ctl tables.
 */
#pragma once

#include "base/scratch.h"
#include "base/status.h"

enum memscope_jemalloc_group {
    MEMSCOPE_JEMALLOC_ARENA,
    MEMSCOPE_JEMALLOC_MUTEX,
    MEMSCOPE_JEMALLOC_SLAB,
    MEMSCOPE_JEMALLOC_BIN,
    MEMSCOPE_JEMALLOC_EXTENT,
    MEMSCOPE_JEMALLOC_LARGE,
    MEMSCOPE_JEMALLOC_GROUPS,
};

/* One field of a group. */
struct memscope_jemalloc_key {
    const char *field; /* its name in Ruby */
    const char *key;   /* upstream's name, without the group's prefix */
    enum memscope_jemalloc_group group;
    uint8_t size; /* in bytes, of its C type */
    bool is_signed;
    bool in_pages; /* the value counts pages, the field bytes */
};

const struct memscope_jemalloc_key *memscope_jemalloc_keys(enum memscope_jemalloc_group group, size_t *count);

/* The mutexes of an arena, in the order of their rows. */
const char *const *memscope_jemalloc_mutex_names(size_t *count);

#define MEMSCOPE_JEMALLOC_ROW_FIELDS 40

/* ARENA_NAME_LEN of 5.3.1 is 32. */
#define MEMSCOPE_ARENA_NAME 64

struct memscope_jemalloc_row {
    uint64_t values[MEMSCOPE_JEMALLOC_ROW_FIELDS];
    uint64_t known; /* 1 << the field's place in the group */
};

struct memscope_jemalloc_arena {
    unsigned index;                 /* MALLCTL_ARENAS_ALL (4096) for all arenas together */
    bool huge;                      /* the arena that jemalloc keeps for large allocations (opt.oversize_threshold) */
    char name[MEMSCOPE_ARENA_NAME]; /* "" before 5.3.1, and for all arenas together */
    struct memscope_jemalloc_row row;
    struct memscope_jemalloc_row *mutexes; /* in the order of memscope_jemalloc_mutex_names */
};

struct memscope_jemalloc_arenas {
    uint64_t epoch;
    uint64_t page_bytes;
    unsigned narenas;                     /* number of arena indexes, including those of arenas not initialised */
    struct memscope_jemalloc_arena *list; /* the initialised arenas, by index, then all arenas together */
    size_t count;
    bool mixed_epochs; /* another caller advanced the epoch during both attempts */
};

struct memscope_jemalloc_class {
    bool large;
    struct memscope_jemalloc_row size;       /* of the group SLAB, or EXTENT for a large class */
    struct memscope_jemalloc_row statistics; /* of the group BIN, or LARGE for a large class */
};

struct memscope_jemalloc_classes {
    uint64_t epoch;
    unsigned narenas;
    struct memscope_jemalloc_class *list; /* by size */
    size_t count;
    bool large_by_pages; /* large allocations round up to pages, so that their class's size is an upper bound */
    bool mixed_epochs;
};

/*
 * Both functions first advance the epoch if `advance` is true, which takes 6 µs plus 6.5 µs for each initialised arena,
 * under jemalloc's ctl lock. Then they take 0.024 µs a key. They return MEMSCOPE_UNSUPPORTED as
 * memscope_jemalloc_read_stats does, and MEMSCOPE_NO_MEMORY if scratch runs out. For classes, `arena` is an index or
 * MALLCTL_ARENAS_ALL, and the status is MEMSCOPE_NOT_FOUND if there is no such arena.
 */
enum memscope_status memscope_jemalloc_read_arenas(struct memscope_scratch *scratch, bool advance,
                                                   struct memscope_jemalloc_arenas *arenas);
enum memscope_status memscope_jemalloc_read_classes(struct memscope_scratch *scratch, bool advance, unsigned arena,
                                                    struct memscope_jemalloc_classes *classes);
