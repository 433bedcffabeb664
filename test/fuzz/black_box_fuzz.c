/*
 * Whatever a box says: its texts lie in it, and its rings can be read. Half of the inputs are a box in which the input
 * says which bytes are different, with the checksums put right, so that they get past those. One in 32 of these has
 * rings, which take most of the time.
 */
#include "box/box_layout.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const char *bytes, size_t size, struct memscope_rings *room) {
    static struct memscope_rings_point points[MEMSCOPE_RINGS_MAX_POINTS];
    struct memscope_rings_event events[MEMSCOPE_RINGS_EVENTS];
    struct memscope_box_contents contents;
    uint64_t start;

    if (memscope_box_parse(bytes, size, room, &contents) != MEMSCOPE_OK)
        return;
    for (size_t slot = 0; slot < MEMSCOPE_BOX_SLOTS; slot++) {
        struct memscope_text text = contents.slots[slot].text;

        if (text.start != NULL && (text.start < bytes || text.start + text.length > bytes + size))
            abort();
    }
    if (contents.rings == NULL)
        return;
    memscope_rings_read_events(contents.rings, events);
    for (int ring = 0; ring < MEMSCOPE_RING_COUNT; ring++)
        for (size_t series = 0; series < MEMSCOPE_HISTORY_SERIES; series += 11)
            if (memscope_rings_read(contents.rings, (enum memscope_ring)ring, series, 0, points, &start) >
                memscope_ring_shapes[ring].buckets)
                abort();
    memset(room, 0, memscope_rings_bytes());
}

/*
 * The input is a sequence of patches: an offset of 3 bytes, a length, and the bytes. With a template, they are replaced
 * by its own.
 */
static void patch(char *bytes, const char *template, const uint8_t *data, size_t size) {
    while (size >= 4) {
        size_t offset = (data[0] | (size_t)data[1] << 8 | (size_t)data[2] << 16) % MEMSCOPE_BOX_BYTES;
        size_t length = data[3];

        data += 4;
        size -= 4;
        length = length < size ? length : size;
        length = length < MEMSCOPE_BOX_BYTES - offset ? length : MEMSCOPE_BOX_BYTES - offset;
        memcpy(bytes + offset, template == NULL ? (const char *)data : template + offset, length);
        data += length;
        size -= length;
    }
}

static void seal(char *bytes, size_t offset, size_t length) {
    uint64_t sum = memscope_box_checksum(offset, bytes + offset + sizeof sum, length - sizeof sum);

    memcpy(bytes + offset, &sum, sizeof sum);
}

static void seal_all(char *bytes, int has_rings) {
    struct memscope_box_heading heading = memscope_box_heading_now();

    memcpy(bytes, &heading, sizeof heading);
    for (int slot = 0; slot < MEMSCOPE_BOX_SLOTS; slot++)
        for (unsigned number = 0; number < 2; number++) {
            size_t offset = memscope_box_half_offset((enum memscope_box_slot)slot, number);
            struct memscope_box_half half;

            memcpy(&half, bytes + offset, sizeof half);
            if (half.length <= memscope_box_half_bytes((enum memscope_box_slot)slot) - sizeof half)
                seal(bytes, offset, sizeof half + half.length);
        }
    for (size_t place = 0; has_rings && place < MEMSCOPE_RINGS_PLACES; place += 29)
        seal(bytes, MEMSCOPE_BOX_BUCKETS_START + place * sizeof(struct memscope_box_bucket),
             sizeof(struct memscope_box_bucket));
}

/* A sample at 70,000 seconds. */
static void put_rings(char *bytes) {
    static struct memscope_box box;
    struct memscope_rings *rings = memscope_rings_map(memscope_history_units, MEMSCOPE_HISTORY_SERIES);
    uint64_t values[MEMSCOPE_HISTORY_SERIES] = {0};

    memscope_rings_mark(rings, 60000, 0);
    memscope_rings_add(rings, 70000, values);
    memscope_box_prepare_rings(&box, 1, rings);
    memcpy(bytes + memscope_box_half_offset(MEMSCOPE_BOX_rings, 1), box.part, box.prepared);
}

static void check_patched(int has_rings, const uint8_t *data, size_t size, struct memscope_rings *room) {
    static char templates[2][MEMSCOPE_BOX_BYTES];
    static char *boxes[2];

    if (boxes[1] == NULL) {
        put_rings(templates[1]);
        for (int i = 0; i < 2; i++) {
            boxes[i] = malloc(MEMSCOPE_BOX_BYTES);
            memcpy(boxes[i], templates[i], MEMSCOPE_BOX_BYTES);
        }
    }
    patch(boxes[has_rings], NULL, data, size);
    seal_all(boxes[has_rings], has_rings);
    check(boxes[has_rings], MEMSCOPE_BOX_BYTES, room);
    patch(boxes[has_rings], templates[has_rings], data, size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct memscope_rings *room;

    if (room == NULL)
        room = calloc(1, memscope_rings_bytes());
    if (size > 0 && data[0] % 2 == 0) {
        char *copy = malloc(size - 1);

        memcpy(copy, data + 1, size - 1);
        check(copy, size - 1, room);
        free(copy);
    } else if (size > 0) {
        check_patched(data[0] / 2 % 32 == 0, data + 1, size - 1, room);
    }
    return 0;
}
