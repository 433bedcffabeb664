#include "ledger.h"

#include <string.h>
#include <unistd.h>

#include "images.h"
#include "own_memory.h"

#define ROW(id, parent, label) {#id, MEMSCOPE_ROW_##parent, label},
const struct memscope_row_definition memscope_row_definitions[MEMSCOPE_ROW_COUNT] = {
#include "ledger_rows.def"
};
#undef ROW

int64_t memscope_ledger_row_bytes(const struct memscope_ledger *ledger, enum memscope_row row) {
    int64_t bytes = ledger->bytes[row];

    for (int child = 0; child < MEMSCOPE_ROW_COUNT; child++)
        if (memscope_row_definitions[child].parent == row)
            bytes += ledger->bytes[child];
    return bytes;
}

/* What one reading works with; lives on the stack of memscope_ledger_read. */
struct reading {
    const struct memscope_ledger_request *request;
    struct memscope_ledger *ledger;
    struct memscope_mappings_memory lists;
    struct memscope_own_memory memory;
    struct memscope_claims claims;
    struct memscope_images images;
    const struct memscope_mapping *foreign; /* a NORESERVE mapping that is not jemalloc's */
    uint64_t *stranger_bytes;               /* by mapping */
};

/* ---- owners ------------------------------------------------------------------------------------------------- */

static void claim_scratch(uintptr_t start, uintptr_t end, void *context) {
    memscope_claims_add(context, start, end, MEMSCOPE_ROW_memscope, 0);
}

static void claim_own_memory(struct memscope_claims *claims) {
    uintptr_t start, end;

    memscope_scratch_each(claim_scratch, claims);
    memscope_process_own_page(&start, &end);
    memscope_claims_add(claims, start, end, MEMSCOPE_ROW_memscope, 0);
}

/* The surest owners come first: each gets only what those before it left. */
static void claim_owners(struct reading *reading) {
    struct memscope_ledger *ledger = reading->ledger;
    const struct memscope_ruby_layout *ruby = reading->request->ruby;
    struct memscope_claims *claims = &reading->claims;
    bool glibc = reading->request->malloc == MEMSCOPE_LEDGER_MALLOC_GLIBC;
    bool readable = ledger->own_memory_status == MEMSCOPE_OK;

    claim_own_memory(claims);
    memscope_ruby_claim_heap_pages(ruby, claims);
    memscope_claims_settle(claims);
    memscope_images_read(&ledger->work, claims, &reading->images);
    memscope_stacks_claim_fibers(&ledger->mappings, ruby->fiber_stack_bytes, claims, &ledger->stacks);
    memscope_claims_settle(claims);
    if (!readable) {
        ledger->stacks_status = ledger->own_memory_status;
        return;
    }
    ledger->stacks_status = memscope_stacks_claim_threads(&reading->memory, claims, &ledger->stacks);
    memscope_claims_settle(claims);
    if (glibc)
        memscope_glibc_claim_arenas(&ledger->mappings, &ledger->residency, &reading->memory, claims, &ledger->glibc);
    memscope_ruby_claim_internals(ruby, &ledger->mappings, &reading->memory, claims);
    memscope_claims_settle(claims);
    if (glibc)
        memscope_glibc_claim_mmapped(&ledger->mappings, &ledger->residency, &reading->memory, claims,
                                     &ledger->glibc);
    memscope_claims_settle(claims);
    memscope_ruby_claim_empty_pages(ruby, &ledger->mappings, &ledger->residency, &reading->memory, claims,
                                    &ledger->ruby);
    memscope_claims_settle(claims);
}

