/*
 * The live samples of the profile of objects, grouped by stack. With the GVL.
 */
#pragma once

#include "base/scratch.h"
#include "ruby/sample/object_sampler.h"
#include "sampling/object_groups.h"

/*
 * An object's bytes: its slot and the malloc memory that it reports, through the dsize functions of C extensions too
 * (held_memory.h). To be called between open, which returns false if scratch has no room, and close.
 */
bool memscope_sampled_sizes_open(struct memscope_scratch *scratch);
size_t memscope_sampled_size(const struct memscope_object_sample *sample);
void memscope_sampled_sizes_close(void);

/* Groups the samples in scratch. */
enum memscope_status memscope_sampled_objects_group(const struct memscope_object_sampler_state *state,
                                                    struct memscope_scratch *scratch,
                                                    struct memscope_object_groups *groups);
