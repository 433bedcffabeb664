/*
 * The Ruby frames (iseqs and method entries) of a malloc profile, known to the words of its stacks by number
 * (sampled_stack.h).
 *
 * A frame comes in inside malloc, and is pinned until its path and label have become text: at the next postponed job
 * or reading. From then on the profile does not keep it alive. Its address tells it apart for as long as it lives: the
 * mark bits at the end of a mark phase say how long, and compaction says where it is. So a frame has one number, unless
 * a garbage collection was missed: then the frames that are text by then get other numbers.
 *
 * Tables of fixed size, resident where used. Unless its comment says otherwise, a function needs the GVL.
 */
#ifndef MEMSCOPE_SAMPLED_FRAMES_H
#define MEMSCOPE_SAMPLED_FRAMES_H

#include "values.h"

#include <stdbool.h>

/* Maps the tables, once; false if there is no memory. Must come before everything below. */
bool memscope_sampled_frames_open(void);

/* Forgets everything. While no thread is in memscope_sampled_frame. */
void memscope_sampled_frames_clear(void);

/*
 * Runs inside malloc, in a thread that may read its frames, without a lock, an allocation or access to an object. The
 * number of a frame that is running, from 1 on, or 0 if there is no room. `trusted`: whether no garbage collection was
 * missed.
 */
uint32_t memscope_sampled_frame(VALUE frame, bool trusted);

/* The last number that was given, and whether frames up to it have still to become text. Any context. */
uint32_t memscope_sampled_frames_last(void);
bool memscope_sampled_frames_pending(void);

/* Makes the frames up to this one text, all of which are complete. Allocates Strings. */
void memscope_sampled_frames_settle(uint32_t last);

/* Whether a frame's text has found room. */
bool memscope_sampled_frame_is_text(uint32_t number);

/* Path (nil if there is none) and label of such a frame. Allocates Strings. */
void memscope_sampled_frame_names(uint32_t number, VALUE *path, VALUE *label);

/* ---- garbage collections: while no thread is in memscope_sampled_frame ------------------------------------------- */

/* Pins the frames that are not text yet, or all whose addresses are known. While the GC marks. */
void memscope_sampled_frames_mark(bool everything);

/* Whether many frames have become text since the last sweep of a major GC. */
bool memscope_sampled_frames_changed(void);

/* At the end of a mark phase: forgets the addresses of frames that are garbage. */
void memscope_sampled_frames_sweep(bool minor);

/* Forgets the addresses of all frames that are text. */
void memscope_sampled_frames_forget(void);

/* Whether so many numbers have been given that those of frames must not be forgotten any more. */
bool memscope_sampled_frames_scarce(void);

/* When objects have moved. */
void memscope_sampled_frames_move(void);

/* Frees the places of frames whose addresses are forgotten, if they are many. */
bool memscope_sampled_frames_crowded(void);
void memscope_sampled_frames_rebuild(void);

/* Resident bytes, as the kernel reports them. Needs no GVL. */
size_t memscope_sampled_frames_bytes(void);

#endif
