#include "ruby/heap/block_walk.h"
#include "ruby/heap/object_blocks.h"
#include "ruby/heap/page_index.h"
#include "ruby/heap/page_rule.h"
#include "ruby/ruby_private.h"

#include <string.h>
#include <unistd.h>

/* Smaller blocks hardly ever have a page that was never written to, and a look-up takes a binary search. */
#define LARGE_BLOCK 65536

struct pass {
    const struct memscope_heap_listing *listing;
    struct memscope_malloc_blocks *blocks;
    struct memscope_block_walk *walk;
    struct memscope_held_walk asking;
    /* The current object is garbage, and has a block where the ledger has not proven malloc's memory. */
    bool garbage, unproven;
    uint64_t of_object;      /* bytes of the current object's blocks */
    uint64_t unproven_bytes; /* of garbage with such blocks, beyond its other blocks */
    uint64_t waiting_pages;  /* emptied pages that wait for finalizers */
    uint64_t descriptions;   /* number of descriptions of returned pages, counted as garbage */
};

/* ---- an object's blocks ---------------------------------------------------------------------------------------- */

static void count_block(struct memscope_owned_bytes *owned, size_t bytes, size_t absent) {
    owned->blocks++;
    owned->block_bytes += bytes;
    owned->absent_bytes += absent;
}

static void show(const void *block, void *data) {
    struct pass *pass = data;
    uintptr_t start = (uintptr_t)block;
    size_t bytes = memscope_malloc_blocks_add(pass->blocks, start, pass->garbage), absent = 0;

    if (bytes == 0) {
        pass->unproven |= !memscope_malloc_blocks_prove(pass->blocks, start);
        return;
    }
    if (bytes >= LARGE_BLOCK)
        absent = bytes - memscope_residency_between(&pass->blocks->ledger->residency, start, start + bytes);
    pass->of_object += bytes;
    count_block(&pass->walk->all, bytes, absent);
    if (pass->garbage)
        count_block(&pass->walk->garbage, bytes, absent);
}

/* ---- objects that own more than is known ----------------------------------------------------------------------- */

static const char *kind_of(VALUE object) {
    switch (RB_BUILTIN_TYPE(object)) {
    case RUBY_T_DATA:
        return RTYPEDDATA_P(object) && RTYPEDDATA_TYPE(object)->wrap_struct_name != NULL
                   ? RTYPEDDATA_TYPE(object)->wrap_struct_name
                   : "untyped";
    case RUBY_T_CLASS:
    case RUBY_T_MODULE:
    case RUBY_T_ICLASS:
        return "class";
    case RUBY_T_IMEMO:
        return "code";
    case RUBY_T_FILE:
        return "io";
    default:
        return "other";
    }
}

static struct memscope_unfollowed *unfollowed_at(struct memscope_block_walk *walk, const char *name) {
    struct memscope_unfollowed *kind = walk->unfollowed;

    for (; kind < walk->unfollowed + walk->unfollowed_count; kind++)
        if (strncmp(kind->name, name, sizeof kind->name - 1) == 0)
            return kind;
    if (walk->unfollowed_count == MEMSCOPE_UNFOLLOWED_TYPES)
        return kind - 1;
    strncpy(kind->name, walk->unfollowed_count == MEMSCOPE_UNFOLLOWED_TYPES - 1 ? "other" : name,
            sizeof kind->name - 1);
    walk->unfollowed_count++;
    return kind;
}

/* The bytes that an object reports beyond its known blocks. */
static uint64_t said_to_hold(struct pass *pass, VALUE object, size_t slot_bytes) {
    uint64_t before = pass->walk->said.bytes, said;

    memscope_heap_held_visit(&pass->asking, object, slot_bytes);
    said = pass->walk->said.bytes - before;
    return said > pass->of_object ? said - pass->of_object : 0;
}

static void count_unfollowed(struct pass *pass, VALUE object, size_t slot_bytes) {
    struct memscope_unfollowed *kind = unfollowed_at(pass->walk, kind_of(object));
    uint64_t bytes = said_to_hold(pass, object, slot_bytes);

    kind->objects++;
    pass->walk->all.unfollowed_objects++;
    pass->walk->all.unfollowed_bytes += bytes;
    if (!pass->garbage)
        return;
    kind->garbage++;
    pass->walk->garbage.unfollowed_objects++;
    pass->walk->garbage.unfollowed_bytes += bytes;
}

