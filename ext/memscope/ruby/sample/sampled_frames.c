#include "ruby/sample/sampled_frames.h"

#include "base/protections.h"
#include "base/scratch.h"
#include "ruby/ruby_private.h"
#include "ruby/sample/frame_texts.h"

#include <stdatomic.h>

#define NUMBERS (1u << 19)
#define SLOTS (1u << 16)
#define LISTED (SLOTS / 2) /* maximum of frames in `slots` */
#define CROWDED (LISTED / 8)
#define PROBES 256

static struct frames {
    _Atomic(uint32_t) slots[SLOTS];   /* numbers by address, 0 if none */
    _Atomic(uint32_t) listed[LISTED]; /* the numbers in slots, without gaps */
    _Atomic(VALUE) frames[NUMBERS];   /* by number, from 1 on, 0 if the address was forgotten */
    uint32_t texts[NUMBERS];
    bool old[NUMBERS]; /* as of the last sweep */
    atomic_uint listed_count, last;
    atomic_uint settled; /* frames up to this one are text */
    uint32_t forgotten;  /* number of listed frames with a forgotten address */
    uint32_t changed;    /* frames that have become text since the last sweep of a major GC */
    struct memscope_counted_texts table;
} * all;

bool memscope_sampled_frames_open(void) {
    if (!all)
        all = memscope_lasting_map(sizeof *all);
    return all != NULL;
}

void memscope_sampled_frames_clear(void) {
    memscope_lasting_empty(all, sizeof *all);
    memscope_texts_begin(&all->table);
}

size_t memscope_sampled_frames_bytes(void) {
    return memscope_lasting_resident_bytes(all, sizeof *all);
}

/* ---- inside malloc ----------------------------------------------------------------------------------------------- */

static uint32_t home_of(VALUE frame) {
    return (uint32_t)((uint64_t)frame * UINT64_C(0x9E3779B97F4A7C15) >> 48);
}

/* Gives a frame a number, 0 if there is no room. Stores the frame before the number is listed. */
static uint32_t add(VALUE frame) {
    unsigned place, number;

    if (atomic_load(&all->listed_count) >= LISTED || atomic_load(&all->last) >= NUMBERS - 1)
        return 0;
    place = atomic_fetch_add(&all->listed_count, 1);
    if (place >= LISTED)
        return 0;
    number = atomic_fetch_add(&all->last, 1) + 1;
    if (number >= NUMBERS)
        return 0;
    atomic_store(&all->frames[number], frame);
    atomic_store(&all->listed[place], number);
    return number;
}

