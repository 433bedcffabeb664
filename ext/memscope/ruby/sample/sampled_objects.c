#include "ruby/sample/sampled_objects.h"

#include "ruby/heap/heap_walk.h"
#include "ruby/held_memory.h"

static struct memscope_held_walk *walk;

static size_t bytes_of(const struct memscope_object_sample *sample) {
    return sample->slot_bytes + memscope_held_bytes_of(walk, (VALUE)sample->address, sample->slot_bytes);
}

enum memscope_status memscope_sampled_objects_group(const struct memscope_object_sampler_state *state,
                                                    struct memscope_scratch *scratch,
                                                    struct memscope_object_groups *groups) {
    struct memscope_held_memory held;
    enum memscope_status status;

    walk = memscope_scratch_take(scratch, sizeof *walk);
    if (walk == NULL)
        return MEMSCOPE_NO_MEMORY;
    memscope_heap_held_open(walk, &held);
    status =
        memscope_object_samples_read(memscope_object_sampler_samples(), scratch, bytes_of, &state->generations,
                                     (uint32_t)state->plan.windows, state->last, 1 - state->plan.unwatched, groups);
    memscope_heap_held_close(walk);
    walk = NULL;
    return status;
}
