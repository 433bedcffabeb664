#include "ruby/heap/mark_bits.h"

#include "ruby/ruby_private.h"

#include <stddef.h>

#define WITNESSES 1024
#define ENOUGH 256 /* agreements of each kind */
#define KINDS 3    /* of enum memscope_object_age */
#define CHECKED_OF 251

static enum { UNPROVEN, PROVEN, REFUSED } state = MEMSCOPE_KNOWS_MARK_BITS ? UNPROVEN : REFUSED;

/* Offsets of the bitmaps in struct heap_page, in bytes. */
static struct places {
    uintptr_t within; /* mask: the bits of an address that are its offset in the heap page */
    size_t start, marked, uncollectible;
} places;

/* The witnesses. `kept` is an Array, or nil. Nothing refers to the dropped witnesses, so the next GC frees them. */
static VALUE kept = Qnil;
static uintptr_t dropped[WITNESSES];
static uint32_t dropped_count, agreed[KINDS];

static uint32_t unchecked; /* answers since the last comparison */

/* ---- the bitmaps ------------------------------------------------------------------------------------------------- */

static const char *page_of(uintptr_t object) {
    return *(const char *const *)(object & ~places.within);
}

static uintptr_t bit_number(uintptr_t object) {
    return (object & places.within) / MEMSCOPE_BYTES_OF_MARK_BIT;
}

static const uint64_t *word_of(uintptr_t object, size_t bitmap) {
    return (const uint64_t *)(const void *)(page_of(object) + bitmap) + bit_number(object) / 64;
}

static bool bit_of(uintptr_t object, size_t bitmap) {
    return (*word_of(object, bitmap) >> bit_number(object) % 64 & 1) != 0;
}

static enum memscope_object_age age_in_bits(uintptr_t object) {
    if (!bit_of(object, places.marked))
        return MEMSCOPE_OBJECT_DEAD;
    return bit_of(object, places.uncollectible) ? MEMSCOPE_OBJECT_OLD : MEMSCOPE_OBJECT_YOUNG;
}

static enum memscope_object_age age_by_ruby(uintptr_t object) {
    if (!memscope_object_is_marked(object))
        return MEMSCOPE_OBJECT_DEAD;
    return memscope_object_is_uncollectible(object) ? MEMSCOPE_OBJECT_OLD : MEMSCOPE_OBJECT_YOUNG;
}

/* The first call of each interns its IDs, which allocates. age_by_ruby calls the second only for marked objects. */
static void intern_flags(void) {
    memscope_object_is_marked(rb_cObject);
    memscope_object_is_uncollectible(rb_cObject);
}

/* ---- proof of the bitmaps ---------------------------------------------------------------------------------------- */

static void refuse(void) {
    state = REFUSED;
    kept = Qnil;
    dropped_count = 0;
}

/* Sets `places`. False unless the sizes are those of a non-debug Ruby whose garbage collector has heap pages. */
static bool find_places(void) {
    size_t page = memscope_gc_constant("HEAP_PAGE_SIZE");
    size_t bitmap = memscope_gc_constant("HEAP_PAGE_BITMAP_SIZE");
    size_t base = memscope_gc_constant("BASE_SLOT_SIZE"), bits;

    bits = (page + MEMSCOPE_BYTES_OF_MARK_BIT - 1) / MEMSCOPE_BYTES_OF_MARK_BIT;
    if (page == 0 || (page & (page - 1)) != 0 || bitmap != (bits + 63) / 64 * 8 || memscope_gc_constant("DEBUG") != 0 ||
        memscope_gc_constant("RVALUE_OVERHEAD") != 0)
        return false;
    if ((base != 0 ? base : memscope_gc_constant("RVALUE_SIZE")) != MEMSCOPE_BYTES_OF_MARK_BIT)
        return false;
    places = (struct places){
        .within = page - 1,
        .start = MEMSCOPE_PAGE_START_AT,
        .marked = MEMSCOPE_PAGE_BITMAPS_AT + bitmap, /* the second bitmap */
        .uncollectible = MEMSCOPE_PAGE_BITMAPS_AT + 2 * bitmap,
    };
    return true;
}

