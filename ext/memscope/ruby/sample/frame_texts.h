/*
 * Ruby frames (iseqs and method entries) as text: path and label, so that a sample need not keep its frames alive. The
 * text of a frame is remembered for as long as the frame lives.
 */
#pragma once

#include "sampling/counted_texts.h"

#include <ruby.h>
#include <stdbool.h>

/*
 * The path of a frame's file, or nil if it has none (methods written in C), and its label. With the GVL. Allocates
 * Strings.
 */
void memscope_frame_names(VALUE frame, VALUE *path, VALUE *label);

/*
 * Returns the frame's text, with a reference for the caller, or MEMSCOPE_NO_ROOM. With the GVL. Allocates Strings, and
 * may raise NoMemoryError.
 */
uint32_t memscope_frame_text_add(struct memscope_counted_texts *texts, VALUE frame);

#define MEMSCOPE_FRAME_TEXTS_LIMIT (160 << 10) /* maximum bytes of the table of known frames */

/* Maps the table of known frames, once. Returns false if there is no memory. */
bool memscope_frame_texts_open(void);

/* Forgets all frames. Texts are stored in `texts`, which the caller owns. */
void memscope_frame_texts_begin(struct memscope_counted_texts *texts);

/*
 * Returns the frame's text, or MEMSCOPE_NO_ROOM. The caller gets no reference: the table of known frames has one, at
 * least until the next call. With the GVL. Allocates Strings for an unknown frame, and may raise NoMemoryError.
 */
uint32_t memscope_frame_text(VALUE frame);

/*
 * The path (nil if there is none) and the label of a frame's text. The label is "" if the text was cut within the path.
 * With the GVL. Allocates Strings.
 */
void memscope_frame_text_read(const struct memscope_counted_texts *texts, uint32_t text, VALUE *path, VALUE *label);

/* Called at the end of a mark phase: forgets frames that are garbage. */
void memscope_frame_texts_sweep(bool minor);

/* Called when a GC was missed: forgets all frames, since any of them may be garbage. */
void memscope_frame_texts_forget(void);

/* Called when objects have moved. */
void memscope_frame_texts_move(void);

size_t memscope_frame_texts_bytes(void);