static void walk_object(struct pass *pass, VALUE object, size_t slot_bytes) {
    pass->of_object = 0;
    pass->unproven = false;
    pass->walk->all.objects++;
    pass->walk->all.slot_bytes += slot_bytes;
    pass->walk->garbage.objects += pass->garbage;
    pass->walk->garbage.slot_bytes += pass->garbage ? slot_bytes : 0;
    if (!memscope_object_blocks(object, show, pass))
        count_unfollowed(pass, object, slot_bytes);
    else if (pass->unproven && pass->garbage)
        pass->unproven_bytes += said_to_hold(pass, object, slot_bytes);
}

/* ---- Ruby's pages ---------------------------------------------------------------------------------------------- */

static void add_page(struct pass *pass, const struct memscope_heap_page *page, struct memscope_page_fate fate) {
    struct memscope_emptied_pages *heap = &pass->walk->heap;
    struct memscope_returned bytes;

    heap->pages++;
    heap->least += fate.surely;
    heap->most += fate.maybe;
    if (!fate.surely && !fate.maybe)
        return;
    memscope_resident_bytes(pass->blocks, page->start, page->start + pass->listing->page_bytes, &bytes);
    heap->returned.least += fate.surely ? bytes.most : 0;
    heap->returned.private_least += fate.surely ? bytes.private_most : 0;
    heap->returned.most += fate.maybe ? bytes.most : 0;
    heap->returned.private_most += fate.maybe ? bytes.private_most : 0;
}

/* A partly resident page adds in proportion, as in the ledger's row. */
static void add_garbage_slots(struct pass *pass, const struct memscope_heap_page *page, uint64_t bytes) {
    uint64_t whole = pass->listing->page_bytes, resident;

    if (bytes == 0)
        return;
    resident = memscope_residency_between(&pass->blocks->ledger->residency, page->start, page->start + whole);
    pass->walk->garbage_of_rows[MEMSCOPE_ROW_live_slots] += resident < whole ? bytes * resident / whole : bytes;
}

/*
 * Adds a page's description (struct heap_page), a malloc block that is freed with the page. The description lies among
 * the blocks of objects that were made after the page, and would keep one of malloc's pages if it were not treated as
 * garbage.
 */
static void add_description(struct pass *pass, const struct memscope_heap_page *page, struct memscope_page_fate fate) {
    bool goes = fate.surely && RUBY_API_VERSION_CODE < 30200; /* later Rubies keep some that are unknown */

    memscope_malloc_blocks_add(pass->blocks, *(const uintptr_t *)page->start, goes);
    pass->descriptions += goes;
}

/* Raises the upper bounds: a description that may be freed, but was not counted, adds at most the page it keeps. */
static void allow_for_descriptions(struct pass *pass) {
    uint64_t pages = pass->walk->heap.most, page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t bytes = pages > pass->descriptions ? (pages - pass->descriptions) * page : 0;

    pass->walk->returned.by_trim.most += bytes;
    pass->walk->returned.by_trim.private_most += bytes;
}

static void scale(uint64_t *bytes, uint64_t pages, uint64_t limit) {
    if (pages > limit)
        *bytes = (uint64_t)((double)*bytes * (double)limit / (double)pages);
}

/* The pages that a limit leaves are unknown. Assumes that each is as resident as the average page. */
static void limit_pages(struct memscope_emptied_pages *heap, struct memscope_sweep_limit limit) {
    scale(&heap->returned.least, heap->least, limit.least);
    scale(&heap->returned.private_least, heap->least, limit.least);
    scale(&heap->returned.most, heap->most, limit.most);
    scale(&heap->returned.private_most, heap->most, limit.most);
    heap->least = heap->least < limit.least ? heap->least : limit.least;
    heap->most = heap->most < limit.most ? heap->most : limit.most;
}

/* ---- the pass -------------------------------------------------------------------------------------------------- */

/*
 * Returns true if the sweep turns garbage into a zombie. A zombie keeps its page until its finalizer or free function
 * has run, after the collection (gc.c, obj_free).
 */
