/* The mappings of this process or, in a copy (base/copy.h), of its original, as maps and smaps of /proc list them. */
#pragma once

#include "base/scratch.h"
#include "base/status.h"

struct memscope_mapping {
    uintptr_t start;
    uintptr_t end;
    const char *name; /* path, "[heap]", "[anon:…]" or "", in memscope_mappings_memory.names */
    uint64_t inode;
    uint64_t resident_bytes; /* smaps only, else 0 */
    bool readable, writable, executable, shared;
    bool noreserve;   /* smaps only: mapped with MAP_NORESERVE (and not MAP_DROPPABLE, which implies it) */
    bool of_jemalloc; /* set by ledger_jemalloc.c, false in a new list */
};

struct memscope_mappings {
    struct memscope_mapping *list; /* ascending, disjoint */
    size_t count;
};

/*
 * Two separate scratches, for a list and for its names, because both grow during a read. The names live as long as the
 * scratch `names`.
 */
struct memscope_mappings_memory {
    struct memscope_scratch *list;
    struct memscope_scratch *names;
};

/*
 * Reads a file with the form of maps or smaps (smaps is maps with more lines). Returns MEMSCOPE_MALFORMED for a line of
 * another form, and for a last line without a newline.
 */
enum memscope_status memscope_mappings_read_file(const char *path, const struct memscope_mappings_memory *memory,
                                                 struct memscope_mappings *mappings);

/*
 * Reads /proc/self/maps: a few µs per 50 mappings, without a page table walk. No GVL, no allocation. Or
 * /proc/self/smaps, for which the kernel walks the page tables under the mmap lock: 3 to 30 ms per resident GB.
 */
enum memscope_status memscope_mappings_read(bool smaps, const struct memscope_mappings_memory *memory,
                                            struct memscope_mappings *mappings);

/* The mapping that holds address, or NULL. Logarithmic. */
const struct memscope_mapping *memscope_mappings_find(const struct memscope_mappings *mappings, uintptr_t address);

/*
 * Returns true if the mapping is private, has no file, and no name from the kernel ("[heap]", "[stack]", "[vdso]").
 * "[anon:…]" is a name from a program.
 */
bool memscope_mapping_is_anonymous(const struct memscope_mapping *mapping);

/*
 * Returns true for memory of hugetlbfs without a file of its own (MAP_HUGETLB, glibc.malloc.hugetlb=2). The kernel
 * counts such pages in HugetlbPages, not in RSS.
 */
bool memscope_mapping_is_hugetlb(const struct memscope_mapping *mapping);

/* Returns true if it ends, or ended, at the program break, so that the kernel names it "[heap]". */
bool memscope_mapping_is_program_break(const struct memscope_mapping *mapping);

/* Anonymous, private, readable, writable and not executable, as an allocator's memory from mmap. */
bool memscope_mapping_is_data(const struct memscope_mapping *mapping);
