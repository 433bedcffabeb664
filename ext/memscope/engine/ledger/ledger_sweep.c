#include "ledger/ledger_scan.h"

#include <string.h>

#include "kernel/returnable.h"
#include "kernel/sharing.h"

/* Resident bytes of one owner, and those that other processes share (0 unless requested). */
struct amount {
    uint64_t bytes, shared;
};

/*
 * Adds bytes to this row's share of the mapping being swept. During the sweep, only owners are allocated in
 * ledger->work, so that their list stays contiguous.
 */
static void add_owner(struct memscope_ledger_scan *scan, enum memscope_row row, const struct memscope_mapping *mapping,
                      uint64_t bytes) {
    const struct memscope_ledger_owner owner = {mapping, row, bytes};
    struct memscope_ledger *ledger = scan->ledger;

    if (ledger->owner_count > 0 && ledger->owners[ledger->owner_count - 1].mapping != mapping)
        scan->first_owner = ledger->owner_count;
    for (size_t index = scan->first_owner; index < ledger->owner_count; index++) {
        if (ledger->owners[index].row != row)
            continue;
        ledger->owners[index].bytes += bytes;
        return;
    }
    ledger->claims.exhausted |= !memscope_scratch_add(&ledger->work, &ledger->owner_count, &owner, sizeof owner);
}

static void add_bytes(struct memscope_ledger_scan *scan, enum memscope_row row, bool written,
                      const struct memscope_mapping *mapping, struct amount amount) {
    uint64_t bytes = amount.bytes;

    scan->ledger->bytes[row] += (int64_t)bytes;
    scan->ledger->shared_bytes[row] += amount.shared;
    if (written && memscope_row_definitions[row].parent == MEMSCOPE_ROW_files)
        scan->ledger->written_bytes[row] += bytes;
    add_owner(scan, row, mapping, bytes);
}

/*
 * Splits the resident bytes of one heap page by its slots. A page that is only partly resident (never touched to its
 * end, or partly swapped out) is split in proportion, and counted in heap_pages_partly_resident.
 */
static void add_heap_page(struct memscope_ledger_scan *scan, const struct memscope_heap_page *page,
                          struct amount amount) {
    struct memscope_ledger *ledger = scan->ledger;
    uint64_t resident = amount.bytes, whole = scan->request->ruby->heap_page_bytes;
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
    live = live * amount.shared / resident;
    slots = slots * amount.shared / resident;
    ledger->shared_bytes[MEMSCOPE_ROW_live_slots] += live;
    ledger->shared_bytes[MEMSCOPE_ROW_free_slots] += slots - live;
    ledger->shared_bytes[MEMSCOPE_ROW_page_headers] += amount.shared - slots;
}

struct sweep {
    struct memscope_ledger_scan *scan;
    struct memscope_sharing sharing;
    size_t mapping, claim;                 /* indexes of the first mapping and claim that end past the position */
    const struct memscope_heap_page *page; /* the heap page being swept, or NULL */
    struct amount page_amount;             /* the resident part of that page found so far */
};

static void finish_heap_page(struct sweep *sweep) {
    if (sweep->page != NULL)
        add_heap_page(sweep->scan, sweep->page, sweep->page_amount);
    sweep->page = NULL;
    sweep->page_amount = (struct amount){0};
}

static void add_claimed(struct sweep *sweep, const struct memscope_claim *claim, const struct memscope_mapping *mapping,
                        struct amount amount) {
    if (claim->row == MEMSCOPE_CLAIM_HEAP_PAGE) {
        const struct memscope_heap_page *page = &sweep->scan->request->ruby->heap_pages[claim->item];

        if (page != sweep->page)
            finish_heap_page(sweep);
        sweep->page = page;
        add_owner(sweep->scan, MEMSCOPE_ROW_ruby_heap, mapping, amount.bytes);
        sweep->page_amount.bytes += amount.bytes;
        sweep->page_amount.shared += amount.shared;
        return;
    }
    if (claim->row == MEMSCOPE_ROW_unattributed)
        sweep->scan->ledger->beside_bytes += amount.bytes;
    add_bytes(sweep->scan, (enum memscope_row)claim->row, claim->item != 0, mapping, amount);
}

static struct amount measure(struct sweep *sweep, uintptr_t start, uintptr_t end) {
    return (struct amount){end - start, memscope_sharing_between(&sweep->sharing, start, end)};
}

/* Adds [start, end), all resident, to its owners' rows piece by piece. */
static void sweep_range(struct sweep *sweep, uintptr_t start, uintptr_t end) {
    struct memscope_ledger_scan *scan = sweep->scan;
    const struct memscope_mappings *mappings = &scan->ledger->mappings;
    const struct memscope_claims *claims = &scan->ledger->claims;

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
            scan->ledger->unmapped_bytes += piece_end - start;
            scan->ledger->bytes[MEMSCOPE_ROW_unattributed] += (int64_t)(piece_end - start);
            start = piece_end;
            continue;
        }
        if (mapping->end < piece_end)
            piece_end = mapping->end;
        if (claim != NULL && claim->start <= start) {
            piece_end = claim->end < piece_end ? claim->end : piece_end;
            add_claimed(sweep, claim, mapping, measure(sweep, start, piece_end));
        } else {
            piece_end = claim != NULL && claim->start < piece_end ? claim->start : piece_end;
            add_bytes(scan, memscope_ledger_owner_of_rest(scan, mapping), mapping->writable, mapping,
                      measure(sweep, start, piece_end));
        }
        start = piece_end;
    }
}

