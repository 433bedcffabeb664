/*
 * Counts every allocation by class, type, kind, file and line, and keeps a log of the objects that are not known to be
 * dead. Any context, one thread at a time. Never calls malloc, since it counts inside allocations. Addresses are
 * numbers here.
 */
#pragma once

#include "base/mapped_array.h"

#include <stdint.h>

/* Allocations with the same key count in one group. */
struct memscope_allocation_key {
    uint64_t path, class; /* 0 for none */
    uint32_t line;
    uint16_t type, kind;
};

struct memscope_allocation_group {
    struct memscope_allocation_key key;
    bool detached;                  /* the key's addresses may have been reused: no more allocations are added */
    uint32_t path_name, class_name; /* the caller's numbers */
    uint64_t allocated_objects, allocated_bytes;
    uint64_t retained_objects, retained_bytes;
};

struct memscope_allocation {
    uint64_t address;
    uint32_t group, slot_bytes;
};

/* All zeros is a valid empty state, with nothing mapped. */
struct memscope_allocation_counts {
    struct memscope_allocation_group *groups;
    uint32_t *places; /* hash table of group numbers + 1, 0 for a free place */
    struct memscope_allocation *log;
    size_t group_count, place_count, log_count;
    uint32_t last;                                         /* group of the last allocation */
    void (*name)(struct memscope_allocation_group *group); /* called for each new group, unless NULL */
    uint64_t unkept;  /* objects in a group but not in the log: they may be alive or dead */
    uint64_t without; /* allocations without a group, for lack of memory */
};

/* The state of a logged object. */
struct memscope_allocation_fate {
    bool alive;
    uint64_t bytes;                    /* of its slot and of the memory that it owns outside, 0 if still unknown */
    struct memscope_allocation_key is; /* its class, type and kind, even if it had no class when it was allocated */
};

typedef struct memscope_allocation_fate memscope_allocation_judge(const struct memscope_allocation *allocation,
                                                                  const struct memscope_allocation_group *group);

/* Counts one allocation. If the kernel refuses memory, counts it in `unkept` or `without`. */
void memscope_allocations_add(struct memscope_allocation_counts *counts, struct memscope_allocation_key key,
                              uint64_t address, uint32_t slot_bytes);

/* Judges each logged object. Dead objects leave the log, and their bytes are added to their groups. */
void memscope_allocations_sweep(struct memscope_allocation_counts *counts, memscope_allocation_judge *judge);

/*
 * Judges each logged object. All of them must be alive. Counts them as retained in their groups, and adds their bytes
 * to the allocated bytes too. The log keeps them. Call once.
 */
void memscope_allocations_retain(struct memscope_allocation_counts *counts, memscope_allocation_judge *judge);

/* Empties the log and counts its objects as `unkept`. Call when any of them may be dead and its address reused. */
void memscope_allocations_forget(struct memscope_allocation_counts *counts);

/* Detaches each group whose path or class is gone. */
void memscope_allocations_detach(struct memscope_allocation_counts *counts, bool (*gone)(uint64_t address));

/* Replaces each address, in the log and in groups that are not detached, with the result of `moved`. */
void memscope_allocations_move(struct memscope_allocation_counts *counts, uint64_t (*moved)(uint64_t address));

void memscope_allocations_close(struct memscope_allocation_counts *counts);
