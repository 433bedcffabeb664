/*
 * Records each object's owner, a number: the owner for which its thread was allocating (sampling/block_owners.h).
 * Covers every allocated slot, also of Ruby's internal objects. Does not watch frees: a reused slot gets a new owner.
 */
#pragma once

#include "base/status.h"
#include "ruby/heap/ruby_heap.h"

struct memscope_owned_objects {
    uint64_t count, slot_bytes;
};

/*
 * Adds the hooks, if memscope_event_hooks_obstacle finds none. Remove them before another Ractor is created. Caller
 * holds the GVL. Returns MEMSCOPE_NO_MEMORY if the map cannot be mapped.
 */
enum memscope_status memscope_object_owners_start(void);

/* Returns true from start to stop, unless the hooks were removed because of a Ractor. */
bool memscope_object_owners_watched(void);

/* Removes the hooks. Caller holds the GVL, outside of hooks. */
void memscope_object_owners_stop(void);

/*
 * Adds every occupied slot of the listing to its owner's entry in `owned`, which has MEMSCOPE_OWNER_LIMIT entries.
 * Gives the descriptions of the heap's pages to MEMSCOPE_OWNER_RUBY. The sums are right only if no object has moved
 * since the start. Caller holds the GVL, and no collection is under way.
 */
void memscope_object_owners_sum(const struct memscope_heap_listing *listing, struct memscope_owned_objects *owned);

/* The number of objects without an owner, for whose addresses the map had no room. */
uint64_t memscope_objects_without_room(void);
