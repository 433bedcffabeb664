/*
 * Native.open_black_box, write_black_box, close_black_box, black_box: the box of this process. Native.read_black_box:
 * any box.
 *
 * The box is used under the GVL, and by one thread at a time without it: the one that writes. Others do not wait for a
 * write that the disk delays, and write nothing.
 */
#include "base/descriptors.h"
#include "base/scratch.h"
#include "bindings/history_rings.h"
#include "bindings/reasons.h"
#include "box/black_box.h"
#include "init.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include <sys/stat.h>

static const char *const slot_names[] = {
#define SLOT(name, kib) #name,
#include "box/box_slots.def"
};

static struct {
    struct memscope_box box;
    pid_t owner; /* 0 without a box */
    bool writing;
    uint64_t begun_ns; /* of the last write */
    uint64_t written_at;
    enum memscope_status status; /* of the last write */
    unsigned unwritten;          /* a bit for each slot whose last write failed */
    char path[PATH_MAX];
} own;

static uint64_t milliseconds(void) {
    return memscope_clock_ns(CLOCK_REALTIME) / 1000000;
}

/* A forked child has no box. An atfork handler has closed the descriptor there. */
static bool has_box(void) {
    if (own.owner != getpid())
        own.owner = 0;
    return own.owner != 0;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static VALUE unwritten(void) {
    if (own.box.lost)
        return memscope_reason_of("black_box_lost", rb_utf8_str_new_cstr(own.path));
    return memscope_reason_of("black_box_unwritten", rb_utf8_str_new_cstr(own.path),
                              rb_utf8_str_new_cstr(strerror(own.box.error)));
}

static VALUE stalled(void) {
    return memscope_reason_of("black_box_stalled", rb_utf8_str_new_cstr(own.path),
                              ULL2NUM((memscope_now_ns() - own.begun_ns) / 1000000000));
}

static void write_out(void *unused) {
    unsigned slot = 1U << own.box.slot;

    own.status = memscope_box_write(&own.box);
    own.unwritten = own.status == MEMSCOPE_OK ? own.unwritten & ~slot : own.unwritten | slot;
    if (own.status == MEMSCOPE_OK)
        own.written_at = milliseconds();
}

static VALUE write_without_gvl(VALUE unused) {
    memscope_without_gvl(write_out, NULL);
    return Qnil;
}

static VALUE end_write(VALUE unused) {
    own.writing = false;
    return Qnil;
}

static void write_prepared(void) {
    own.writing = true;
    own.begun_ns = memscope_now_ns();
    rb_ensure(write_without_gvl, Qnil, end_write, Qnil);
}

void memscope_black_box_add(const struct memscope_rings *rings) {
    if (!has_box() || own.writing)
        return;
    memscope_box_prepare_rings(&own.box, milliseconds(), rings);
    write_prepared();
}

/* Native.open_black_box(path) -> true, or the reason for no box. Replaces the box that this process had. */
VALUE native_open_black_box(VALUE self, VALUE path) {
    const char *name = StringValueCStr(path);

    if (has_box() && own.writing)
        return stalled();
    if (has_box())
        memscope_box_close(&own.box);
    own.owner = 0;
    if (strlen(name) >= sizeof own.path)
        return memscope_status_reason(MEMSCOPE_TRUNCATED);
    memcpy(own.path, name, strlen(name) + 1);
    own.status = memscope_box_create(&own.box, name);
    if (own.status != MEMSCOPE_OK)
        return unwritten();
    own.owner = getpid();
    own.writing = false;
    own.written_at = 0;
    own.unwritten = 0;
    return Qtrue;
}

/*
 * Native.write_black_box(slot, text) -> true, false without a box, or the reason why the text was not written: then the
 * box still has the one before.
 */
VALUE native_write_black_box(VALUE self, VALUE slot, VALUE text) {
    size_t number = 0;

    StringValue(text);
    while (number < MEMSCOPE_BOX_SLOTS && memscope_symbol(slot_names[number]) != slot)
        number++;
    if (!has_box())
        return Qfalse;
    if (own.writing)
        return stalled();
    if (number == MEMSCOPE_BOX_SLOTS || number == MEMSCOPE_BOX_rings)
        return memscope_status_reason(MEMSCOPE_NOT_FOUND);
    if (memscope_box_prepare(&own.box, (enum memscope_box_slot)number, milliseconds(),
                             (struct memscope_text){RSTRING_PTR(text), (size_t)RSTRING_LEN(text)}) != MEMSCOPE_OK)
        return memscope_status_reason(MEMSCOPE_TRUNCATED);
    write_prepared();
    return own.status == MEMSCOPE_OK ? Qtrue : unwritten();
}

/* Native.close_black_box: the file stays. */
VALUE native_close_black_box(VALUE self) {
    if (has_box() && !own.writing) {
        memscope_box_close(&own.box);
        own.owner = 0;
    }
    return Qnil;
}

/*
 * Native.black_box -> {path:, bytes:, in_memory:, written_at:, reason:}, or nil. The reason stays until all parts that
 * it kept from the box have been written again.
 */
VALUE native_black_box(VALUE self) {
    if (!has_box())
        return Qnil;
    return memscope_hash_of({"path", rb_utf8_str_new_cstr(own.path)}, {"bytes", ULL2NUM(memscope_box_bytes())},
                            {"in_memory", own.box.in_memory ? Qtrue : Qfalse},
                            {"written_at", own.written_at == 0 ? Qnil : ULL2NUM(own.written_at)},
                            {"reason", own.writing     ? stalled()
                                       : own.unwritten ? unwritten()
                                                       : Qnil});
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

struct reading {
    const char *path;
    struct memscope_scratch scratch;
    struct memscope_box_contents contents;
    enum memscope_status status;
    bool not_private;
};

/* A regular file of this user, which no other user can write or read. Root reads any user's. */
static bool is_private(int descriptor) {
    struct stat file;

    return fstat(descriptor, &file) == 0 && S_ISREG(file.st_mode) && (file.st_mode & 077) == 0 &&
           (file.st_uid == geteuid() || geteuid() == 0);
}

static enum memscope_status read_bytes(struct reading *reading, int descriptor) {
    size_t limit = memscope_box_bytes(), size = 0;
    char *bytes = memscope_scratch_take(&reading->scratch, limit);
    void *room = memscope_scratch_take(&reading->scratch, memscope_rings_bytes());
    ssize_t part;

    if (bytes == NULL || room == NULL)
        return MEMSCOPE_NO_MEMORY;
    while (size < limit && (part = pread(descriptor, bytes + size, limit - size, (off_t)size)) > 0)
        size += (size_t)part;
    return memscope_box_parse(bytes, size, room, &reading->contents);
}

static void read_box(void *argument) {
    struct reading *reading = argument;
    int descriptor = memscope_descriptor_open(reading->path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);

    if (descriptor < 0) {
        reading->status = memscope_status_of_errno(errno);
        return;
    }
    reading->not_private = !is_private(descriptor);
    reading->status = reading->not_private ? MEMSCOPE_DENIED : read_bytes(reading, descriptor);
    memscope_descriptor_close(descriptor);
}

static VALUE slots_to_hash(const struct memscope_box_contents *contents) {
    VALUE hash = rb_hash_new();

    for (size_t slot = MEMSCOPE_BOX_rings + 1; slot < MEMSCOPE_BOX_SLOTS; slot++) {
        VALUE text = memscope_text_value(contents->slots[slot].text);

        if (!NIL_P(text))
            memscope_hash_set(hash, slot_names[slot],
                              memscope_hash_of({"at", ULL2NUM(contents->slots[slot].at)}, {"text", text}));
    }
    return hash;
}

static VALUE contents_to_hash(VALUE argument) {
    struct reading *reading = (struct reading *)argument;
    const struct memscope_box_contents *contents = &reading->contents;
    uint64_t written_at = 0;

    memscope_without_gvl(read_box, reading);
    if (reading->status == MEMSCOPE_UNSUPPORTED)
        return memscope_reason("black_box_of_another_version");
    if (reading->not_private)
        return memscope_reason("black_box_not_private");
    if (reading->status != MEMSCOPE_OK)
        return memscope_status_reason(reading->status);
    for (size_t slot = 0; slot < MEMSCOPE_BOX_SLOTS; slot++)
        if (contents->slots[slot].at > written_at)
            written_at = contents->slots[slot].at;
    return memscope_hash_of({"written_at", written_at == 0 ? Qnil : ULL2NUM(written_at)},
                            {"slots", slots_to_hash(contents)},
                            {"history", memscope_history_of(contents->rings, &contents->slots[MEMSCOPE_BOX_rings].at)});
}

static VALUE close_reading(VALUE argument) {
    memscope_scratch_close(&((struct reading *)argument)->scratch);
    return Qnil;
}

/*
 * Native.read_black_box(path) -> {written_at:, slots: {name: {at:, text:}}, history:}, or a reason. Texts are tagged as
 * UTF-8, whatever their bytes. history: as Native.history, without reasons and cost; nil without a sample.
 */
VALUE native_read_black_box(VALUE self, VALUE path) {
    struct reading reading = {.path = StringValueCStr(path)};
    enum memscope_status status = memscope_scratch_open(&reading.scratch);
    VALUE result;

    if (status != MEMSCOPE_OK)
        return memscope_status_reason(status);
    result = rb_ensure(contents_to_hash, (VALUE)&reading, close_reading, (VALUE)&reading);
    RB_GC_GUARD(path);
    return result;
}
