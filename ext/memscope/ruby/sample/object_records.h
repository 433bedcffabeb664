/*
 * The allocation hook's record of each sample, until a postponed job turns it into text: frames with their lines, and
 * the thread's name. One table of fixed size for the process, inherited by forked children.
 *
 * Everything here needs the GVL, in the main Ractor.
 */
#pragma once

#include "sampling/object_samples.h"

#include <ruby.h>

#define MEMSCOPE_OBJECT_RECORDS 640 /* a window has 400 samples on average, or fewer */

/* Maximum bytes of the table. */
#define MEMSCOPE_OBJECT_RECORDS_LIMIT (256 << 10)

/* Maps the table, once in a process. False if the kernel refuses. */
bool memscope_object_records_open(void);

void memscope_object_records_clear(void);

/*
 * Records the running frames. Returns the number for the sample's `pending`, or 0 if the table is full. Works within
 * the hook: allocates nothing. The frames are alive, since they are running. From the next mark phase on,
 * memscope_object_records_mark pins them.
 */
uint16_t memscope_object_record(void);

bool memscope_object_records_any(void);

/*
 * Turns frames into text. Call it outside hooks only: it allocates Strings, so a GC may run, which drops and moves
 * samples. Hence the samples are settled in a step of their own.
 */
void memscope_object_records_find_texts(struct memscope_object_samples *samples);

/* Gives each sample its stack, its class and its thread, and empties the table. Allocates nothing. */
void memscope_object_records_settle(struct memscope_object_samples *samples);

/* Within a mark phase: pins the frames. */
void memscope_object_records_mark(void);

/* Called in compaction: updates frames, since those recorded after the mark phase are not pinned. */
void memscope_object_records_move(void);

size_t memscope_object_records_bytes(void);
