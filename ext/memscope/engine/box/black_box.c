#include "box/black_box.h"

#include "base/descriptors.h"
#include "base/keyed_hash.h"
#include "box/box_layout.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#define TMPFS 0x01021994 /* statfs(2) */

static const struct {
    const char *name;
    size_t offset, half_bytes;
} slots[MEMSCOPE_BOX_SLOTS] = {
#define SLOT(name, kib) {#name, offsetof(struct memscope_box_halves, name), (size_t)(kib)*1024},
#include "box/box_slots.def"
};

_Static_assert(MEMSCOPE_BOX_BYTES <= 1 << 20, "a box has at most a mebibyte");
#define SLOT(name, kib) _Static_assert((kib)*1024 <= MEMSCOPE_BOX_MAX_PART, "room to prepare " #name);
#include "box/box_slots.def"

/* ---- the layout -------------------------------------------------------------------------------------------------- */

uint64_t memscope_box_checksum(uint64_t offset, const void *bytes, size_t size) {
    const struct memscope_hash_key key = {{offset, UINT64_C(0x786f62)}};

    return memscope_keyed_hash(&key, bytes, size);
}

/* Of the names of series, and of the names and sizes of slots, in their order. */
static uint64_t layout(void) {
    uint64_t hash = MEMSCOPE_BOX_BYTES;

    for (size_t series = 0; series < MEMSCOPE_HISTORY_SERIES; series++)
        hash = memscope_box_checksum(hash, memscope_history_names[series], strlen(memscope_history_names[series]));
    for (size_t slot = 0; slot < MEMSCOPE_BOX_SLOTS; slot++)
        hash = memscope_box_checksum(hash + slots[slot].half_bytes, slots[slot].name, strlen(slots[slot].name));
    return hash;
}

struct memscope_box_heading memscope_box_heading_now(void) {
    return (struct memscope_box_heading){.magic = "memscope box", .layout = layout(), .size = MEMSCOPE_BOX_BYTES};
}

size_t memscope_box_half_bytes(enum memscope_box_slot slot) {
    return slots[slot].half_bytes;
}

size_t memscope_box_half_offset(enum memscope_box_slot slot, unsigned half) {
    return MEMSCOPE_BOX_SLOTS_START + slots[slot].offset + half * slots[slot].half_bytes;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static enum memscope_status failed(struct memscope_box *box, int error) {
    box->error = error;
    return memscope_status_of_errno(error);
}

/* A write that is cut short, as by a full disk, is an error. */
static enum memscope_status put(struct memscope_box *box, const void *bytes, size_t size, size_t offset) {
    ssize_t written;

    do
        written = pwrite(box->descriptor, bytes, size, (off_t)offset);
    while (written < 0 && errno == EINTR);
    if (written >= 0 && (size_t)written == size)
        return MEMSCOPE_OK;
    return failed(box, written < 0 ? errno : ENOSPC);
}

/* On tmpfs, blocks are memory, and are not reserved. Elsewhere, a file system that reserves none gets holes. */
static bool reserve(struct memscope_box *box) {
    struct statfs system;

    box->in_memory = fstatfs(box->descriptor, &system) == 0 && system.f_type == TMPFS;
    if (!box->in_memory && fallocate(box->descriptor, 0, 0, MEMSCOPE_BOX_BYTES) == 0)
        return true;
    return (box->in_memory || (errno != ENOSPC && errno != EDQUOT)) &&
           ftruncate(box->descriptor, MEMSCOPE_BOX_BYTES) == 0;
}

enum memscope_status memscope_box_create(struct memscope_box *box, const char *path) {
    const struct memscope_box_heading heading = memscope_box_heading_now();
    enum memscope_status status;

    memset(box, 0, offsetof(struct memscope_box, part));
    box->descriptor = memscope_descriptor_open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW);
    if (box->descriptor < 0)
        return failed(box, errno);
    (void)flock(box->descriptor, LOCK_EX | LOCK_NB); /* until it ends: seen in other pid namespaces too */
    status = reserve(box) ? put(box, &heading, sizeof heading, 0) : failed(box, errno);
    if (status != MEMSCOPE_OK) {
        unlink(path);
        memscope_box_close(box);
    }
    return status;
}

