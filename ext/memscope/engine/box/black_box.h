/*
 * The black box: a file that a process writes, so that its last minutes can be read after a SIGKILL. It has the rings
 * of the process's history, and a text in each of some slots.
 *
 * The file has a fixed size, which is reserved on the disk if the file system can do so. It is written by pwrite: a
 * mapping would raise SIGBUS in this process if another one truncates the file. One thread at a time may use a box. No
 * function allocates, or needs the GVL. A write may block as long as the disk does.
 */
#pragma once

#include "base/status.h"
#include "base/text.h"
#include "trend/rings.h"

enum memscope_box_slot {
#define SLOT(name, kib) MEMSCOPE_BOX_##name,
#include "box/box_slots.def"
    MEMSCOPE_BOX_SLOTS,
};

#define MEMSCOPE_BOX_MAX_PART 24576 /* bytes of a half of the largest slot */

struct memscope_box {
    int descriptor;
    int error;      /* the errno of the last failure */
    bool lost;      /* another process has deleted or truncated the file */
    bool in_memory; /* on tmpfs, whose files count in the memory of the container */
    uint64_t sequences[MEMSCOPE_BOX_SLOTS];
    struct memscope_rings_placed written[MEMSCOPE_RING_COUNT]; /* the newest buckets in the file */
    enum memscope_box_slot slot;                               /* the prepared part, with its heading */
    size_t prepared;
    char part[MEMSCOPE_BOX_MAX_PART];
};

/*
 * Makes the file, with mode 0600. Follows no link, and replaces no file. A child forked afterwards does not inherit the
 * descriptor (base/descriptors.h). On failure no file remains, and box->error says why.
 */
enum memscope_status memscope_box_create(struct memscope_box *box, const char *path);

/*
 * Prepares a text for memscope_box_write. `at`: milliseconds since 1970. Returns MEMSCOPE_TRUNCATED, and prepares
 * nothing, if the slot has no room for it.
 */
enum memscope_status memscope_box_prepare(struct memscope_box *box, enum memscope_box_slot slot, uint64_t at,
                                          struct memscope_text text);

/* Prepares the rings, which may be used again when it returns. */
void memscope_box_prepare_rings(struct memscope_box *box, uint64_t at, const struct memscope_rings *rings);

/*
 * Writes the prepared part. If that fails, the file still has the part before. Writes nothing, and returns
 * MEMSCOPE_TRUNCATED, if the box is lost.
 */
enum memscope_status memscope_box_write(struct memscope_box *box);

void memscope_box_close(struct memscope_box *box);

/* ---- reading ----------------------------------------------------------------------------------------------------- */

struct memscope_box_contents {
    struct {
        uint64_t at; /* milliseconds since 1970 */
        struct memscope_text text;
    } slots[MEMSCOPE_BOX_SLOTS];  /* no text: nothing whole was written */
    struct memscope_rings *rings; /* NULL without a sample */
};

/* Bytes of a box, and of the room that memscope_box_parse needs, aligned for uint64_t and zeroed. */
size_t memscope_box_bytes(void);

/*
 * Takes a box apart, whatever its bytes are: nothing in them is trusted. Texts stay in `bytes`, and the rings are built
 * in `room`. Returns MEMSCOPE_MALFORMED for anything but a box, MEMSCOPE_UNSUPPORTED for one that another version of
 * memscope has written. A box that was truncated has the parts before its end.
 */
enum memscope_status memscope_box_parse(const char *bytes, size_t size, struct memscope_rings *room,
                                        struct memscope_box_contents *contents);
