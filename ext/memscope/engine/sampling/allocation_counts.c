#include "sampling/allocation_counts.h"

#define NO_GROUP UINT32_MAX
#define MIN_PLACES 1024 /* a power of two, as are all numbers of places */

static bool same(const struct memscope_allocation_key *one, const struct memscope_allocation_key *other) {
    return one->path == other->path && one->class == other->class && one->line == other->line &&
           one->type == other->type && one->kind == other->kind;
}

static size_t hash(const struct memscope_allocation_key *key) {
    uint64_t bits = key->path * UINT64_C(0x9E3779B97F4A7C15) ^ key->class;

    bits = (bits ^ bits >> 32) * UINT64_C(0x9E3779B97F4A7C15) ^ key->line;
    bits = (bits ^ bits >> 32) * UINT64_C(0x9E3779B97F4A7C15) ^ ((uint64_t)key->type << 16 | key->kind);
    return (size_t)((bits ^ bits >> 32) * UINT64_C(0x9E3779B97F4A7C15) >> 24);
}

/* ---- groups ------------------------------------------------------------------------------------------------------ */

/* The place of a key's group, or the free place where that group belongs. At least one place is always free. */
static uint32_t *place_of(const struct memscope_allocation_counts *counts, const struct memscope_allocation_key *key) {
    size_t place = hash(key) & (counts->place_count - 1);

    while (counts->places[place] != 0 && !same(&counts->groups[counts->places[place] - 1].key, key))
        place = (place + 1) & (counts->place_count - 1);
    return &counts->places[place];
}

/* All places must be free. */
static void fill_places(struct memscope_allocation_counts *counts) {
    for (uint32_t index = 0; index < counts->group_count; index++)
        if (!counts->groups[index].detached)
            *place_of(counts, &counts->groups[index].key) = index + 1;
}

/* Makes places so that at least half of them stay free. Returns false if there is no memory for them. */
static bool make_places(struct memscope_allocation_counts *counts) {
    size_t count = counts->place_count == 0 ? MIN_PLACES : counts->place_count * 2;
    uint32_t *places;

    if (counts->group_count * 2 < counts->place_count)
        return true;
    if ((places = memscope_array_map(count, sizeof *places)) == NULL)
        return false;
    memscope_array_unmap(counts->places);
    counts->places = places;
    counts->place_count = count;
    fill_places(counts);
    return true;
}

static uint32_t add_group(struct memscope_allocation_counts *counts, const struct memscope_allocation_key *key) {
    size_t count = counts->group_count + 1;

    if (count == NO_GROUP || !make_places(counts) || !MEMSCOPE_ARRAY_RESERVE(counts->groups, count))
        return NO_GROUP;
    counts->groups[count - 1] = (struct memscope_allocation_group){.key = *key};
    if (counts->name != NULL)
        counts->name(&counts->groups[count - 1]);
    *place_of(counts, key) = (uint32_t)count;
    counts->group_count = count;
    return (uint32_t)count - 1;
}

/* Returns NO_GROUP if there is no memory for a new group. */
static uint32_t group_of(struct memscope_allocation_counts *counts, const struct memscope_allocation_key *key) {
    uint32_t found;

    if (counts->group_count > 0 && !counts->groups[counts->last].detached &&
        same(&counts->groups[counts->last].key, key))
        return counts->last;
    found = counts->place_count == 0 ? 0 : *place_of(counts, key);
    return found != 0 ? found - 1 : add_group(counts, key);
}

/* ---- the log ----------------------------------------------------------------------------------------------------- */

static void leave_out_of_log(struct memscope_allocation_counts *counts, struct memscope_allocation_group *group,
                             uint32_t slot_bytes) {
    counts->unkept++;
    group->allocated_bytes += slot_bytes;
}

void memscope_allocations_add(struct memscope_allocation_counts *counts, struct memscope_allocation_key key,
                              uint64_t address, uint32_t slot_bytes) {
    uint32_t group = group_of(counts, &key);

    if (group == NO_GROUP) {
        counts->without++;
        return;
    }
    counts->last = group;
    counts->groups[group].allocated_objects++;
    if (MEMSCOPE_ARRAY_RESERVE(counts->log, counts->log_count + 1))
        counts->log[counts->log_count++] = (struct memscope_allocation){address, group, slot_bytes};
    else
        leave_out_of_log(counts, &counts->groups[group], slot_bytes);
}

