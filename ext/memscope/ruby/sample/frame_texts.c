#include "ruby/sample/frame_texts.h"

#include "base/scratch.h"
#include "ruby/ruby_private.h"

#include <ruby/debug.h>

#define KNOWN_FRAMES 8192

struct known_frame {
    VALUE frame;
    uint32_t text;
    bool old;
};

/* A direct-mapped cache: a frame's address determines its place, where a later frame replaces it. */
static struct known {
    struct known_frame list[KNOWN_FRAMES];
    uint16_t places[KNOWN_FRAMES]; /* index in list + 1, 0 if none */
    uint32_t count;
    bool trimmed; /* since the last mark phase */
} * known;

_Static_assert(sizeof *known <= MEMSCOPE_FRAME_TEXTS_LIMIT, "of the table of known frames");

static struct memscope_counted_texts *all_texts;

void memscope_frame_names(VALUE frame, VALUE *path, VALUE *label) {
    *path = rb_profile_frame_absolute_path(frame);
    if (NIL_P(*path))
        *path = rb_profile_frame_path(frame);
    if (!RB_TYPE_P(*path, T_STRING) || rb_str_equal(*path, rb_utf8_str_new_cstr("<cfunc>")))
        *path = Qnil;
    *label = rb_profile_frame_full_label(frame);
}

/* ---- a text: the length of the path (NO_PATH: none) in two bytes, the path, the label --------------------------- */

#define HEAD sizeof(uint16_t)
#define NO_PATH UINT16_MAX

uint32_t memscope_frame_text_add(struct memscope_counted_texts *texts, VALUE frame) {
    VALUE path, label;
    char bytes[MEMSCOPE_TEXT_LIMIT];
    uint16_t path_length = NO_PATH;
    size_t length = HEAD, part;

    memscope_frame_names(frame, &path, &label);
    if (!NIL_P(path)) {
        path_length = (uint16_t)(RSTRING_LEN(path) < (long)(sizeof bytes - HEAD) ? (size_t)RSTRING_LEN(path)
                                                                                 : sizeof bytes - HEAD);
        memcpy(bytes + HEAD, RSTRING_PTR(path), path_length);
        length += path_length;
    }
    memcpy(bytes, &path_length, HEAD);
    if (RB_TYPE_P(label, T_STRING)) {
        part = (size_t)RSTRING_LEN(label) < sizeof bytes - length ? (size_t)RSTRING_LEN(label) : sizeof bytes - length;
        memcpy(bytes + length, RSTRING_PTR(label), part);
        length += part;
    }
    RB_GC_GUARD(path);
    RB_GC_GUARD(label);
    return memscope_text_add(texts, bytes, length);
}

void memscope_frame_text_read(const struct memscope_counted_texts *texts, uint32_t text, VALUE *path, VALUE *label) {
    char bytes[MEMSCOPE_TEXT_LIMIT];
    size_t length = memscope_text_copy(texts, text, bytes), start = HEAD;
    uint16_t path_length;

    memcpy(&path_length, bytes, HEAD);
    *path = Qnil;
    if (path_length != NO_PATH) {
        *path = rb_utf8_str_new(bytes + HEAD, path_length);
        start += path_length;
    }
    *label = rb_utf8_str_new(bytes + start, (long)(length - start));
}

/* ---- known frames ------------------------------------------------------------------------------------------------ */

static uint16_t *place_of(VALUE frame) {
    return &known->places[((uint64_t)frame * UINT64_C(0x9E3779B97F4A7C15) >> 40) & (KNOWN_FRAMES - 1)];
}

/* The last frame takes the place of the forgotten one in the list. */
static void forget(uint32_t index) {
    struct known_frame *frame = &known->list[index];

    memscope_text_release(all_texts, frame->text);
    *place_of(frame->frame) = 0;
    *frame = known->list[--known->count];
    if (index < known->count)
        *place_of(frame->frame) = (uint16_t)(index + 1);
}

static void remember(VALUE frame, uint32_t text) {
    uint16_t *place = place_of(frame);

    if (*place != 0)
        forget(*place - 1u);
    known->list[known->count++] = (struct known_frame){.frame = frame, .text = text};
    *place = (uint16_t)known->count;
}

bool memscope_frame_texts_open(void) {
    if (!known)
        known = memscope_lasting_map(sizeof *known);
    return known != NULL;
}

void memscope_frame_texts_begin(struct memscope_counted_texts *texts) {
    memset(known, 0, sizeof *known);
    all_texts = texts;
}

/*
 * Makes room: forgets the frames whose texts have no other user. At most once between two mark phases, since samples,
 * which use texts, are dropped at the end of a mark phase.
 */
static bool trim(void) {
    uint32_t before = known->count;

    if (known->trimmed)
        return false;
    known->trimmed = true;
    for (uint32_t index = known->count; index-- > 0;)
        if (memscope_text_users(all_texts, known->list[index].text) == 1)
            forget(index);
    return known->count < before;
}

uint32_t memscope_frame_text(VALUE frame) {
    uint16_t place = *place_of(frame);
    uint32_t text;

    if (place != 0 && known->list[place - 1].frame == frame)
        return known->list[place - 1].text;
    text = memscope_frame_text_add(all_texts, frame); /* may run a GC, which may forget frames */
    if (text == MEMSCOPE_NO_ROOM && trim())
        text = memscope_frame_text_add(all_texts, frame);
    if (text != MEMSCOPE_NO_ROOM)
        remember(frame, text);
    return text;
}

/* Goes from last to first: a frame that fills a gap has been visited already. A minor GC frees no old frame. */
void memscope_frame_texts_sweep(bool minor) {
    known->trimmed = false;
    for (uint32_t index = known->count; index-- > 0;) {
        struct known_frame *frame = &known->list[index];

        if (minor && frame->old)
            continue;
        if (memscope_object_is_marked(frame->frame))
            frame->old = MEMSCOPE_IS_OLD(frame->frame);
        else
            forget(index);
    }
}

void memscope_frame_texts_forget(void) {
    while (known->count > 0)
        forget(known->count - 1);
}

void memscope_frame_texts_move(void) {
    uint32_t count = known->count;

    memset(known->places, 0, sizeof known->places);
    known->count = 0;
    for (uint32_t index = 0; index < count; index++) {
        struct known_frame frame = known->list[index];
        bool old = frame.old;

        remember(rb_gc_location(frame.frame), frame.text);
        known->list[known->count - 1].old = old;
    }
}

size_t memscope_frame_texts_bytes(void) {
    return memscope_lasting_resident_bytes(known, sizeof *known);
}
