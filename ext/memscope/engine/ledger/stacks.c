#include "ledger/stacks.h"

#include <string.h>
#include <unistd.h>

/* One db_desc: size in bits, element count, byte offset (nptl_db/db_info.c). */
struct descriptor {
    uint32_t bits, count, offset;
};

struct thread_library {
    uintptr_t linker_state;  /* _rtld_global */
    size_t used_lists;       /* offset in _rtld_global of three consecutive list heads: used, user, cached stacks */
    size_t node;             /* offset of the list node in struct pthread */
    size_t descriptor_bytes; /* sizeof(struct pthread) */
};

#define LIST_USED 0   /* stacks that glibc mapped */
#define LIST_USER 1   /* stacks given to pthread_create, and the main thread */
#define LIST_CACHED 2 /* stacks of joined threads, kept for later threads */
#define DESCRIPTOR_LIMIT 8192
#define THREAD_LIMIT 100000
#define WALKS 16

struct list_node {
    uintptr_t next, previous;
};

static bool find_thread_library(const struct memscope_thread_symbols *symbols, struct thread_library *library) {
    const struct descriptor *used = symbols->used_stacks, *user = symbols->user_stacks, *node = symbols->list_node;
    const uint32_t *size = symbols->descriptor_size;

    library->linker_state = (uintptr_t)symbols->linker_state;
    if (used == NULL || user == NULL || node == NULL || size == NULL || library->linker_state == 0)
        return false;
    library->used_lists = used->offset;
    library->node = node->offset;
    library->descriptor_bytes = *size;
    /* struct rtld_global (sysdeps/generic/ldsodefs.h, 2.34 to 2.43): used, user and cache follow each other. */
    return user->offset == used->offset + sizeof(struct list_node) && *size <= DESCRIPTOR_LIMIT &&
           node->offset + sizeof(struct list_node) <= *size;
}

/*
 * struct pthread holds stackblock and stackblock_size next to each other, at an offset that no exported constant gives.
 * On machines whose thread pointer is at the descriptor (x86) or above it, a stack that glibc mapped ends with the
 * descriptor. No other two adjacent words describe a page-aligned block that ends with the descriptor.
 */
static bool stack_of(const uintptr_t *words, size_t count, uintptr_t descriptor, struct memscope_range *stack) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    for (size_t index = 0; index + 1 < count; index++) {
        uintptr_t start = words[index], size = words[index + 1];

        if (start == 0 || size == 0 || start % page != 0 || size % page != 0 || start >= descriptor ||
            size < descriptor - start || size - (descriptor - start) > 4 * page)
            continue;
        *stack = (struct memscope_range){start, start + size};
        return true;
    }
    return false;
}

static uintptr_t head_of(const struct thread_library *library, int list) {
    return library->linker_state + library->used_lists + (size_t)list * sizeof(struct list_node);
}

/*
 * Counts the stacks in a list, and returns true if it was complete. Lists are read without their lock. If a thread ends
 * during the walk, its stack moves to another list, and its node leads to that list's head, or its stack is unmapped,
 * and its node cannot be read.
 */
static bool walk_list(const struct thread_library *library, const struct memscope_search *search, int list,
                      uint64_t *found) {
    uintptr_t head = head_of(library, list), words[DESCRIPTOR_LIMIT / sizeof(uintptr_t)];
    struct list_node node;

    *found = 0;
    if (!memscope_own_memory_read(search->memory, head, &node, sizeof node))
        return false;
    for (size_t steps = 0; node.next != head && node.next > library->node && steps < THREAD_LIMIT; steps++) {
        uintptr_t descriptor = node.next - library->node;
        struct memscope_range stack;

        if (node.next == head_of(library, LIST_USED) || node.next == head_of(library, LIST_USER) ||
            node.next == head_of(library, LIST_CACHED) ||
            !memscope_own_memory_read(search->memory, descriptor, words, library->descriptor_bytes))
            break;
        if (stack_of(words, library->descriptor_bytes / sizeof words[0], descriptor, &stack)) {
            memscope_claims_add(search->claims, stack.start, stack.end, MEMSCOPE_ROW_threads, 0);
            ++*found;
        }
        memcpy(&node, (const char *)words + library->node, sizeof node);
    }
    return node.next == head;
}

/* Repeats a walk during which threads started or ended, at most WALKS - 1 times. The last walk's result stands. */
static uint64_t claim_list(const struct thread_library *library, const struct memscope_search *search, int list) {
    size_t count = search->claims->count;
    uint64_t found;

    for (int left = WALKS - 1; !walk_list(library, search, list, &found) && left > 0; left--)
        memscope_claims_withdraw(search->claims, count);
    return found;
}

