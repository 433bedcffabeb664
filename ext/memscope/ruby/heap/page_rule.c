#include "ruby/heap/page_rule.h"

#include "ruby/ruby_private.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* gc.c, gc_sweep_step of 3.1 to 3.3. */
#define UNLINKED_IN_A_STEP 3
#define FREE_SLOTS_OF_A_STEP 2048
/* GC_HEAP_INIT_SLOTS */
#define INIT_SLOTS 10000
/*
 * Slots set aside for the next incremental mark phase in each step from 3.2 on. Before 3.2, some steps set aside a
 * page.
 */
#define POOLED_SLOTS (RUBY_API_VERSION_CODE >= 30200 ? 1024 : 0)

static struct memscope_page_rule rule;

/* As gc.c does, ignores a value that is out of bounds or not a number (get_envparam_double, …_size). */
static double ratio_from_environment(const char *name, double otherwise, double more_than, double at_most) {
    const char *given = getenv(name);
    char *end;
    double ratio = given == NULL ? 0 : strtod(given, &end);

    if (given == NULL || *given == '\0' || *end != '\0' || ratio <= more_than || ratio > at_most)
        return otherwise;
    return ratio;
}

/* A number may end with a unit and white space: "200k" is 204,800. */
static size_t slots_from_environment(const char *name, size_t otherwise) {
    static const char units[] = "kmg";
    const char *given = getenv(name), *unit;
    char *end;
    long slots = given == NULL ? 0 : strtol(given, &end, 0);
    unsigned shift = 0;

    if (given == NULL || *given == '\0')
        return otherwise;
    if (*end != '\0' && (unit = strchr(units, tolower((unsigned char)*end))) != NULL) {
        shift = 10 * (unsigned)(unit - units + 1);
        end++;
    }
    while (isspace((unsigned char)*end))
        end++;
    return *end != '\0' || slots <= 0 || slots > LONG_MAX >> shift ? otherwise : (size_t)slots << shift;
}

/* The number of heaps: one for each slot size. */
static size_t heap_count(void) {
    size_t count = memscope_gc_constant("HEAP_COUNT");

    return count != 0 ? count : memscope_gc_constant("SIZE_POOL_COUNT"); /* before 3.4 */
}

/* Before 3.3, one number for all heaps. */
static size_t floor_from_environment(void) {
    size_t heaps = MEMSCOPE_HEAPS_HAVE_INIT_SLOTS ? heap_count() : 0, slots = 0;

    if (!MEMSCOPE_HEAPS_HAVE_INIT_SLOTS)
        return slots_from_environment("RUBY_GC_HEAP_INIT_SLOTS", INIT_SLOTS);
    for (size_t heap = 0; heap < heaps; heap++) {
        char name[64];

        snprintf(name, sizeof name, "RUBY_GC_HEAP_%zu_INIT_SLOTS", heap);
        slots += slots_from_environment(name, INIT_SLOTS);
    }
    return slots;
}

void memscope_page_rule_learn(void) {
    double least = ratio_from_environment("RUBY_GC_HEAP_FREE_SLOTS_MIN_RATIO", 0.20, 0.0, 1.0);

    rule.free_slots_max_ratio = ratio_from_environment("RUBY_GC_HEAP_FREE_SLOTS_MAX_RATIO", 0.65, least, 1.0);
    rule.free_slots_floor = MEMSCOPE_KNOWS_INIT_SLOTS ? floor_from_environment() : 0;
}

const struct memscope_page_rule *memscope_page_rule(void) {
    return &rule;
}

/* A step first sets aside pages with `pooled` free slots, and ends once the other pages it keeps have enough. */
static bool is_unlinked(struct memscope_sweep_step *step, uint32_t slots, uint32_t free_slots, uint32_t pooled) {
    if (free_slots == slots && step->unlinked < UNLINKED_IN_A_STEP) {
        step->unlinked++;
        return true;
    }
    if (free_slots > 0 && step->pooled < pooled)
        step->pooled += free_slots;
    else if ((step->free_slots += free_slots) > FREE_SLOTS_OF_A_STEP)
        *step = (struct memscope_sweep_step){0};
    return false;
}

struct memscope_page_fate memscope_sweep_page(struct memscope_sweep *sweep, uint32_t slot_bytes, uint32_t slots,
                                              uint32_t free_slots) {
    if (slot_bytes != sweep->slot_bytes) {
        sweep->slot_bytes = slot_bytes;
        sweep->fewest = sweep->most = (struct memscope_sweep_step){0};
    }
    sweep->slots += slots;
    sweep->free_slots += free_slots;
    if (slots > sweep->smallest_slots)
        sweep->smallest_slots = slots;
    if (RUBY_API_VERSION_CODE >= 30400) /* every page without objects is a candidate */
        return (struct memscope_page_fate){free_slots == slots, free_slots == slots};
    return (struct memscope_page_fate){.surely = is_unlinked(&sweep->fewest, slots, free_slots, POOLED_SLOTS + slots),
                                       .maybe = is_unlinked(&sweep->most, slots, free_slots, POOLED_SLOTS)};
}

/*
 * As in gc_marks_finish: the free slots above both the ratio and the floor, in pages of the smallest slots. 3.2 and 3.3
 * return more pages in some processes and fewer in others, so their limit is unknown. So is that of 4.1dev, which has a
 * floor in bytes, and counts in pages of the average slot size.
 */
struct memscope_sweep_limit memscope_sweep_limit(const struct memscope_sweep *sweep, uint64_t allocatable_slots) {
    uint64_t slots = sweep->slots + allocatable_slots, free_slots = sweep->free_slots + allocatable_slots;
    uint64_t kept = (uint64_t)((double)slots * rule.free_slots_max_ratio);
    uint64_t floor = rule.free_slots_floor, limit = 0;

    if ((RUBY_API_VERSION_CODE >= 30200 && RUBY_API_VERSION_CODE < 30400) || !MEMSCOPE_KNOWS_INIT_SLOTS)
        return (struct memscope_sweep_limit){0, UINT64_MAX};
    kept = kept > floor ? kept : floor;
    if (sweep->smallest_slots > 0 && free_slots > kept)
        limit = (free_slots - kept) / sweep->smallest_slots;
    return (struct memscope_sweep_limit){limit, limit};
}