enum memscope_status memscope_box_prepare(struct memscope_box *box, enum memscope_box_slot slot, uint64_t at,
                                          struct memscope_text text) {
    struct memscope_box_half half = {.sequence = box->sequences[slot] + 1, .at = at, .length = text.length};

    box->prepared = 0;
    if (text.length > memscope_box_half_bytes(slot) - sizeof half)
        return MEMSCOPE_TRUNCATED;
    box->slot = slot;
    box->prepared = sizeof half + text.length;
    memcpy(box->part, &half, sizeof half);
    memcpy(box->part + sizeof half, text.start, text.length);
    return MEMSCOPE_OK;
}

void memscope_box_prepare_rings(struct memscope_box *box, uint64_t at, const struct memscope_rings *rings) {
    struct {
        struct memscope_rings_placed newest[MEMSCOPE_RING_COUNT];
        char state[MEMSCOPE_RINGS_STATE];
    } image;

    for (int ring = 0; ring < MEMSCOPE_RING_COUNT; ring++)
        image.newest[ring] = memscope_rings_newest(rings, (enum memscope_ring)ring);
    memcpy(image.state, memscope_rings_state(rings), sizeof image.state);
    memscope_box_prepare(box, MEMSCOPE_BOX_rings, at, (struct memscope_text){(const char *)&image, sizeof image});
}

/*
 * A bucket that is over moves to its own place before the part that has it is overwritten, so that one of the two is
 * whole at each moment.
 */
static enum memscope_status put_buckets(struct memscope_box *box) {
    enum memscope_status status = MEMSCOPE_OK;
    struct memscope_rings_placed newest[MEMSCOPE_RING_COUNT];

    memcpy(newest, box->part + sizeof(struct memscope_box_half), sizeof newest);
    for (int ring = 0; ring < MEMSCOPE_RING_COUNT && status == MEMSCOPE_OK; ring++) {
        struct memscope_box_bucket bucket = {.placed = box->written[ring]};
        size_t offset = MEMSCOPE_BOX_BUCKETS_START + bucket.placed.place * sizeof bucket;

        if (box->sequences[MEMSCOPE_BOX_rings] == 0 || bucket.placed.number == newest[ring].number)
            continue;
        bucket.checksum = memscope_box_checksum(offset, &bucket.placed, sizeof bucket.placed);
        status = put(box, &bucket, sizeof bucket, offset);
    }
    return status;
}

/* A write to a file that another process has deleted or truncated ends without an error, and nobody could read it. */
static bool is_whole(struct memscope_box *box) {
    struct stat file;

    return fstat(box->descriptor, &file) == 0 && file.st_nlink > 0 && file.st_size == MEMSCOPE_BOX_BYTES;
}

/* A failed write may have damaged the half, which is not the newest, and the next write goes to it again. */
enum memscope_status memscope_box_write(struct memscope_box *box) {
    size_t offset = memscope_box_half_offset(box->slot, (box->sequences[box->slot] + 1) % 2);
    uint64_t checksum;
    enum memscope_status status = MEMSCOPE_OK;

    if (box->prepared == 0)
        return MEMSCOPE_OK;
    box->lost = !is_whole(box);
    if (box->lost)
        return MEMSCOPE_TRUNCATED;
    checksum = memscope_box_checksum(offset, box->part + sizeof checksum, box->prepared - sizeof checksum);
    memcpy(box->part, &checksum, sizeof checksum);
    if (box->slot == MEMSCOPE_BOX_rings)
        status = put_buckets(box);
    if (status == MEMSCOPE_OK)
        status = put(box, box->part, box->prepared, offset);
    if (status != MEMSCOPE_OK)
        return status;
    box->sequences[box->slot]++;
    if (box->slot == MEMSCOPE_BOX_rings)
        memcpy(box->written, box->part + sizeof(struct memscope_box_half), sizeof box->written);
    return MEMSCOPE_OK;
}

void memscope_box_close(struct memscope_box *box) {
    if (box->descriptor >= 0)
        memscope_descriptor_close(box->descriptor);
    box->descriptor = -1;
}