enum memscope_status memscope_stacks_claim_threads(const struct memscope_thread_symbols *symbols,
                                                   const struct memscope_search *search,
                                                   struct memscope_stack_counts *counts) {
    struct thread_library library;

    if (!find_thread_library(symbols, &library))
        return MEMSCOPE_UNSUPPORTED;
    counts->live_threads = claim_list(&library, search, LIST_USED);
    counts->live_threads += claim_list(&library, search, LIST_USER);
    counts->cached_stacks = claim_list(&library, search, LIST_CACHED);
    return MEMSCOPE_OK;
}

static bool is_guard(const struct memscope_mapping *mapping, size_t page) {
    return memscope_mapping_is_anonymous(mapping) && !mapping->readable && !mapping->writable &&
           mapping->end - mapping->start == page;
}

/* thread_pthread_mn.c, from 3.3 to 4.1dev: a chunk of this size begins with a header of one or a few pages. */
#define CHUNK_BYTES ((size_t)512 << 20)
#define CHUNK_HEADER_PAGES 64 /* limit, a header for 65,535 stacks has 33 */

struct machine_stack_footer {
    uintptr_t chunk;
    size_t index; /* of the stack in its chunk */
};

/* The chunk that holds the stack with this guard page (VM stack, guard page, machine stack, back to back), or 0. */
static uintptr_t chunk_of(const struct memscope_mapping *guard, size_t page, size_t vm_bytes, size_t machine_bytes,
                          const struct memscope_own_memory *memory) {
    struct machine_stack_footer footer;
    size_t stack_bytes = vm_bytes + page + machine_bytes, header;

    if (!memscope_own_memory_read(memory, guard->end + machine_bytes - sizeof footer, &footer, sizeof footer) ||
        footer.chunk == 0 || footer.chunk % page != 0 || footer.chunk >= guard->start ||
        guard->start - footer.chunk >= CHUNK_BYTES || footer.index >= CHUNK_BYTES / stack_bytes ||
        guard->start - footer.chunk <= vm_bytes + footer.index * stack_bytes)
        return 0;
    header = guard->start - footer.chunk - vm_bytes - footer.index * stack_bytes;
    return header <= CHUNK_HEADER_PAGES * page ? footer.chunk : 0;
}

void memscope_stacks_claim_migrating(const struct memscope_search *search, size_t vm_bytes, size_t machine_bytes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uintptr_t claimed = 0;

    for (size_t index = 0; vm_bytes > 0 && index < search->mappings->count; index++) {
        const struct memscope_mapping *mapping = &search->mappings->list[index];
        uintptr_t chunk;

        if (mapping->start < claimed || !is_guard(mapping, page))
            continue;
        chunk = chunk_of(mapping, page, vm_bytes, machine_bytes, search->memory);
        if (chunk == 0)
            continue;
        claimed = chunk + CHUNK_BYTES;
        memscope_claims_add(search->claims, chunk, claimed, MEMSCOPE_ROW_threads, 0);
    }
}

/*
 * Returns true if there is a guard page at index with an unclaimed stack right above it. The kernel may have merged the
 * topmost stack of a pool with the mapping above.
 */
static bool is_fiber_stack(const struct memscope_mappings *mappings, size_t index, size_t page, size_t fiber_bytes,
                           const struct memscope_claims *claims) {
    const struct memscope_mapping *guard = &mappings->list[index], *stack = guard + 1;
    size_t claim;

    if (index + 1 >= mappings->count || !is_guard(guard, page) || stack->start != guard->end ||
        !memscope_mapping_is_data(stack) || stack->end - stack->start < fiber_bytes)
        return false;
    claim = memscope_claims_position(claims, stack->start);
    return claim == claims->settled || claims->list[claim].start >= stack->start + fiber_bytes;
}

void memscope_stacks_claim_fibers(const struct memscope_search *search, size_t fiber_bytes,
                                  struct memscope_stack_counts *counts) {
    const struct memscope_mappings *mappings = search->mappings;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    for (size_t index = 0; fiber_bytes > 0 && index < mappings->count;) {
        size_t pairs = 0;

        while (is_fiber_stack(mappings, index + 2 * pairs, page, fiber_bytes, search->claims) &&
               (pairs == 0 || mappings->list[index + 2 * pairs].start == mappings->list[index + 2 * pairs - 1].end)) {
            pairs++;
            if (mappings->list[index + 2 * pairs - 1].end - mappings->list[index + 2 * pairs - 1].start > fiber_bytes)
                break;
        }
        for (size_t pair = 0; pairs > 1 && pair < pairs; pair++) {
            uintptr_t start = mappings->list[index + 2 * pair + 1].start;

            memscope_claims_add(search->claims, start, start + fiber_bytes, MEMSCOPE_ROW_fibers, 0);
        }
        counts->fiber_stacks += pairs > 1 ? pairs : 0;
        index += pairs > 0 ? 2 * pairs : 1;
    }
}
