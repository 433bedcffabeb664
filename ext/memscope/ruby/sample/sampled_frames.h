/*
 * The Ruby frames (iseqs and method entries) of a malloc profile. The words of a stack refer to them by number
 * (sampled_stack.h).
 *
 * A frame is added inside malloc, and pinned until its path and label have become text, at the next postponed job or
 * reading. From then on the profile does not keep the frame alive, but recognises it by its address while it lives. Its
 * mark bit is read at the end of a mark phase, and its new address after a compaction. So a frame keeps its number,
 * unless a GC was missed: frames that had become text before the miss was noticed get new numbers when they are sampled
 * again.
 *
 * The tables have a fixed size, and only the parts in use are resident. Unless its comment says otherwise, a function
 * needs the GVL.
 */
#pragma once

#include "values.h"

/* Maps the tables, once. Returns false if there is no memory. Must come before everything below. */
bool memscope_sampled_frames_open(void);

/* Forgets everything. Call it while no thread is in memscope_sampled_frame. */
void memscope_sampled_frames_clear(void);

/*
 * Returns the number of a running frame, from 1 on, or 0 if there is no room. Runs inside malloc, in a thread that may
 * read its frames: takes no lock, allocates nothing and reads no object. `trusted`: no GC was missed, so the known
 * addresses are right.
 */
uint32_t memscope_sampled_frame(VALUE frame, bool trusted);

/* The last number given, and true if any frame up to it is not text yet. Any context. */
uint32_t memscope_sampled_frames_last(void);
bool memscope_sampled_frames_pending(void);

/* Turns the frames up to the number `last` into text. No thread may still be adding one of them. Allocates Strings. */
void memscope_sampled_frames_settle(uint32_t last);

/* Returns true if a frame has become text, and false if there was no room for it. */
bool memscope_sampled_frame_is_text(uint32_t number);

/* Path (nil if there is none) and label of a frame that is text. Allocates Strings. */
void memscope_sampled_frame_names(uint32_t number, VALUE *path, VALUE *label);

/* ---- garbage collections: while no thread is in memscope_sampled_frame ------------------------------------------- */

/*
 * Called in the mark phase: pins the frames that are not text yet or, if `everything`, all frames with a known address.
 */
void memscope_sampled_frames_mark(bool everything);

/* Returns true if many frames have become text since the last sweep of a major GC. */
bool memscope_sampled_frames_changed(void);

/* At the end of a mark phase: forgets the addresses of frames that are garbage. */
void memscope_sampled_frames_sweep(bool minor);

/* Forgets the addresses of all frames that are text. */
void memscope_sampled_frames_forget(void);

/* Returns true if numbers are scarce. No frame may be forgotten then, since its next sample would take a new number. */
bool memscope_sampled_frames_scarce(void);

/* Called when compaction has moved objects. */
void memscope_sampled_frames_move(void);

/* crowded: returns true if frames with forgotten addresses take many places. rebuild: frees these places. */
bool memscope_sampled_frames_crowded(void);
void memscope_sampled_frames_rebuild(void);

/* Resident bytes, as the kernel reports them. Needs no GVL. */
size_t memscope_sampled_frames_bytes(void);
