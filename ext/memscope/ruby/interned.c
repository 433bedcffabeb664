#include "ruby/interned.h"

#include "base/protections.h"
#include "base/scratch.h"
#include "ruby/stack_reader.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

/* ---- frames ------------------------------------------------------------------------------------------------------ */

#define FRAME_SLOTS (1u << 16)
#define FRAME_LIMIT (FRAME_SLOTS / 2)
#define PROBES 256

/*
 * Frames (iseqs and method entries) by address, found and added without a lock. They are pinned, since a stack keeps
 * only their index. 786 kB of address space, resident only where used.
 */
static struct frames {
    _Atomic(VALUE) slots[FRAME_SLOTS];
    _Atomic(VALUE) dense[FRAME_LIMIT]; /* the same frames without gaps, for marking */
    atomic_uint count;
} * frames;

/*
 * Stores the frame in `dense`, which the GC marks, before it stores it in a slot, so that every frame in a slot is
 * marked. If another thread interns the same frame meanwhile, `dense` keeps a harmless duplicate.
 */
uint32_t memscope_intern_frame(VALUE frame) {
    uint32_t slot = (uint32_t)((uint64_t)frame * UINT64_C(0x9E3779B97F4A7C15) >> 48);
    unsigned place = FRAME_LIMIT;

    for (int probe = 0; probe < PROBES; probe++, slot = (slot + 1) & (FRAME_SLOTS - 1)) {
        VALUE found = atomic_load_explicit(&frames->slots[slot], memory_order_acquire);

        if (found == 0 && place == FRAME_LIMIT && atomic_load(&frames->count) < FRAME_LIMIT) {
            place = atomic_fetch_add(&frames->count, 1);
            if (place < FRAME_LIMIT)
                atomic_store(&frames->dense[place], frame);
        }
        if (found == 0 && place >= FRAME_LIMIT)
            return 0;
        if (found == 0 && atomic_compare_exchange_strong(&frames->slots[slot], &found, frame))
            return slot + 1;
        if (found == frame)
            return slot + 1;
    }
    return 0;
}

VALUE memscope_interned_frame(uint64_t word) {
    uint32_t index = memscope_word_index(word);
    VALUE frame = index == 0 || index > FRAME_SLOTS ? 0 : atomic_load(&frames->slots[index - 1]);

    return frame ? frame : Qnil;
}

size_t memscope_interned_frames_capacity(void) {
    return sizeof *frames;
}

void memscope_mark_interned_frames(void) {
    unsigned count = PROTECTS(marking) ? atomic_load(&frames->count) : 0;

    for (unsigned index = 0; index < count && index < FRAME_LIMIT; index++) {
        VALUE frame = atomic_load(&frames->dense[index]);

        if (frame && PROTECTS(pinning))
            rb_gc_mark(frame);
        else if (frame)
            rb_gc_mark_movable(frame);
    }
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

#define NAME_LIMIT 4096
#define NAME_BYTES 64

/* An entry is published when its length is stored in state, and never changes afterwards. */
struct name {
    atomic_uint state; /* 0: free; 1: being written; else 2 + length of text */
    char text[NAME_BYTES];
};

/*
 * Tags stay, because fibers keep their indexes. Thread names last for one profile only, because a process may keep
 * making new ones. Like the profile's frames, they are interned between begin_reading and end_reading (stack_reader.c).
 */
static struct name *tag_names, *thread_names;

static bool map_names(struct name **names) {
    if (!*names)
        *names = memscope_lasting_map(NAME_LIMIT * sizeof **names);
    return *names != NULL;
}

#define NO_ROOM (NAME_LIMIT + 1)

static uint32_t intern_name(struct name *names, const char *text, size_t length) {
    uint32_t hash = 2166136261u;

    length = length < NAME_BYTES ? length : NAME_BYTES;
    for (size_t index = 0; index < length; index++)
        hash = (hash ^ (unsigned char)text[index]) * 16777619u;
    for (uint32_t probe = 0; probe < 64; probe++) {
        uint32_t slot = (hash + probe) % NAME_LIMIT;
        unsigned state = atomic_load_explicit(&names[slot].state, memory_order_acquire), unused = 0;

        if (state == 0 && atomic_compare_exchange_strong(&names[slot].state, &unused, 1)) {
            memcpy(names[slot].text, text, length);
            atomic_store_explicit(&names[slot].state, 2 + (unsigned)length, memory_order_release);
            return slot + 1;
        }
        if (state == 2 + length && memcmp(names[slot].text, text, length) == 0)
            return slot + 1;
    }
    return NO_ROOM;
}

uint32_t memscope_intern_thread_name(const char *text, size_t length) {
    return intern_name(thread_names, text, length);
}

uint32_t memscope_intern_tag(const char *text, size_t length) {
    return map_names(&tag_names) ? intern_name(tag_names, text, length) : 0;
}

VALUE memscope_interned_name(uint64_t word) {
    const struct name *names = memscope_word_kind(word) == MEMSCOPE_WORD_TAG ? tag_names : thread_names;
    uint32_t index = memscope_word_index(word);
    unsigned state = index == 0 || index > NAME_LIMIT ? 0 : atomic_load(&names[index - 1].state);

    if (index == NO_ROOM)
        return rb_utf8_str_new_cstr("[overflow]");
    return state < 2 ? Qnil : rb_utf8_str_new(names[index - 1].text, state - 2);
}

/* ---- both -------------------------------------------------------------------------------------------------------- */

bool memscope_interned_open(void) {
    if (!frames)
        frames = memscope_lasting_map(sizeof *frames);
    return frames && map_names(&tag_names) && map_names(&thread_names);
}

size_t memscope_interned_bytes(void) {
    return memscope_lasting_resident_bytes(frames, sizeof *frames) +
           memscope_lasting_resident_bytes(tag_names, NAME_LIMIT * sizeof *tag_names) +
           memscope_lasting_resident_bytes(thread_names, NAME_LIMIT * sizeof *thread_names);
}

/* MADV_DONTNEED fails on locked pages (mlockall). */
static void empty(void *table, size_t bytes) {
    if (madvise(table, bytes, MADV_DONTNEED) != 0)
        memset(table, 0, bytes);
}

void memscope_empty_interned(void) {
    empty(frames, sizeof *frames);
    empty(thread_names, NAME_LIMIT * sizeof *thread_names);
}
