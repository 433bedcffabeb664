#include "ruby/sample/interned.h"

#include "base/scratch.h"
#include "ruby/sample/stack_reader.h"
#include "sampling/tag_allocations.h"

#include <stdatomic.h>
#include <string.h>

#define NAME_LIMIT 4096
#define NAME_BYTES 64

/* An entry is published when its length is stored in state, and never changes afterwards. */
struct name {
    atomic_uint state; /* 0 if free, 1 while being written, else 2 + length of text */
    char text[NAME_BYTES];
};

/*
 * Tags stay, because fibers keep their indexes. Thread names last for one profile only, because a process may keep
 * making new ones. They are interned between begin_reading and end_reading (stack_reader.c).
 */
static struct name *tag_names, *thread_names;

static bool map_names(struct name **names) {
    if (!*names)
        *names = memscope_lasting_map(NAME_LIMIT * sizeof **names);
    return *names != NULL;
}

#define NO_ROOM (NAME_LIMIT + 1)

_Static_assert(NO_ROOM + 1 == MEMSCOPE_TAGS, "an index for no tag, for each name, and for names without room");

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

bool memscope_interned_open(void) {
    return map_names(&tag_names) && map_names(&thread_names);
}

size_t memscope_interned_bytes(void) {
    return memscope_lasting_resident_bytes(tag_names, NAME_LIMIT * sizeof *tag_names) +
           memscope_lasting_resident_bytes(thread_names, NAME_LIMIT * sizeof *thread_names);
}

void memscope_empty_interned(void) {
    memscope_lasting_empty(thread_names, NAME_LIMIT * sizeof *thread_names);
}