/* If another thread adds the same frame concurrently, one of the two numbers stays unused. */
uint32_t memscope_sampled_frame(VALUE frame, bool trusted) {
    uint32_t slot = home_of(frame), added = 0, unknown = trusted ? 0 : atomic_load(&all->settled);

    for (int probe = 0; probe < PROBES; probe++, slot = (slot + 1) & (SLOTS - 1)) {
        uint32_t found = atomic_load_explicit(&all->slots[slot], memory_order_acquire);

        if (found == 0 && added == 0 && (added = add(frame)) == 0)
            return 0;
        if (found == 0 && atomic_compare_exchange_strong(&all->slots[slot], &found, added))
            return added;
        if (found > unknown && atomic_load(&all->frames[found]) == frame)
            return found;
    }
    return 0;
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

uint32_t memscope_sampled_frames_last(void) {
    uint32_t last = atomic_load(&all->last);

    return last < NUMBERS ? last : NUMBERS - 1;
}

bool memscope_sampled_frames_pending(void) {
    return memscope_sampled_frames_last() > atomic_load(&all->settled);
}

/* A frame is 0 if the process was forked while another thread was adding it. */
static VALUE find_texts(VALUE last) {
    for (uint32_t number = atomic_load(&all->settled) + 1; number <= (uint32_t)last; number++) {
        VALUE frame = atomic_load(&all->frames[number]);

        if (frame != 0 && all->texts[number] == 0)
            all->texts[number] = memscope_frame_text_add(&all->table, frame);
    }
    return Qnil;
}

void memscope_sampled_frames_settle(uint32_t last) {
    int error = 0;

    if (last <= atomic_load(&all->settled))
        return;
    rb_protect(find_texts, (VALUE)last, &error);
    if (error)
        rb_set_errinfo(Qnil); /* NoMemoryError: some frames have no text */
    all->changed += last - atomic_load(&all->settled);
    atomic_store(&all->settled, last);
}

bool memscope_sampled_frame_is_text(uint32_t number) {
    return number < NUMBERS && all->texts[number] != 0 && all->texts[number] != MEMSCOPE_NO_ROOM;
}

void memscope_sampled_frame_names(uint32_t number, VALUE *path, VALUE *label) {
    memscope_frame_text_read(&all->table, all->texts[number], path, label);
}

/* ---- garbage collections ----------------------------------------------------------------------------------------- */

static uint32_t listed_count(void) {
    uint32_t count = atomic_load(&all->listed_count);

    return count < LISTED ? count : LISTED;
}

static void pin(uint32_t number) {
    VALUE frame = atomic_load(&all->frames[number]);

    if (frame && PROTECTS(pinning))
        rb_gc_mark(frame);
    else if (frame)
        rb_gc_mark_movable(frame);
}

void memscope_sampled_frames_mark(bool everything) {
    uint32_t last = memscope_sampled_frames_last(), count = everything ? listed_count() : 0;

    if (!PROTECTS(marking))
        return;
    for (uint32_t number = atomic_load(&all->settled) + 1; number <= last; number++)
        pin(number);
    for (uint32_t index = 0; index < count; index++)
        pin(atomic_load(&all->listed[index]));
}

static void forget(uint32_t number) {
    atomic_store(&all->frames[number], 0);
    all->forgotten++;
}

/* The frame with this number if it is text and its address is known, otherwise 0. */
static VALUE weak_frame(uint32_t number) {
    return number <= atomic_load(&all->settled) ? atomic_load(&all->frames[number]) : 0;
}

bool memscope_sampled_frames_changed(void) {
    uint32_t known = (listed_count() - all->forgotten) / 16;

    return all->changed > (known > 32 ? known : 32);
}

/* A minor GC frees no old object, and an old frame stays old up to the next major GC. */
void memscope_sampled_frames_sweep(bool minor) {
    uint32_t count = listed_count();

    if (!minor)
        all->changed = 0;
    for (uint32_t index = 0; index < count; index++) {
        uint32_t number = atomic_load(&all->listed[index]);
        VALUE frame = weak_frame(number);

        if (frame == 0 || (minor && all->old[number]))
            continue;
        if (memscope_object_is_marked(frame))
            all->old[number] = MEMSCOPE_IS_OLD(frame);
        else
            forget(number);
    }
}

void memscope_sampled_frames_forget(void) {
    uint32_t count = listed_count();

    for (uint32_t index = 0; index < count; index++) {
        uint32_t number = atomic_load(&all->listed[index]);

        if (weak_frame(number) != 0)
            forget(number);
    }
}

bool memscope_sampled_frames_scarce(void) {
    return atomic_load(&all->last) > NUMBERS / 2;
}

bool memscope_sampled_frames_crowded(void) {
    return all->forgotten >= CROWDED;
}

void memscope_sampled_frames_rebuild(void) {
    uint32_t count = listed_count(), kept = 0;

    memset((void *)all->slots, 0, sizeof all->slots);
    for (uint32_t index = 0; index < count; index++) {
        uint32_t number = atomic_load(&all->listed[index]);
        VALUE frame = atomic_load(&all->frames[number]);
        uint32_t slot = home_of(frame);

        atomic_store(&all->listed[index], 0);
        if (frame == 0)
            continue;
        while (atomic_load(&all->slots[slot]) != 0)
            slot = (slot + 1) & (SLOTS - 1);
        atomic_store(&all->slots[slot], number);
        atomic_store(&all->listed[kept++], number);
    }
    atomic_store(&all->listed_count, kept);
    all->forgotten = 0;
}

void memscope_sampled_frames_move(void) {
    uint32_t count = listed_count();

    for (uint32_t index = 0; index < count; index++) {
        uint32_t number = atomic_load(&all->listed[index]);
        VALUE frame = atomic_load(&all->frames[number]);

        if (frame != 0)
            atomic_store(&all->frames[number], rb_gc_location(frame));
    }
    memscope_sampled_frames_rebuild();
}
