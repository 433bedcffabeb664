/* Counts of allocations against a simulation that keeps them in plain arrays. */
#include "sampling/allocation_counts.h"

#include "../expect.h"

#include <string.h>

#define OBJECTS 200000u
#define LINES 3000u
#define SLOT 40

static bool dead[OBJECTS];
static uint32_t line_of[OBJECTS];
static uint64_t shift; /* of all addresses: objects have moved */

static uint64_t address_of(uint32_t object) {
    return 4096 + shift + (uint64_t)object * SLOT;
}

static uint32_t object_at(uint64_t address) {
    return (uint32_t)((address - 4096 - shift) / SLOT);
}

/* Paths and classes are addresses too. There are two paths, and one class, which some objects get late. */
static struct memscope_allocation_key key_of(uint32_t object) {
    return (struct memscope_allocation_key){.path = 64 + shift + line_of[object] % 2 * 8,
                                            .class = object % 7 == 0 ? 0 : 128 + shift,
                                            .line = line_of[object],
                                            .type = 5};
}

static uint64_t bytes_of(uint32_t object) {
    return SLOT + object % 100;
}

static struct memscope_allocation_fate judge(const struct memscope_allocation *allocation,
                                             const struct memscope_allocation_group *group) {
    uint32_t object = object_at(allocation->address);
    struct memscope_allocation_fate fate = {!dead[object], bytes_of(object), group->key};

    fate.is.class = 128 + shift;
    return fate;
}

static uint64_t moved(uint64_t address) {
    return address == 0 ? 0 : address + 1024;
}

static void move_all(struct memscope_allocation_counts *counts) {
    memscope_allocations_move(counts, moved);
    shift += 1024;
}

static void allocate(struct memscope_allocation_counts *counts, uint32_t object) {
    line_of[object] = object * 2654435761u >> 8 & 1 ? object % LINES : object / 1000;
    memscope_allocations_add(counts, key_of(object), address_of(object), SLOT);
}

/* Allocates all; some die at once, others before a later collection. */
static void run(struct memscope_allocation_counts *counts) {
    for (uint32_t object = 0; object < OBJECTS; object++) {
        allocate(counts, object);
        dead[object] = object % 3 == 0;
        if (object > 5000 && object % 3 == 1)
            dead[object - 5000] = true;
        if (object % 20000 == 19999)
            memscope_allocations_sweep(counts, judge);
        if (object == OBJECTS / 2)
            move_all(counts);
    }
    memscope_allocations_sweep(counts, judge);
    memscope_allocations_retain(counts, judge);
}

static void counts_are_those_of_the_simulation(void) {
    static struct memscope_allocation_group expected[LINES], found[LINES];
    struct memscope_allocation_counts counts = {0};

    run(&counts);
    for (uint32_t object = 0; object < OBJECTS; object++) {
        struct memscope_allocation_group *line = &expected[line_of[object]];

        line->allocated_objects++;
        line->allocated_bytes += bytes_of(object);
        line->retained_objects += !dead[object];
        line->retained_bytes += dead[object] ? 0 : bytes_of(object);
    }
    for (size_t index = 0; index < counts.group_count; index++) {
        const struct memscope_allocation_group *group = &counts.groups[index];
        struct memscope_allocation_group *line = &found[group->key.line];

        EXPECT(group->key.class != 0 || group->allocated_objects == 0);
        EXPECT(group->key.path == 64 + shift + group->key.line % 2 * 8);
        line->allocated_objects += group->allocated_objects;
        line->allocated_bytes += group->allocated_bytes;
        line->retained_objects += group->retained_objects;
        line->retained_bytes += group->retained_bytes;
    }
    EXPECT(memcmp(expected, found, sizeof expected) == 0);
    for (size_t index = 0; index < counts.log_count; index++)
        counts.groups[counts.log[index].group].retained_objects--;
    for (size_t index = 0; index < counts.group_count; index++)
        EXPECT(counts.groups[index].retained_objects == 0);
    EXPECT(counts.unkept == 0 && counts.without == 0 && counts.groups != NULL);
    memscope_allocations_close(&counts);
    EXPECT(counts.groups == NULL);
}

/* After a collection that was not seen, no address is looked at, and only the sizes of slots are known. */
static void what_is_forgotten_counts_by_its_slots(void) {
    struct memscope_allocation_counts counts = {0};
    uint64_t bytes = 0;

    for (uint32_t object = 0; object < 10; object++)
        allocate(&counts, object);
    memscope_allocations_forget(&counts);
    EXPECT(counts.unkept == 10 && counts.log_count == 0);
    memscope_allocations_retain(&counts, judge);
    for (size_t index = 0; index < counts.group_count; index++) {
        bytes += counts.groups[index].allocated_bytes;
        EXPECT(counts.groups[index].retained_objects == 0);
    }
    EXPECT(bytes == 10 * SLOT);
    memscope_allocations_close(&counts);
}

static bool is_second_path(uint64_t address) {
    return address == 64 + shift + 8;
}

static uint32_t named;

static void name(struct memscope_allocation_group *group) {
    group->path_name = ++named;
}

/* A reused address begins a new group, with a name of its own. */
static void detached_groups_get_nothing_more(void) {
    struct memscope_allocation_counts counts = {.name = name};

    for (uint32_t object = 0; object < 100; object++)
        allocate(&counts, object % 2 * 14);
    EXPECT(counts.group_count == named && named == 2);
    memscope_allocations_detach(&counts, is_second_path);
    memscope_allocations_detach(&counts, is_second_path);
    for (uint32_t object = 0; object < 100; object++)
        allocate(&counts, object % 2 * 14);
    for (size_t index = 0; index < counts.group_count; index++) {
        const struct memscope_allocation_group *group = &counts.groups[index];

        EXPECT(group->path_name == index + 1);
        EXPECT(group->allocated_objects == (is_second_path(group->key.path) ? 50 : 100));
    }
    memscope_allocations_close(&counts);
}

int main(void) {
    detached_groups_get_nothing_more();
    counts_are_those_of_the_simulation();
    what_is_forgotten_counts_by_its_slots();
    return 0;
}