static bool waits_for_finalizer(VALUE object) {
    RUBY_DATA_FUNC release;

    switch (RB_BUILTIN_TYPE(object)) {
    case RUBY_T_ZOMBIE:
        return true;
    case RUBY_T_MOVED:
        return false;
    case RUBY_T_FILE:
        return RFILE(object)->fptr != NULL || RB_FL_TEST_RAW(object, RUBY_FL_FINALIZE);
    case RUBY_T_DATA:
        if (RTYPEDDATA_P(object) && (RTYPEDDATA_TYPE(object)->flags & RUBY_TYPED_FREE_IMMEDIATELY))
            return RB_FL_TEST_RAW(object, RUBY_FL_FINALIZE) != 0;
        release = MEMSCOPE_FREE_OF_DATA(object);
        return (release != RUBY_NEVER_FREE && release != RUBY_DEFAULT_FREE) || RB_FL_TEST_RAW(object, RUBY_FL_FINALIZE);
    default:
        return RB_FL_TEST_RAW(object, RUBY_FL_FINALIZE) != 0;
    }
}

/* A page that waits for finalizers is part of the sweep's limits, but may not be returned: zombies outlast a sweep. */
static void keep_waiting_page(struct pass *pass, struct memscope_page_fate *fate) {
    pass->waiting_pages += fate->maybe;
    fate->surely = false;
}

static void walk_pages(struct pass *pass, const struct memscope_marking *marking) {
    struct memscope_sweep sweep = {0};
    struct memscope_sweep_limit limit;
    uint32_t number = 0;

    for (size_t index = 0; index < pass->listing->count; index++) {
        const struct memscope_heap_page *page = &pass->listing->pages[index];
        uintptr_t slot = page->start + page->slots_offset;
        struct memscope_page_fate fate;
        uint64_t garbage = pass->walk->garbage.slot_bytes;
        uint32_t kept = 0;
        bool waits = false;

        for (uint32_t left = page->slot_count; left > 0; left--, number++, slot += page->slot_bytes) {
            __builtin_prefetch((const void *)(slot + MEMSCOPE_PREFETCH_AHEAD));
            if (RB_BUILTIN_TYPE((VALUE)slot) == RUBY_T_NONE)
                continue;
            pass->garbage = !memscope_is_marked(marking, number);
            kept += !pass->garbage;
            waits |= pass->garbage && waits_for_finalizer((VALUE)slot);
            if (memscope_is_object((VALUE)slot)) /* others still keep their page */
                walk_object(pass, (VALUE)slot, page->slot_bytes);
        }
        fate = memscope_sweep_page(&sweep, page->slot_bytes, page->slot_count, page->slot_count - kept);
        if (waits)
            keep_waiting_page(pass, &fate);
        add_garbage_slots(pass, page, pass->walk->garbage.slot_bytes - garbage);
        add_description(pass, page, fate);
        if (kept == 0)
            add_page(pass, page, fate);
    }
    limit = memscope_sweep_limit(&sweep, pass->listing->allocatable_pages * sweep.smallest_slots);
    limit.least -= limit.least < pass->waiting_pages ? limit.least : pass->waiting_pages;
    limit_pages(&pass->walk->heap, limit);
}

void memscope_walk_blocks(const struct memscope_heap_listing *listing, struct memscope_malloc_blocks *blocks,
                          const struct memscope_marking *marking, struct memscope_block_walk *walk) {
    struct pass pass = {.listing = listing, .blocks = blocks, .walk = walk};

    memset(walk, 0, sizeof *walk);
    memscope_heap_held_open(&pass.asking, &walk->said);
    walk_pages(&pass, marking);
    memscope_heap_held_close(&pass.asking);
    for (int row = 0; row < MEMSCOPE_ROW_COUNT; row++)
        walk->garbage_of_rows[row] += blocks->garbage[row];
    walk->private_known = blocks->private_status == MEMSCOPE_OK;
    walk->status = memscope_malloc_blocks_returned(blocks, &walk->returned);
    allow_for_descriptions(&pass);
    walk->returned.by_trim.most += walk->garbage.unfollowed_bytes + pass.unproven_bytes;
    walk->returned.by_trim.private_most += walk->garbage.unfollowed_bytes + pass.unproven_bytes;
}
