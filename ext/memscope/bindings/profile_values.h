/* Frames and estimates of a malloc or object profile, as Ruby values. Needs the GVL. Allocates objects. */
#pragma once

#include "values.h"

#include "ruby/sample/object_sampler.h"
#include "sampling/sampled_stack.h"

/* `name`: a function of the object file `library`, which may be nil, or an address. */
VALUE memscope_native_frame(VALUE name, VALUE library);

VALUE memscope_state_frame(enum memscope_stack_state state);

/*
 * With line 0, the frame has neither line nor path: a thread's outermost frame, or a frame of an extension being
 * loaded.
 */
VALUE memscope_ruby_frame(VALUE name, VALUE path, uint32_t line);

/* Set its list and numbers to an empty Array and an empty Hash, and frame_of. */
struct memscope_profile_frames {
    VALUE list, numbers; /* a Hash for each frame, and the index in the list by word and by such a Hash */
    VALUE (*frame_of)(uint64_t word, void *context);
    void *context;
};

/* The index of a word's frame, which frame_of makes if the word is new. Words may have the same frame. */
VALUE memscope_number_of_frame(struct memscope_profile_frames *frames, uint64_t word);

/* An estimate, rounded as it is shown, 0 if it is negative. */
uint64_t memscope_rounded(double value);
VALUE memscope_estimate(double value);

/* Calls memscope_object_sampler_settle, and keeps the reason if that ended the profile. */
void memscope_object_profile_settle(void);

/* The reason why the profile of objects has ended without being stopped, or nil. */
VALUE memscope_object_profile_end(void);

/* Sets the reasons for lost samples and, under the key `objects`, for objects that no sample stands for. */
void memscope_set_sampling_reasons(VALUE reasons, const char *objects,
                                   const struct memscope_object_sampler_state *state);
