#include "ruby/sample/sampled_objects.h"

#include "ruby/held_memory.h"

static struct sizes {
    struct memscope_held_walk walk;
    struct memscope_held_memory held;
} * sizes;

bool memscope_sampled_sizes_open(struct memscope_scratch *scratch) {
    sizes = memscope_scratch_take(scratch, sizeof *sizes);
    if (sizes != NULL)
        memscope_heap_held_open(&sizes->walk, &sizes->held);
    return sizes != NULL;
}

size_t memscope_sampled_size(const struct memscope_object_sample *sample) {
    return sample->slot_bytes + memscope_held_bytes_of(&sizes->walk, (VALUE)sample->address, sample->slot_bytes);
}

void memscope_sampled_sizes_close(void) {
    memscope_heap_held_close(&sizes->walk);
    sizes = NULL;
}

enum memscope_status memscope_sampled_objects_group(const struct memscope_object_sampler_state *state,
                                                    struct memscope_scratch *scratch,
                                                    struct memscope_object_groups *groups) {
    enum memscope_status status;

    if (!memscope_sampled_sizes_open(scratch))
        return MEMSCOPE_NO_MEMORY;
    status = memscope_object_samples_read(memscope_object_sampler_samples(), scratch, memscope_sampled_size,
                                          &state->generations, (uint32_t)state->plan.windows, state->last,
                                          1 - state->plan.unwatched, groups);
    memscope_sampled_sizes_close();
    return status;
}