/* Returns true if `start` in the object's struct heap_page is an address on the object's page. */
static bool knows_page(uintptr_t object) {
    uintptr_t start = *(const uintptr_t *)(const void *)(page_of(object) + places.start);

    return start <= object && (start & ~places.within) == (object & ~places.within);
}

static void compare(uintptr_t object) {
    enum memscope_object_age age = age_by_ruby(object);

    if (knows_page(object) && age_in_bits(object) == age)
        agreed[age]++;
    else
        refuse();
}

bool memscope_mark_bits_compare(void) {
    while (state == UNPROVEN && dropped_count > 0)
        compare(dropped[--dropped_count]);
    for (long index = 0; state == UNPROVEN && !NIL_P(kept) && index < RARRAY_LEN(kept); index++)
        compare(RARRAY_AREF(kept, index));
    if (state == UNPROVEN && agreed[MEMSCOPE_OBJECT_DEAD] >= ENOUGH && agreed[MEMSCOPE_OBJECT_YOUNG] >= ENOUGH &&
        agreed[MEMSCOPE_OBJECT_OLD] >= ENOUGH) {
        state = PROVEN;
        kept = Qnil;
    }
    return state == PROVEN;
}

/* ---- witnesses --------------------------------------------------------------------------------------------------- */

/* A hidden Array, which Ruby code cannot find. Every eighth has a slot of another size. */
static VALUE new_witness(uint32_t number) {
    return rb_obj_hide(rb_ary_new_capa(number % 8 == 0 ? number / 8 % 64 : 0));
}

/* A GC during the loop compares the witnesses made so far, and may refuse the bitmaps. */
static void make_witnesses(void) {
    VALUE list = rb_obj_hide(rb_ary_new_capa(WITNESSES));
    uint64_t random = 1;

    kept = list;
    for (uint32_t number = 0; number < WITNESSES && state == UNPROVEN; number++) {
        VALUE witness = new_witness(number);

        random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        if (random >> 63)
            rb_ary_push(list, witness);
        else
            dropped[dropped_count++] = witness;
    }
    RB_GC_GUARD(list);
}

void memscope_mark_bits_begin(void) {
    static bool registered;

    memscope_mark_bits_end();
    if (state != UNPROVEN)
        return;
    intern_flags();
    if (!find_places()) {
        refuse();
        return;
    }
    if (!registered)
        rb_gc_register_address(&kept);
    registered = true;
    make_witnesses();
}

/*
 * Forgets the dropped witnesses, which a GC may have freed by now. If too few of them have agreed, drops the kept ones
 * too.
 */
void memscope_mark_bits_unseen(void) {
    dropped_count = 0;
    if (agreed[MEMSCOPE_OBJECT_DEAD] < ENOUGH)
        kept = Qnil;
}

void memscope_mark_bits_end(void) {
    memscope_mark_bits_unseen();
    kept = Qnil;
    for (int kind = 0; kind < KINDS; kind++)
        agreed[kind] = 0;
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

bool memscope_mark_bits_proven(void) {
    return state == PROVEN;
}

enum memscope_object_age memscope_mark_bits_age(uintptr_t object) {
    enum memscope_object_age age;

    if (state == PROVEN && ++unchecked < CHECKED_OF)
        return age_in_bits(object);
    age = age_by_ruby(object);
    unchecked = 0;
    if (state == PROVEN && age_in_bits(object) != age)
        refuse();
    return age;
}

void memscope_mark_bits_fetch(uintptr_t object) {
    __builtin_prefetch(word_of(object, places.marked));
    __builtin_prefetch(word_of(object, places.uncollectible));
}
