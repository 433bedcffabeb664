/* The process's mallctl, and its keys by mib. A lookup takes 0.09 µs by name, and 0.014 µs by mib. */
#pragma once

#include "base/status.h"
#include "malloc/jemalloc.h"

/* The deepest key, stats.arenas.<i>.bins.<j>.mutex.<name>, has seven parts. */
#define MEMSCOPE_MIB_PARTS 7

/* The places of <i> and <j> in the mibs of stats.arenas.<i>.…<j>.…, arenas.bin.<j>.… and arena.<i>.… */
#define MEMSCOPE_MIB_ARENA 2
#define MEMSCOPE_MIB_CLASS 4
#define MEMSCOPE_MIB_CONSTANT 2
#define MEMSCOPE_MIB_CONTROL 1

struct memscope_jemalloc_binding {
    const char *prefix;       /* of mallctl's name and, in capitals, of MALLOC_CONF: "" or "je_" */
    memscope_mallctl by_name; /* NULL if no jemalloc is bound, as are the rest then */
    int (*name_to_mib)(const char *, size_t *, size_t *);
    int (*by_mib)(const size_t *, size_t, void *, size_t *, void *, size_t);
    size_t (*block_size)(const void *, int); /* sallocx: the size class, in bytes, of a block in use, without a lock */
    const char **conf;                       /* the malloc_conf variable of the program or of jemalloc itself */
};

struct memscope_jemalloc_binding memscope_jemalloc_binding(void);

struct memscope_mib {
    size_t parts[MEMSCOPE_MIB_PARTS];
    size_t length; /* 0 if this jemalloc has no such key */
};

struct memscope_mib memscope_jemalloc_mib(const struct memscope_jemalloc_binding *jemalloc, const char *key);

/*
 * Reads a value of exactly size bytes (1, 4 or 8) and widens it. Returns false if there is no such key, the arena is
 * not initialised or the value has another size. Allocates nothing.
 */
bool memscope_jemalloc_read_mib(const struct memscope_jemalloc_binding *jemalloc, const struct memscope_mib *mib,
                                size_t size, uint64_t *value);

/* Makes jemalloc refresh its statistics: 6 µs plus 6.5 µs per initialised arena, under its ctl lock. */
enum memscope_status memscope_jemalloc_advance_epoch(const struct memscope_jemalloc_binding *jemalloc);
