#include "ledger/glibc_resident.h"

#include "ledger/glibc_regions.h"

/* The largest malloc_state of any version so far has 2,200 bytes. */
#define STATE_WORDS (4096 / sizeof(uintptr_t))

/* An arena other than the main one, with all of its heaps. */
struct state {
    uintptr_t address; /* of its malloc_state */
    uint64_t writable_bytes;
    uint64_t resident_bytes;
};

struct resident_scan {
    struct memscope_scratch list, names, work;
    struct memscope_mappings mappings;
    struct memscope_residency residency;
    struct memscope_own_memory memory;
    struct state *states;
    size_t count;
    struct state **order; /* the states in the order of glibc's circular list */
    size_t first;         /* index in `order` of the state after the main arena */
};

static struct state *state_at(struct resident_scan *scan, uintptr_t address) {
    for (size_t index = 0; index < scan->count; index++)
        if (scan->states[index].address == address)
            return &scan->states[index];
    return NULL;
}

/* The states have room for one of each heap. */
static struct state *state_added(struct resident_scan *scan, uintptr_t address) {
    struct state *state = state_at(scan, address);

    if (state == NULL) {
        state = &scan->states[scan->count++];
        *state = (struct state){.address = address};
    }
    return state;
}

static enum memscope_status add_heaps(struct resident_scan *scan) {
    struct memscope_glibc_regions regions = {0};
    struct memscope_claims heaps;
    const struct memscope_search search = {&scan->mappings, &scan->residency, &scan->memory, &heaps};

    memscope_claims_open(&heaps, &scan->work, &scan->list);
    memscope_glibc_claim_arenas(&search, MEMSCOPE_ROW_arenas, &regions);
    scan->states = memscope_scratch_take(&scan->names, heaps.count * sizeof *scan->states);
    if (heaps.exhausted || scan->states == NULL)
        return MEMSCOPE_NO_MEMORY;
    for (size_t index = 0; index < heaps.count; index++) {
        struct memscope_glibc_heap_info info;
        struct state *state;

        if (!memscope_own_memory_read(&scan->memory, heaps.list[index].start, &info, sizeof info))
            return MEMSCOPE_MALFORMED;
        state = state_added(scan, info.arena);
        state->writable_bytes += info.mprotect_size;
        state->resident_bytes +=
            memscope_residency_between(&scan->residency, heaps.list[index].start, heaps.list[index].end);
    }
    return MEMSCOPE_OK;
}

/* The main arena's heap ends at the program break, and the kernel names its mappings. */
static uint64_t main_heap_resident(const struct resident_scan *scan, uint64_t *mapped_bytes) {
    uint64_t bytes = 0;

    *mapped_bytes = 0;
    for (size_t index = 0; index < scan->mappings.count; index++) {
        const struct memscope_mapping *mapping = &scan->mappings.list[index];

        if (!memscope_mapping_is_program_break(mapping))
            continue;
        *mapped_bytes += mapping->end - mapping->start;
        bytes += memscope_residency_between(&scan->residency, mapping->start, mapping->end);
    }
    return bytes;
}

/*
 * Returns true if the word at this offset of malloc_state is the link of glibc's list. The list is circular: from the
 * first known arena, it leads through all the others and one unknown arena, the main one, back to the first.
 */
static bool is_list(struct resident_scan *scan, size_t offset) {
    uintptr_t address = scan->states[0].address;
    size_t found = 0, strangers = 0;

    for (size_t step = 0; step <= scan->count; step++) {
        struct state *state = state_at(scan, address);

        if ((step > 0 && address == scan->states[0].address) || (state != NULL && found == scan->count))
            return false;
        if (state == NULL) {
            strangers++;
            scan->first = found;
        } else {
            scan->order[found++] = state;
        }
        if (strangers > 1 || !memscope_own_memory_read(&scan->memory, address + offset, &address, sizeof address))
            return false;
    }
    return address == scan->states[0].address && found == scan->count;
}

static bool find_list(struct resident_scan *scan) {
    for (size_t word = 1; word < STATE_WORDS; word++)
        if (is_list(scan, word * sizeof(uintptr_t)))
            return true;
    return false;
}

/*
 * Leaves the resident bytes unknown for an arena whose writable part has changed since malloc_info, and for the main
 * arena if part of it is outside [heap], as after a failed brk.
 */
static enum memscope_status assign(struct resident_scan *scan, struct memscope_glibc_arenas *arenas) {
    uint64_t mapped_bytes, all = main_heap_resident(scan, &mapped_bytes);

    if (arenas->list[0].writable_bytes <= mapped_bytes) {
        arenas->list[0].resident_bytes = all;
        for (size_t index = 0; index < scan->count; index++)
            all += scan->states[index].resident_bytes;
        arenas->merged.resident_bytes = all;
    }
    if (scan->count == 0)
        return arenas->count == 1 ? MEMSCOPE_OK : MEMSCOPE_MALFORMED;
    scan->order = memscope_scratch_take(&scan->names, scan->count * sizeof(const struct state *));
    if (scan->order == NULL)
        return MEMSCOPE_NO_MEMORY;
    if (scan->count != arenas->count - 1 || !find_list(scan))
        return MEMSCOPE_MALFORMED;
    for (size_t index = 1; index < arenas->count; index++) {
        const struct state *state = scan->order[(scan->first + index - 1) % scan->count];

        if (state->writable_bytes == arenas->list[index].writable_bytes)
            arenas->list[index].resident_bytes = state->resident_bytes;
    }
    return MEMSCOPE_OK;
}

static enum memscope_status scan_heaps(struct resident_scan *scan, struct memscope_glibc_arenas *arenas) {
    struct memscope_mappings_memory lists = {&scan->list, &scan->names};
    enum memscope_status status;

    if ((status = memscope_mappings_read(false, &lists, &scan->mappings)) != MEMSCOPE_OK ||
        (status = memscope_residency_read(&scan->mappings, &lists, &scan->residency)) != MEMSCOPE_OK)
        return status;
    if (scan->residency.range_count == 0)
        return MEMSCOPE_UNSUPPORTED;
    if ((status = add_heaps(scan)) != MEMSCOPE_OK)
        return status;
    return assign(scan, arenas);
}

enum memscope_status memscope_glibc_read_resident(struct memscope_glibc_arenas *arenas) {
    struct resident_scan scan = {.memory = {.descriptor = -1}};
    enum memscope_status status = MEMSCOPE_NO_MEMORY;

    if (memscope_scratch_open(&scan.list) == MEMSCOPE_OK && memscope_scratch_open(&scan.names) == MEMSCOPE_OK &&
        memscope_scratch_open(&scan.work) == MEMSCOPE_OK &&
        (status = memscope_own_memory_open(&scan.memory)) == MEMSCOPE_OK)
        status = arenas->count == 0 ? MEMSCOPE_OK : scan_heaps(&scan, arenas);
    memscope_own_memory_close(&scan.memory);
    memscope_scratches_close(&scan.work, &scan.names, &scan.list);
    return status;
}
