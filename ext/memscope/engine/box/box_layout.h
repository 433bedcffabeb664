/*
 * The layout of a box, in this machine's byte order: a heading, the slots, and a copy of each bucket of the history's
 * rings. Each part carries a checksum, which also covers its position. A slot has two halves, which are written by
 * turns, so that a kill during a write leaves the text before.
 */
#pragma once

#include "box/black_box.h"
#include "trend/history.h"

struct memscope_box_heading {
    char magic[16];
    uint64_t layout; /* differs for boxes with other slots or series */
    uint64_t size;   /* of the file */
};

/* Before the bytes of a half: a text, or the newest buckets and the state of the rings. */
struct memscope_box_half {
    uint64_t checksum; /* of all that follows */
    uint64_t sequence; /* from 1, of both halves: the larger one is newer */
    uint64_t at;       /* milliseconds since 1970 */
    uint64_t length;   /* of the bytes */
};

struct memscope_box_bucket {
    uint64_t checksum;
    struct memscope_rings_placed placed;
};

/* The slots, each with its two halves. */
struct memscope_box_halves {
#define SLOT(name, kib) char name[2][(size_t)(kib)*1024];
#include "box/box_slots.def"
};

enum {
    MEMSCOPE_BOX_SLOTS_START = 4096,
    MEMSCOPE_BOX_BUCKETS_START = MEMSCOPE_BOX_SLOTS_START + sizeof(struct memscope_box_halves),
    MEMSCOPE_BOX_BYTES = MEMSCOPE_BOX_BUCKETS_START + MEMSCOPE_RINGS_PLACES * sizeof(struct memscope_box_bucket),
};

struct memscope_box_heading memscope_box_heading_now(void);

/* Bytes of one half of a slot, and its offset in the file. */
size_t memscope_box_half_bytes(enum memscope_box_slot slot);
size_t memscope_box_half_offset(enum memscope_box_slot slot, unsigned half);

/* The checksum of the bytes after it, at this offset of the file. */
uint64_t memscope_box_checksum(uint64_t offset, const void *bytes, size_t size);
