/*
 * Who owns each object: the owner (a number) for which the thread was allocating when it made the object
 * (sampling/block_owners.h). Records every slot that is allocated, those of Ruby's internal objects too. Frees are not
 * watched: a slot that is used again gets a new owner.
 */
#ifndef MEMSCOPE_OBJECT_OWNERS_H
#define MEMSCOPE_OBJECT_OWNERS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "ruby/heap/ruby_heap.h"

struct memscope_owned_objects {
    uint64_t count, slot_bytes;
};

/*
 * Adds the hooks, if memscope_event_hooks_obstacle finds none. They are to be removed before another Ractor is created.
 * GVL held. MEMSCOPE_NO_MEMORY if the map cannot be mapped.
 */
enum memscope_status memscope_object_owners_start(void);

/* Whether allocations are watched: since the start, unless they were stopped. */
bool memscope_object_owners_watched(void);

/* Removes the hooks. GVL held, outside of hooks. */
void memscope_object_owners_stop(void);

/*
 * Adds every occupied slot of the listing to its owner's entry in `owned`, which has MEMSCOPE_OWNER_LIMIT entries.
 * Gives the descriptions of the heap's pages to MEMSCOPE_OWNER_RUBY. The sums are right only if no object has moved
 * since the start. Caller holds the GVL, and no collection is under way.
 */
void memscope_object_owners_sum(const struct memscope_heap_listing *listing, struct memscope_owned_objects *owned);

/* How many objects count for no owner, since the map had no room for their addresses. */
uint64_t memscope_objects_without_room(void);

#endif
