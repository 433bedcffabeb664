/*
 * Memory that Ruby maps: heap pages (also empty and unlisted ones), the transient heap of Ruby 3.1 and 3.2, and shape
 * tables. The binding supplies the running Ruby's layout, which is matched against memory here.
 */
#pragma once

#include "ledger/claims.h"

/* A GC heap page: header, slot_count slots of slot_bytes each from start + slots_offset on, and an unused tail. */
struct memscope_heap_page {
    uintptr_t start;
    uint32_t slots_offset;
    uint32_t slot_bytes;
    uint32_t slot_count;
    uint32_t live_count;
};

#define MEMSCOPE_LANDMARKS 8

struct memscope_ruby_layout {
    const struct memscope_heap_page *heap_pages; /* pages with objects, in any order */
    size_t heap_page_count;                      /* 0 if pages could not be listed */
    size_t heap_page_bytes;                      /* size and alignment of a heap page, 0 if this Ruby's GC has none */
    uintptr_t landmarks[MEMSCOPE_LANDMARKS];     /* heap pages of objects that always exist, some may be equal */
    size_t empty_page_count;                     /* pages without objects, as Ruby counts them */
    size_t allocated_page_count;                 /* pages with and without objects, as Ruby counts them */
    size_t fiber_stack_bytes;                    /* size of a pooled stack without guard page, 0 if unknown */
    size_t thread_vm_bytes; /* VM stack of an M:N thread (Ruby 3.3 and newer), 0 if this Ruby has none */
    size_t thread_machine_bytes;
    size_t transient_heap_bytes; /* size of its only mapping, 0 if this Ruby has no transient heap */
    size_t transient_block_bytes;
    uintptr_t shape_list;     /* address of the shape list, 0 if unknown */
    size_t shape_list_bytes;  /* 0 if this Ruby has none */
    size_t shape_cache_bytes; /* size of the cache, which Ruby maps next, usually below the list */
    bool jit;                 /* a JIT is on and owns anonymous executable memory */
};

struct memscope_ruby_regions {
    uint64_t empty_pages_found; /* if pages were listed */
    uint64_t whole_pages_found; /* pages of any kind, if pages were not listed */
    bool transient_heap_found;
};

/* Claims the heap pages that hold objects. A claim's item is the index into layout->heap_pages. */
void memscope_ruby_claim_heap_pages(const struct memscope_ruby_layout *layout, struct memscope_claims *claims);

/*
 * Claims heap pages that are not listed: aligned blocks that point to a page descriptor which points back to them. If
 * pages were listed, these are the empty pages, searched for only if Ruby counts some. If none could be listed, these
 * are all pages, claimed as whole pages. Costs one or two small reads for each unclaimed, aligned, resident block.
 */
void memscope_ruby_claim_unlisted_pages(const struct memscope_ruby_layout *layout, const struct memscope_search *search,
                                        struct memscope_ruby_regions *regions);

/*
 * Claims the shape tables. Finds the list by its address, or else by its exact size and the cache's pointer into it.
 * Finds the cache by its place below the list or its exact size, and in either case by that pointer. Claims the
 * transient heap, by its chain of blocks, if it has a mapping of its own.
 */
void memscope_ruby_claim_known_internals(const struct memscope_ruby_layout *layout,
                                         const struct memscope_search *search, struct memscope_ruby_regions *regions);

/* Claims the transient heap wherever it is, unless it was found already. */
void memscope_ruby_claim_transient_heap(const struct memscope_ruby_layout *layout, const struct memscope_search *search,
                                        struct memscope_ruby_regions *regions);
