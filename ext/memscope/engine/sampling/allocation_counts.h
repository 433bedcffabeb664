/*
 * Counts every allocation by what was allocated and at which line, and keeps a log of the objects that are not known to
 * be dead. Any context, one thread at a time; never calls malloc, since it counts within allocations. Addresses are
 * numbers here.
 */
#ifndef MEMSCOPE_ALLOCATION_COUNTS_H
#define MEMSCOPE_ALLOCATION_COUNTS_H

#include "base/mapped_array.h"

#include <stdint.h>

/* Allocations with the same key count in one group. */
struct memscope_allocation_key {
    uint64_t path, class; /* 0: none */
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

/* All zeroed: nothing is counted yet, and nothing mapped. */
struct memscope_allocation_counts {
    struct memscope_allocation_group *groups;
    uint32_t *places; /* hash table of the groups' numbers + 1; 0: a free place */
    struct memscope_allocation *log;
    size_t group_count, place_count, log_count;
    uint32_t last;                                         /* the group of the last allocation */
    void (*name)(struct memscope_allocation_group *group); /* called for each new group; NULL: groups get no names */
    uint64_t unkept;  /* objects that are in a group, but not in the log: it is unknown whether they live */
    uint64_t without; /* allocations without a group, for lack of memory */
};

/* What is known of a logged object that was looked at. */
struct memscope_allocation_fate {
    bool alive;
    uint64_t bytes;                    /* of its slot and of the memory it holds outside; 0: as yet unknown */
    struct memscope_allocation_key is; /* its class, type and kind, even if it had no class when it was allocated */
};

typedef struct memscope_allocation_fate memscope_allocation_judge(const struct memscope_allocation *allocation,
                                                                  const struct memscope_allocation_group *group);

/* Counts one allocation. If the kernel refuses memory, counts it in `unkept` or `without`. */
void memscope_allocations_add(struct memscope_allocation_counts *counts, struct memscope_allocation_key key,
                              uint64_t address, uint32_t slot_bytes);

/*
 * Has each logged object judged; adds the bytes of the dead objects to their groups, and drops those objects from the
 * log.
 */
void memscope_allocations_sweep(struct memscope_allocation_counts *counts, memscope_allocation_judge *judge);

/*
 * Has each logged object judged; all of them must be alive. Counts the objects in their groups as retained, and adds
 * their bytes to the allocated bytes too. The log keeps them. To be called once.
 */
void memscope_allocations_retain(struct memscope_allocation_counts *counts, memscope_allocation_judge *judge);

/* Empties the log and counts its objects as `unkept`: for when any of them may be dead and its address reused. */
void memscope_allocations_forget(struct memscope_allocation_counts *counts);

/* Detaches each group whose path or class is gone. */
void memscope_allocations_detach(struct memscope_allocation_counts *counts, bool (*gone)(uint64_t address));

/* Replaces each address, of the log and of groups that are not detached, by what `moved` returns for it. */
void memscope_allocations_move(struct memscope_allocation_counts *counts, uint64_t (*moved)(uint64_t address));

void memscope_allocations_close(struct memscope_allocation_counts *counts);

#endif
