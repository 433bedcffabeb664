/* The process's mappings as the kernel lists them: /proc/self/maps, plus two fields of smaps. */
#ifndef MEMSCOPE_MAPPINGS_H
#define MEMSCOPE_MAPPINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/scratch.h"
#include "base/status.h"

struct memscope_mapping {
    uintptr_t start;
    uintptr_t end;
    const char *name; /* path, "[heap]", "[anon:…]" or ""; in the name memory of the reading */
    uint64_t inode;
    uint64_t resident_bytes; /* smaps only, else 0 */
    bool readable, writable, executable, shared;
    bool noreserve;   /* smaps only: mapped with MAP_NORESERVE (and not MAP_DROPPABLE, which implies it) */
    bool of_jemalloc; /* set by ledger_jemalloc.c; false in a new list */
};

struct memscope_mappings {
    struct memscope_mapping *list; /* ascending, disjoint */
    size_t count;
};

/* Memory for a list and for its names. Both grow during a read, so they must differ. Names live as long as `names`. */
struct memscope_mappings_memory {
    struct memscope_scratch *list;
    struct memscope_scratch *names;
};

/*
 * Parses the text of a maps or smaps file (smaps is maps with more lines). MEMSCOPE_MALFORMED for a line of another
 * form, and for a last line without a newline.
 */
enum memscope_status memscope_mappings_parse(const char *text, size_t length,
                                             const struct memscope_mappings_memory *memory,
                                             struct memscope_mappings *mappings);

/* Reads /proc/self/maps: some µs for each 50 mappings; no page tables are walked. No GVL, no allocation. */
enum memscope_status memscope_mappings_read(const struct memscope_mappings_memory *memory,
                                            struct memscope_mappings *mappings);

/* Reads /proc/self/smaps, which walks the page tables under the mmap lock: 3 to 30 ms for each resident GB. */
enum memscope_status memscope_mappings_read_smaps(const struct memscope_mappings_memory *memory,
                                                  struct memscope_mappings *mappings);

/* The mapping that holds address, or NULL. Logarithmic. */
const struct memscope_mapping *memscope_mappings_find(const struct memscope_mappings *mappings, uintptr_t address);

/*
 * Has no file and is not the kernel's own ("[heap]", "[stack]", "[vdso]"); "[anon:…]" is a name that a program gave it.
 */
bool memscope_mapping_is_anonymous(const struct memscope_mapping *mapping);

/* Anonymous, private, readable, writable and not executable: what an allocator gets from mmap. */
bool memscope_mapping_is_data(const struct memscope_mapping *mapping);

#endif
