#include "ruby/sample/object_owners.h"

#include "base/address_map.h"
#include "ruby/ruby_private.h"
#include "ruby/sample/event_hooks.h"
#include "sampling/block_owners.h"

static struct memscope_address_map *owners;
static bool watching;

/* The object is not complete, and nothing may be allocated. */
static void on_allocation(VALUE data, rb_trace_arg_t *trace) {
    if (watching)
        memscope_address_map_set(owners, (uintptr_t)rb_tracearg_object(trace), memscope_owner());
}

/*
 * Before Ruby 3.3, the elements of young Arrays and the like move from the transient heap to malloc in a collection, or
 * in a job after it, which runs in whichever file is being loaded: the owner of the moved elements is unknown.
 * Collections do not nest, and run in one thread.
 */
static void on_gc(VALUE data, rb_trace_arg_t *trace) {
    static __thread uint32_t before;

    if (!watching)
        return;
    if (rb_tracearg_event_flag(trace) == RUBY_INTERNAL_EVENT_GC_ENTER)
        before = memscope_owner_set(MEMSCOPE_OWNER_RUBY);
    else if (memscope_owner() == MEMSCOPE_OWNER_RUBY)
        memscope_owner_set(before);
}

enum memscope_status memscope_object_owners_start(void) {
    owners = owners ? owners : memscope_address_map_create();
    if (!owners)
        return MEMSCOPE_NO_MEMORY;
    watching = memscope_event_hook_add(on_allocation, RUBY_INTERNAL_EVENT_NEWOBJ) &&
               memscope_event_hook_add(on_gc, RUBY_INTERNAL_EVENT_GC_ENTER | RUBY_INTERNAL_EVENT_GC_EXIT);
    return MEMSCOPE_OK;
}

bool memscope_object_owners_watched(void) {
    return watching && memscope_event_hook_is_there(on_allocation);
}

void memscope_object_owners_stop(void) {
    watching = false;
    memscope_event_hook_remove(on_allocation);
    memscope_event_hook_remove(on_gc);
}

void memscope_object_owners_sum(const struct memscope_heap_listing *listing, struct memscope_owned_objects *owned) {
    for (size_t index = 0; index < listing->count; index++) {
        const struct memscope_heap_page *page = &listing->pages[index];
        uintptr_t slot = page->start + page->slots_offset;

        /* A block of malloc. */
        memscope_owner_give((uintptr_t)memscope_header_of_page(page->start), MEMSCOPE_OWNER_RUBY);
        for (uint32_t left = page->slot_count; left > 0; left--, slot += page->slot_bytes) {
            struct memscope_owned_objects *owner;

            if (RB_BUILTIN_TYPE((VALUE)slot) == RUBY_T_NONE)
                continue;
            owner = &owned[memscope_address_map_get(owners, slot)];
            owner->count++;
            owner->slot_bytes += page->slot_bytes;
        }
    }
}

uint64_t memscope_objects_without_room(void) {
    return owners ? atomic_load(&owners->lost) : 0;
}