/*
 * The group of an object. If the class of the object has become known since it was allocated, moves the object to the
 * group of that class.
 */
static struct memscope_allocation_group *settled_group(struct memscope_allocation_counts *counts,
                                                       const struct memscope_allocation *allocation,
                                                       struct memscope_allocation_key is) {
    struct memscope_allocation_key key = counts->groups[allocation->group].key;
    uint32_t group = allocation->group;

    if (is.class != key.class || is.type != key.type || is.kind != key.kind) {
        is.path = key.path;
        is.line = key.line;
        group = group_of(counts, &is);
        group = group == NO_GROUP ? allocation->group : group;
        counts->groups[allocation->group].allocated_objects--;
        counts->groups[group].allocated_objects++;
    }
    return &counts->groups[group];
}

void memscope_allocations_sweep(struct memscope_allocation_counts *counts, memscope_allocation_judge *judge) {
    size_t kept = 0;

    for (size_t index = 0; index < counts->log_count; index++) {
        const struct memscope_allocation allocation = counts->log[index];
        struct memscope_allocation_fate fate = judge(&allocation, &counts->groups[allocation.group]);

        if (fate.alive)
            counts->log[kept++] = allocation;
        else
            settled_group(counts, &allocation, fate.is)->allocated_bytes += fate.bytes;
    }
    counts->log_count = kept;
}

void memscope_allocations_retain(struct memscope_allocation_counts *counts, memscope_allocation_judge *judge) {
    for (size_t index = 0; index < counts->log_count; index++) {
        const struct memscope_allocation allocation = counts->log[index];
        struct memscope_allocation_fate fate = judge(&allocation, &counts->groups[allocation.group]);
        struct memscope_allocation_group *group = settled_group(counts, &allocation, fate.is);

        group->allocated_bytes += fate.bytes;
        group->retained_objects++;
        group->retained_bytes += fate.bytes;
        counts->log[index].group = (uint32_t)(group - counts->groups);
    }
}

void memscope_allocations_forget(struct memscope_allocation_counts *counts) {
    for (size_t index = 0; index < counts->log_count; index++) {
        const struct memscope_allocation *allocation = &counts->log[index];

        leave_out_of_log(counts, &counts->groups[allocation->group], allocation->slot_bytes);
    }
    counts->log_count = 0;
}

static void find_places_again(struct memscope_allocation_counts *counts) {
    for (size_t place = 0; place < counts->place_count; place++)
        counts->places[place] = 0;
    fill_places(counts);
}

void memscope_allocations_detach(struct memscope_allocation_counts *counts, bool (*gone)(uint64_t address)) {
    bool any = false;

    for (size_t index = 0; index < counts->group_count; index++) {
        struct memscope_allocation_group *group = &counts->groups[index];
        const struct memscope_allocation_key *key = &group->key;

        if (group->detached)
            continue;
        group->detached = (key->path != 0 && gone(key->path)) || (key->class != 0 && gone(key->class));
        any = any || group->detached;
    }
    if (any)
        find_places_again(counts);
}

void memscope_allocations_move(struct memscope_allocation_counts *counts, uint64_t (*moved)(uint64_t address)) {
    for (size_t index = 0; index < counts->log_count; index++)
        counts->log[index].address = moved(counts->log[index].address);
    for (size_t index = 0; index < counts->group_count; index++) {
        struct memscope_allocation_key *key = &counts->groups[index].key;

        if (counts->groups[index].detached)
            continue;
        key->path = moved(key->path);
        key->class = moved(key->class);
    }
    find_places_again(counts);
}

void memscope_allocations_close(struct memscope_allocation_counts *counts) {
    memscope_arrays_unmap(counts->groups, counts->places, counts->log);
    *counts = (struct memscope_allocation_counts){0};
}
