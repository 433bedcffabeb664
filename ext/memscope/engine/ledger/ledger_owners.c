#include "ledger/ledger_scan.h"

#include <string.h>

#include "base/copy.h"
#include "ledger/glibc_pieces.h"

static void claim_scratch(uintptr_t start, uintptr_t end, void *context) {
    memscope_claims_add(context, start, end, MEMSCOPE_ROW_memscope, 0);
}

/* A copy's own memory is not its original's, which may have mapped something else there. */
static void claim_own_memory(const struct memscope_own_memory *memory, struct memscope_claims *claims) {
    struct memscope_range window = memscope_own_memory_window(memory);

    if (memscope_is_copy())
        return;
    memscope_scratch_each(claim_scratch, claims);
    memscope_claims_add(claims, window.start, window.end, MEMSCOPE_ROW_memscope, 0);
}

void memscope_ledger_claim_known(struct memscope_ledger_scan *scan) {
    struct memscope_ledger *ledger = scan->ledger;
    const struct memscope_ruby_layout *ruby = scan->request->ruby;
    struct memscope_claims *claims = &scan->ledger->claims;
    bool readable = ledger->own_memory_status == MEMSCOPE_OK;

    claim_own_memory(&scan->memory, claims);
    memscope_ruby_claim_heap_pages(ruby, claims);
    memscope_claims_settle(claims);
    memscope_images_claim_zeroed(scan->request->images, claims);
    ledger->stacks_status = ledger->own_memory_status;
    if (readable)
        ledger->stacks_status =
            memscope_stacks_claim_threads(&scan->request->images->threads, &scan->search, &ledger->stacks);
    memscope_claims_settle(claims);
    if (readable)
        memscope_stacks_claim_migrating(&scan->search, ruby->thread_vm_bytes, ruby->thread_machine_bytes);
    memscope_claims_settle(claims);
    memscope_stacks_claim_fibers(&scan->search, ruby->fiber_stack_bytes, &ledger->stacks);
    memscope_claims_settle(claims);
    if (readable)
        memscope_ruby_claim_known_internals(ruby, &scan->search, &ledger->ruby);
    memscope_claims_settle(claims);
}

bool memscope_ledger_claim_beside_jemalloc(struct memscope_ledger_scan *scan) {
    struct memscope_ledger *ledger = scan->ledger;

    if (ledger->own_memory_status != MEMSCOPE_OK)
        return false;
    memscope_glibc_claim_arenas(&scan->search, MEMSCOPE_ROW_unattributed, &ledger->glibc);
    memscope_claims_settle(&scan->ledger->claims);
    return ledger->glibc.arena_heap_count > 0;
}

void memscope_ledger_claim_found(struct memscope_ledger_scan *scan) {
    struct memscope_ledger *ledger = scan->ledger;
    const struct memscope_ruby_layout *ruby = scan->request->ruby;
    const struct memscope_images *images = scan->request->images;
    const struct memscope_search *search = &scan->search;
    struct memscope_claims *claims = &scan->ledger->claims;
    bool glibc = scan->request->malloc == MEMSCOPE_ALLOCATOR_GLIBC;

    scan->search.residency = &ledger->residency;
    if (ledger->own_memory_status != MEMSCOPE_OK)
        return;
    if (glibc)
        memscope_glibc_claim_arenas(search, MEMSCOPE_ROW_arenas, &ledger->glibc);
    if (ledger->jemalloc_status == MEMSCOPE_OK)
        ledger->beside_heaps =
            ledger->glibc.arena_heap_count + memscope_glibc_claim_main_heap(search, images, MEMSCOPE_ROW_unattributed);
    memscope_ruby_claim_transient_heap(ruby, search, &ledger->ruby);
    memscope_claims_settle(claims);
    if (glibc)
        memscope_glibc_claim_pieces(search, images, &ledger->work, &ledger->glibc);
    memscope_claims_settle(claims);
    if (glibc || (ledger->beside_heaps > 0 && ledger->ambiguous_mappings == 0))
        memscope_glibc_claim_mmapped(search, glibc ? MEMSCOPE_ROW_mmapped : MEMSCOPE_ROW_unattributed, &ledger->glibc);
    memscope_claims_settle(claims);
    memscope_ruby_claim_unlisted_pages(ruby, search, &ledger->ruby);
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

enum memscope_row memscope_ledger_owner_of_rest(const struct memscope_ledger_scan *scan,
                                                const struct memscope_mapping *mapping) {
    if (is_shared_memory(mapping))
        return MEMSCOPE_ROW_shared_memory;
    if (mapping->inode != 0)
        return memscope_images_row(scan->request->images, mapping->start);
    if (mapping->of_jemalloc)
        return MEMSCOPE_ROW_malloc;
    if (strcmp(mapping->name, "[stack]") == 0)
        return MEMSCOPE_ROW_main;
    if (memscope_mapping_is_program_break(mapping) && scan->request->malloc == MEMSCOPE_ALLOCATOR_GLIBC)
        return MEMSCOPE_ROW_main_heap;
    if (starts_with(mapping->name, "[v"))
        return MEMSCOPE_ROW_others; /* [vdso], [vvar], [vsyscall] */
    if (memscope_mapping_is_anonymous(mapping) && mapping->executable && scan->request->ruby->jit)
        return MEMSCOPE_ROW_jit;
    return MEMSCOPE_ROW_unattributed;
}
