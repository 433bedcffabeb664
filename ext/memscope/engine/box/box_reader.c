#include "box/black_box.h"

#include "box/box_layout.h"

#include <string.h>

/* Milliseconds since 1970, later than any time of a machine. */
#define MAX_TIME (UINT64_C(1) << 50)

struct reader {
    const char *bytes;
    size_t size;
};

/* Copies a part, which need not be aligned. Returns false if the file ends before its end. */
static bool take(const struct reader *reader, size_t offset, void *part, size_t size) {
    if (offset > reader->size || size > reader->size - offset)
        return false;
    memcpy(part, reader->bytes + offset, size);
    return true;
}

/* Returns true if this half of the slot is whole. */
static bool take_half(const struct reader *reader, enum memscope_box_slot slot, unsigned number,
                      struct memscope_box_half *half, struct memscope_text *text) {
    size_t offset = memscope_box_half_offset(slot, number), start = offset + sizeof *half;
    size_t checked = offset + sizeof half->checksum;

    if (!take(reader, offset, half, sizeof *half) || half->sequence == 0 || half->at > MAX_TIME ||
        half->length > memscope_box_half_bytes(slot) - sizeof *half || half->length > reader->size - start)
        return false;
    *text = (struct memscope_text){reader->bytes + start, half->length};
    return half->checksum == memscope_box_checksum(offset, reader->bytes + checked, start - checked + half->length);
}

static void read_slot(const struct reader *reader, enum memscope_box_slot slot,
                      struct memscope_box_contents *contents) {
    uint64_t newest = 0;

    for (unsigned number = 0; number < 2; number++) {
        struct memscope_box_half half;
        struct memscope_text text;

        if (!take_half(reader, slot, number, &half, &text) || half.sequence <= newest)
            continue;
        newest = half.sequence;
        contents->slots[slot].at = half.at;
        contents->slots[slot].text = text;
    }
}

static void put_buckets(const struct reader *reader, struct memscope_rings *rings) {
    for (size_t place = 0; place < MEMSCOPE_RINGS_PLACES; place++) {
        struct memscope_box_bucket bucket;
        size_t offset = MEMSCOPE_BOX_BUCKETS_START + place * sizeof bucket;

        if (take(reader, offset, &bucket, sizeof bucket) && bucket.placed.place == place &&
            bucket.checksum == memscope_box_checksum(offset, &bucket.placed, sizeof bucket.placed))
            memscope_rings_put(rings, &bucket.placed);
    }
}

static void read_rings(const struct reader *reader, struct memscope_rings *room,
                       struct memscope_box_contents *contents) {
    struct memscope_text text = contents->slots[MEMSCOPE_BOX_rings].text;
    struct memscope_rings_placed newest[MEMSCOPE_RING_COUNT];

    if (text.start == NULL || text.length != sizeof newest + MEMSCOPE_RINGS_STATE ||
        memscope_rings_restore(room, memscope_history_units, MEMSCOPE_HISTORY_SERIES, text.start + sizeof newest) !=
            MEMSCOPE_OK)
        return;
    memcpy(newest, text.start, sizeof newest);
    put_buckets(reader, room);
    for (int ring = 0; ring < MEMSCOPE_RING_COUNT; ring++)
        memscope_rings_put(room, &newest[ring]);
    contents->rings = room;
}

size_t memscope_box_bytes(void) {
    return MEMSCOPE_BOX_BYTES;
}

enum memscope_status memscope_box_parse(const char *bytes, size_t size, struct memscope_rings *room,
                                        struct memscope_box_contents *contents) {
    const struct reader reader = {bytes, size};
    struct memscope_box_heading heading, ours = memscope_box_heading_now();

    *contents = (struct memscope_box_contents){0};
    if (!take(&reader, 0, &heading, sizeof heading) || memcmp(heading.magic, ours.magic, sizeof heading.magic) != 0)
        return MEMSCOPE_MALFORMED;
    if (heading.layout != ours.layout || heading.size != ours.size)
        return MEMSCOPE_UNSUPPORTED;
    for (int slot = 0; slot < MEMSCOPE_BOX_SLOTS; slot++)
        read_slot(&reader, (enum memscope_box_slot)slot, contents);
    read_rings(&reader, room, contents);
    return MEMSCOPE_OK;
}