static void sweep_ranges(struct sweep *sweep) {
    const struct memscope_residency *residency = &sweep->scan->ledger->residency;

    for (size_t index = 0; index < residency->range_count; index++)
        sweep_range(sweep, residency->ranges[index].start, residency->ranges[index].end);
    finish_heap_page(sweep);
}

/* ---- the sweep if only each mapping's Rss is known --------------------------------------------------------------- */

/* Address space of one mapping by owner. The resident part of each share is known only within bounds. */
struct shares {
    uint64_t rows[MEMSCOPE_ROW_COUNT];
    uint64_t heap_pages;
    uint64_t beside;      /* the claimed part of rows[MEMSCOPE_ROW_unattributed] */
    uint64_t live, slots; /* bytes in these heap pages, in proportion for a page that is in two mappings */
};

static void share_claims(const struct memscope_ledger_scan *scan, const struct memscope_mapping *mapping,
                         struct shares *shares) {
    const struct memscope_claims *claims = &scan->ledger->claims;
    const struct memscope_ruby_layout *ruby = scan->request->ruby;
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

            uint64_t bytes = end - start, whole = ruby->heap_page_bytes;

            shares->heap_pages += bytes;
            shares->live += (uint64_t)page->live_count * page->slot_bytes * bytes / whole;
            shares->slots += (uint64_t)page->slot_count * page->slot_bytes * bytes / whole;
        } else {
            shares->rows[claim->row] += end - start;
            shares->beside += claim->row == MEMSCOPE_ROW_unattributed ? end - start : 0;
        }
    }
    shares->rows[memscope_ledger_owner_of_rest(scan, mapping)] += rest;
}

/* The bytes of an owner's share that must be resident, wherever in the mapping the resident pages are. */
static uint64_t surely_resident(uint64_t share, uint64_t resident, uint64_t size) {
    return share + resident > size ? share + resident - size : 0;
}

static void sweep_mapping(struct memscope_ledger_scan *scan, const struct memscope_mapping *mapping) {
    struct memscope_ledger *ledger = scan->ledger;
    uint64_t size = mapping->end - mapping->start, resident = mapping->resident_bytes, rest = resident, sure;
    struct shares shares;

    if (resident == 0)
        return;
    share_claims(scan, mapping, &shares);
    for (int row = 0; row < MEMSCOPE_ROW_COUNT; row++) {
        sure = surely_resident(shares.rows[row], resident, size);
        if (row == MEMSCOPE_ROW_unattributed || sure == 0)
            continue;
        add_bytes(scan, (enum memscope_row)row, mapping->writable, mapping, (struct amount){.bytes = sure});
        rest -= sure;
    }
    sure = surely_resident(shares.heap_pages, resident, size);
    if (sure > 0) {
        uint64_t live = shares.live * sure / shares.heap_pages, slots = shares.slots * sure / shares.heap_pages;

        ledger->bytes[MEMSCOPE_ROW_live_slots] += (int64_t)live;
        ledger->bytes[MEMSCOPE_ROW_free_slots] += (int64_t)(slots - live);
        ledger->bytes[MEMSCOPE_ROW_page_headers] += (int64_t)(sure - slots);
        add_owner(scan, MEMSCOPE_ROW_ruby_heap, mapping, sure);
        rest -= sure;
    }
    if (rest > 0)
        add_bytes(scan, MEMSCOPE_ROW_unattributed, false, mapping, (struct amount){.bytes = rest});
    ledger->beside_bytes += rest < shares.beside ? rest : shares.beside;
}

static void sweep_mappings(struct memscope_ledger_scan *scan) {
    const struct memscope_mappings *mappings = &scan->ledger->mappings;

    for (size_t index = 0; index < mappings->count; index++)
        sweep_mapping(scan, &mappings->list[index]);
}

static bool is_of_malloc(enum memscope_row row) {
    return row == MEMSCOPE_ROW_malloc || memscope_row_definitions[row].parent == MEMSCOPE_ROW_malloc;
}

/* Records the bytes that the kernel would refuse to take back from malloc. */
static void add_refusals(struct memscope_ledger *ledger) {
    ledger->return_status = memscope_returnable();
    for (size_t index = 0; index < ledger->owner_count; index++) {
        const struct memscope_ledger_owner *owner = &ledger->owners[index];

        if (is_of_malloc(owner->row) && memscope_is_locked(owner->mapping->start, owner->mapping->end))
            ledger->locked_bytes += owner->bytes;
    }
}

void memscope_ledger_sweep(struct memscope_ledger_scan *scan) {
    struct memscope_ledger *ledger = scan->ledger;
    struct sweep sweep = {.scan = scan};
    bool pages_known = ledger->residency.source != MEMSCOPE_RESIDENCY_SMAPS;

    ledger->shared_status = ledger->residency.refusal;
    if (scan->request->shared && pages_known)
        ledger->shared_status = memscope_sharing_open(&sweep.sharing, &ledger->work);
    ledger->owners = memscope_scratch_take(&ledger->work, 0);
    if (pages_known)
        sweep_ranges(&sweep);
    else
        sweep_mappings(scan);
    if (ledger->shared_status == MEMSCOPE_OK)
        ledger->shared_status = memscope_sharing_close(&sweep.sharing);
    add_refusals(ledger);
}