static bool starts_with(const char *text, const char *prefix) {
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

static bool is_shared_memory(const struct memscope_mapping *mapping) {
    return starts_with(mapping->name, "/memfd:") || starts_with(mapping->name, "/dev/shm/") ||
           starts_with(mapping->name, "/SYSV") || starts_with(mapping->name, "/dev/zero") ||
           (mapping->shared && (mapping->inode == 0 || starts_with(mapping->name, "[anon_shmem:")));
}

static bool is_jemallocs(const struct reading *reading, const struct memscope_mapping *mapping) {
    return reading->request->malloc == MEMSCOPE_LEDGER_MALLOC_JEMALLOC &&
           reading->ledger->jemalloc_status == MEMSCOPE_OK && mapping->noreserve && mapping != reading->foreign &&
           memscope_mapping_is_data(mapping);
}

/* Whose a mapping is where nothing in it was claimed. in_use stands for all that jemalloc holds until it is split. */
static enum memscope_row owner_of_rest(const struct reading *reading, const struct memscope_mapping *mapping) {
    if (is_shared_memory(mapping))
        return MEMSCOPE_ROW_shared_memory;
    if (mapping->inode != 0)
        return memscope_images_row(&reading->images, mapping->start);
    if (is_jemallocs(reading, mapping))
        return MEMSCOPE_ROW_in_use;
    if (strcmp(mapping->name, "[stack]") == 0)
        return MEMSCOPE_ROW_main;
    if (strcmp(mapping->name, "[heap]") == 0 && reading->request->malloc == MEMSCOPE_LEDGER_MALLOC_GLIBC)
        return MEMSCOPE_ROW_main_heap;
    if (starts_with(mapping->name, "[v"))
        return MEMSCOPE_ROW_others; /* [vdso], [vvar], [vsyscall] */
    if (memscope_mapping_is_anonymous(mapping) && mapping->executable && reading->request->ruby->jit)
        return MEMSCOPE_ROW_jit;
    return MEMSCOPE_ROW_unattributed;
}

/* ---- the sweep ---------------------------------------------------------------------------------------------- */

static void add_bytes(struct reading *reading, enum memscope_row row, bool written,
                      const struct memscope_mapping *mapping, uint64_t bytes) {
    reading->ledger->bytes[row] += (int64_t)bytes;
    if (written && memscope_row_definitions[row].parent == MEMSCOPE_ROW_files)
        reading->ledger->written_bytes[row] += bytes;
    if (row == MEMSCOPE_ROW_unattributed)
        reading->stranger_bytes[mapping - reading->ledger->mappings.list] += bytes;
}

/*
 * Splits the resident bytes of one heap page by its slots. A page that is only partly resident (never touched to its
 * end, or swapped out) is split in proportion, and counted.
 */
static void add_heap_page(struct reading *reading, const struct memscope_heap_page *page, uint64_t resident) {
    struct memscope_ledger *ledger = reading->ledger;
    uint64_t whole = reading->request->ruby->heap_page_bytes;
    uint64_t live = (uint64_t)page->live_count * page->slot_bytes;
    uint64_t slots = (uint64_t)page->slot_count * page->slot_bytes;

    if (resident < whole) {
        ledger->heap_pages_partly_resident++;
        live = live * resident / whole;
        slots = slots * resident / whole;
    }
    ledger->bytes[MEMSCOPE_ROW_live_slots] += (int64_t)live;
    ledger->bytes[MEMSCOPE_ROW_free_slots] += (int64_t)(slots - live);
    ledger->bytes[MEMSCOPE_ROW_page_headers] += (int64_t)(resident - slots);
}

struct sweep {
    struct reading *reading;
    size_t mapping, claim; /* the first that ends after the position */
    const struct memscope_heap_page *page; /* the heap page being swept, and what of it was resident so far */
    uint64_t page_bytes;
};

static void finish_heap_page(struct sweep *sweep) {
    if (sweep->page != NULL)
        add_heap_page(sweep->reading, sweep->page, sweep->page_bytes);
    sweep->page = NULL;
    sweep->page_bytes = 0;
}

static void add_claimed(struct sweep *sweep, const struct memscope_claim *claim,
                        const struct memscope_mapping *mapping, uint64_t bytes) {
    if (claim->row == MEMSCOPE_CLAIM_HEAP_PAGE) {
        const struct memscope_heap_page *page = &sweep->reading->request->ruby->heap_pages[claim->item];

        if (page != sweep->page)
            finish_heap_page(sweep);
        sweep->page = page;
        sweep->page_bytes += bytes;
        return;
    }
    add_bytes(sweep->reading, (enum memscope_row)claim->row, claim->item != 0, mapping, bytes);
}

/* Gives [start, end), all resident, to its owners piece by piece. */
static void sweep_range(struct sweep *sweep, uintptr_t start, uintptr_t end) {
    struct reading *reading = sweep->reading;
    const struct memscope_mappings *mappings = &reading->ledger->mappings;
    const struct memscope_claims *claims = &reading->claims;

    while (start < end) {
        const struct memscope_mapping *mapping;
        const struct memscope_claim *claim;
        uintptr_t piece_end = end;

        while (sweep->mapping < mappings->count && mappings->list[sweep->mapping].end <= start)
            sweep->mapping++;
        while (sweep->claim < claims->count && claims->list[sweep->claim].end <= start)
            sweep->claim++;
        mapping = sweep->mapping < mappings->count ? &mappings->list[sweep->mapping] : NULL;
        claim = sweep->claim < claims->count ? &claims->list[sweep->claim] : NULL;
        if (mapping == NULL || mapping->start > start) {
            if (mapping != NULL && mapping->start < piece_end)
                piece_end = mapping->start;
            reading->ledger->unmapped_bytes += piece_end - start;
            reading->ledger->bytes[MEMSCOPE_ROW_unattributed] += (int64_t)(piece_end - start);
            start = piece_end;
            continue;
        }
        if (mapping->end < piece_end)
            piece_end = mapping->end;
        if (claim != NULL && claim->start <= start) {
            piece_end = claim->end < piece_end ? claim->end : piece_end;
            add_claimed(sweep, claim, mapping, piece_end - start);
        } else {
            piece_end = claim != NULL && claim->start < piece_end ? claim->start : piece_end;
            add_bytes(reading, owner_of_rest(reading, mapping), mapping->writable, mapping, piece_end - start);
        }
        start = piece_end;
    }
}

static void sweep_ranges(struct reading *reading) {
    const struct memscope_residency *residency = &reading->ledger->residency;
    struct sweep sweep = {.reading = reading};

    for (size_t index = 0; index < residency->range_count; index++)
        sweep_range(&sweep, residency->ranges[index].start, residency->ranges[index].end);
    finish_heap_page(&sweep);
}

/* ---- the sweep where only each mapping's Rss is known --------------------------------------------------------- */

/* Address space in one mapping by owner; what is resident of it lies between two bounds. */
struct shares {
    uint64_t rows[MEMSCOPE_ROW_COUNT];
    uint64_t heap_pages;
    uint64_t live, slots; /* of the heap pages */
};

static void share_claims(const struct reading *reading, const struct memscope_mapping *mapping,
                         struct shares *shares) {
    const struct memscope_claims *claims = &reading->claims;
    const struct memscope_ruby_layout *ruby = reading->request->ruby;
    uint64_t rest = mapping->end - mapping->start;

    memset(shares, 0, sizeof *shares);
    for (size_t index = memscope_claims_position(claims, mapping->start);
         index < claims->count && claims->list[index].start < mapping->end; index++) {
        const struct memscope_claim *claim = &claims->list[index];
        uintptr_t start = claim->start > mapping->start ? claim->start : mapping->start;
        uintptr_t end = claim->end < mapping->end ? claim->end : mapping->end;

        rest -= end - start;
        if (claim->row == MEMSCOPE_CLAIM_HEAP_PAGE) {
            const struct memscope_heap_page *page = &ruby->heap_pages[claim->item];

            shares->heap_pages += end - start;
            shares->live += (uint64_t)page->live_count * page->slot_bytes;
            shares->slots += (uint64_t)page->slot_count * page->slot_bytes;
        } else {
            shares->rows[claim->row] += end - start;
        }
    }
    shares->rows[owner_of_rest(reading, mapping)] += rest;
}

/* At least this much of an owner's share is resident, wherever in the mapping the resident pages lie. */
static uint64_t surely_resident(uint64_t share, uint64_t resident, uint64_t size) {
    return share + resident > size ? share + resident - size : 0;
}

static void sweep_mapping(struct reading *reading, const struct memscope_mapping *mapping) {
    struct memscope_ledger *ledger = reading->ledger;
    uint64_t size = mapping->end - mapping->start, resident = mapping->resident_bytes, rest = resident, sure;
    struct shares shares;

    if (resident == 0)
        return;
    share_claims(reading, mapping, &shares);
    for (int row = 0; row < MEMSCOPE_ROW_COUNT; row++) {
        sure = surely_resident(shares.rows[row], resident, size);
        if (row == MEMSCOPE_ROW_unattributed || sure == 0)
            continue;
        add_bytes(reading, (enum memscope_row)row, mapping->writable, mapping, sure);
        rest -= sure;
    }
    sure = surely_resident(shares.heap_pages, resident, size);
    if (sure > 0) {
        uint64_t live = shares.live * sure / shares.heap_pages, slots = shares.slots * sure / shares.heap_pages;

        ledger->bytes[MEMSCOPE_ROW_live_slots] += (int64_t)live;
        ledger->bytes[MEMSCOPE_ROW_free_slots] += (int64_t)(slots - live);
        ledger->bytes[MEMSCOPE_ROW_page_headers] += (int64_t)(sure - slots);
        rest -= sure;
    }
    if (rest > 0)
        add_bytes(reading, MEMSCOPE_ROW_unattributed, false, mapping, rest);
}

/* ---- jemalloc ------------------------------------------------------------------------------------------------- */

/*
 * jemalloc's mappings are the anonymous ones with MAP_NORESERVE, which proves nothing by itself: their address space
 * must equal stats.mapped + stats.retained. When it is larger, a mapping of exactly the difference is foreign; several
 * of that size leave it open which.
 */
static void tell_foreign_mapping(struct reading *reading) {
    struct memscope_ledger *ledger = reading->ledger;
    const struct memscope_mapping *found = NULL;
    uint64_t expected = memscope_ledger_jemalloc_expected(ledger);
    int candidates = 0;

    reading->foreign = NULL;
    ledger->noreserve_bytes = 0;
    for (size_t index = 0; index < ledger->mappings.count; index++)
        if (is_jemallocs(reading, &ledger->mappings.list[index]))
            ledger->noreserve_bytes += ledger->mappings.list[index].end - ledger->mappings.list[index].start;
    if (ledger->noreserve_bytes <= expected)
        return;
    for (size_t index = 0; index < ledger->mappings.count; index++) {
        const struct memscope_mapping *mapping = &ledger->mappings.list[index];

        if (!is_jemallocs(reading, mapping) || mapping->end - mapping->start != ledger->noreserve_bytes - expected)
            continue;
        found = mapping;
        candidates++;
    }
    reading->foreign = candidates == 1 ? found : NULL;
}

/*
 * Splits what is resident in jemalloc's mappings by jemalloc's own counters. They count some pages that were never
 * touched (not_resident, negative), or leave some resident pages uncounted (retained ones that huge pages filled
 * again). While foreign address space is among the mappings, uncounted pages may as well be the stranger's.
 */
static void split_jemalloc(struct memscope_ledger *ledger) {
    const struct memscope_jemalloc_stats *stats = &ledger->jemalloc;
    int64_t *bytes = ledger->bytes, resident = bytes[MEMSCOPE_ROW_in_use], rest;
    uint64_t expected = memscope_ledger_jemalloc_expected(ledger);
    uint64_t foreign_space = ledger->noreserve_bytes > expected ? ledger->noreserve_bytes - expected : 0;
    uint64_t caches = stats->tcache_bytes + stats->tcache_stashed_bytes;

    bytes[MEMSCOPE_ROW_in_use] = (int64_t)(stats->allocated_bytes - caches);
    bytes[MEMSCOPE_ROW_thread_caches] = (int64_t)caches;
    bytes[MEMSCOPE_ROW_slab_slack] = (int64_t)stats->slab_slack_bytes;
    bytes[MEMSCOPE_ROW_page_slack] =
        (int64_t)stats->active_bytes - (int64_t)stats->allocated_bytes - (int64_t)stats->slab_slack_bytes;
    bytes[MEMSCOPE_ROW_dirty] = (int64_t)(stats->pdirty * stats->page_bytes);
    bytes[MEMSCOPE_ROW_muzzy] = (int64_t)(stats->pmuzzy * stats->page_bytes);
    bytes[MEMSCOPE_ROW_metadata] =
        (int64_t)stats->resident_bytes - (int64_t)((stats->pactive + stats->pdirty) * stats->page_bytes);
    rest = resident - (int64_t)(stats->resident_bytes + stats->pmuzzy * stats->page_bytes);
    if (rest < 0) {
        bytes[MEMSCOPE_ROW_not_resident] = rest;
        return;
    }
    ledger->foreign_noreserve_bytes = (uint64_t)rest < foreign_space ? (uint64_t)rest : foreign_space;
    bytes[MEMSCOPE_ROW_unattributed] += (int64_t)ledger->foreign_noreserve_bytes;
    bytes[MEMSCOPE_ROW_retained_resident] = rest - (int64_t)ledger->foreign_noreserve_bytes;
}

/* ---- the reading ---------------------------------------------------------------------------------------------- */

/* Reads jemalloc's counters and the mappings as close together as can be; again once when they do not agree. */
static enum memscope_status read_mappings(struct reading *reading) {
    struct memscope_ledger *ledger = reading->ledger;
    enum memscope_status status;

    ledger->jemalloc_status = MEMSCOPE_UNSUPPORTED;
    if (reading->request->malloc != MEMSCOPE_LEDGER_MALLOC_JEMALLOC)
        return memscope_mappings_read(&reading->lists, &ledger->mappings);
    for (int attempt = 0; attempt < 2; attempt++) {
        size_t list_used = ledger->work.used, names_used = ledger->list.used;

        status = memscope_mappings_read_smaps(&reading->lists, &ledger->mappings);
        ledger->jemalloc_status = memscope_jemalloc_read_stats(&ledger->jemalloc);
        if (status != MEMSCOPE_OK || ledger->jemalloc_status != MEMSCOPE_OK)
            break;
        tell_foreign_mapping(reading);
        if (ledger->noreserve_bytes == memscope_ledger_jemalloc_expected(ledger) || attempt > 0)
            break;
        ledger->work.used = list_used;
        ledger->list.used = names_used;
    }
    return status;
}

static enum memscope_status read_residency(struct reading *reading) {
    struct memscope_ledger *ledger = reading->ledger;
    enum memscope_status status;

    ledger->statm_status = memscope_statm_read(&ledger->statm_before);
    status = memscope_residency_read(&ledger->mappings, &reading->lists, &ledger->residency);
    if (ledger->statm_status == MEMSCOPE_OK)
        ledger->statm_status = memscope_statm_read(&ledger->statm_after);
    return status;
}

static void list_strangers(struct reading *reading) {
    struct memscope_ledger *ledger = reading->ledger;
    struct memscope_ledger_stranger *strangers = memscope_scratch_take(&ledger->work, 0), *added;

    ledger->strangers = strangers;
    for (size_t index = 0; strangers != NULL && index < ledger->mappings.count; index++) {
        if (reading->stranger_bytes[index] == 0)
            continue;
        added = memscope_scratch_extend(&ledger->work, sizeof *added);
        if (added == NULL)
            return;
        *added = (struct memscope_ledger_stranger){&ledger->mappings.list[index], reading->stranger_bytes[index]};
        ledger->stranger_count++;
    }
}

static enum memscope_status attribute(struct reading *reading) {
    struct memscope_ledger *ledger = reading->ledger;
    size_t size = ledger->mappings.count * sizeof *reading->stranger_bytes;

    reading->stranger_bytes = memscope_scratch_take(&ledger->work, size);
    if (reading->stranger_bytes == NULL)
        return MEMSCOPE_NO_MEMORY;
    memset(reading->stranger_bytes, 0, size);
    if (ledger->jemalloc_status == MEMSCOPE_OK)
        tell_foreign_mapping(reading); /* the residency reader may have listed the mappings anew */
    memscope_claims_open(&reading->claims, &ledger->list, &ledger->work);
    claim_owners(reading);
    if (reading->claims.exhausted)
        return MEMSCOPE_NO_MEMORY;
    if (ledger->residency.source == MEMSCOPE_RESIDENCY_SMAPS)
        for (size_t index = 0; index < ledger->mappings.count; index++)
            sweep_mapping(reading, &ledger->mappings.list[index]);
    else
        sweep_ranges(reading);
    if (ledger->jemalloc_status == MEMSCOPE_OK)
        split_jemalloc(ledger);
    list_strangers(reading);
    return MEMSCOPE_OK;
}

enum memscope_status memscope_ledger_read(const struct memscope_ledger_request *request,
                                          struct memscope_ledger *ledger) {
    struct reading reading = {.request = request, .ledger = ledger, .lists = {&ledger->work, &ledger->list}};
    enum memscope_status status;

    memset(ledger, 0, sizeof *ledger);
    memscope_statm_read(&ledger->statm_before); /* so that what it maps the first time is in the list of mappings */
    if ((status = memscope_scratch_open(&ledger->work)) != MEMSCOPE_OK ||
        (status = memscope_scratch_open(&ledger->list)) != MEMSCOPE_OK)
        return status;
    if ((status = read_mappings(&reading)) != MEMSCOPE_OK || (status = read_residency(&reading)) != MEMSCOPE_OK)
        return status;
    ledger->own_memory_status = memscope_own_memory_open(&reading.memory);
    status = attribute(&reading);
    memscope_own_memory_close(&reading.memory);
    ledger->scratch_bytes = ledger->work.used + ledger->list.used;
    return status;
}

void memscope_ledger_close(struct memscope_ledger *ledger) {
    memscope_scratch_close(&ledger->work);
    memscope_scratch_close(&ledger->list);
}
