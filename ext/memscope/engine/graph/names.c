#include "graph/names.h"

#include "base/mapped_array.h"

#include <stdio.h>
#include <string.h>

#define FIRST_NAMES 4096 /* 16 KiB of starts, 32 KiB of table */
#define FIRST_TEXT 65536
#define LIMIT (1u << 28)

enum memscope_status memscope_names_open(struct memscope_names *names) {
    memset(names, 0, sizeof *names);
    memscope_hash_key_draw(&names->key);
    names->text = memscope_array_map(FIRST_TEXT, 1);
    names->starts = memscope_array_map(FIRST_NAMES, sizeof *names->starts);
    names->table_mask = 2 * FIRST_NAMES - 1;
    names->table = memscope_array_map((size_t)2 * FIRST_NAMES, sizeof *names->table);
    names->count = 1;
    if (names->text != NULL && names->starts != NULL && names->table != NULL)
        return MEMSCOPE_OK;
    memscope_names_close(names);
    return MEMSCOPE_NO_MEMORY;
}

void memscope_names_close(struct memscope_names *names) {
    memscope_arrays_unmap(names->text, names->starts, names->table);
    memset(names, 0, sizeof *names);
}

struct memscope_text memscope_names_get(const struct memscope_names *names, uint32_t number) {
    const uint32_t *starts = names->starts;

    if (number >= names->count)
        return memscope_text_of("");
    return (struct memscope_text){names->text + starts[number], starts[number + 1] - starts[number]};
}

/* Where the name is, or would be. */
static uint32_t *place(const struct memscope_names *names, const char *text, size_t length) {
    uint32_t at = (uint32_t)memscope_keyed_hash(&names->key, text, length) & names->table_mask;

    for (; names->table[at] != 0; at = (at + 1) & names->table_mask) {
        struct memscope_text known = memscope_names_get(names, names->table[at]);

        if (known.length == length && memcmp(known.start, text, length) == 0)
            break;
    }
    return &names->table[at];
}

static bool widen_table(struct memscope_names *names) {
    uint32_t *wider = memscope_array_map(2 * ((size_t)names->table_mask + 1), sizeof *wider);

    if (wider == NULL)
        return false;
    memscope_array_unmap(names->table);
    names->table = wider;
    names->table_mask = 2 * names->table_mask + 1;
    for (uint32_t number = 1; number < names->count; number++) {
        struct memscope_text text = memscope_names_get(names, number);

        *place(names, text.start, text.length) = number;
    }
    return true;
}

static bool make_room(struct memscope_names *names, size_t length) {
    size_t text_bytes = names->starts[names->count] + length;

    return names->count < LIMIT && text_bytes <= UINT32_MAX && MEMSCOPE_ARRAY_RESERVE(names->text, text_bytes) &&
           MEMSCOPE_ARRAY_RESERVE(names->starts, names->count + 2) &&
           (names->count <= names->table_mask / 2 || widen_table(names));
}

uint32_t memscope_names_add_composed(struct memscope_names *names, const char *before, struct memscope_text text,
                                     const char *after) {
    char name[1024];
    size_t room = sizeof name - 1 - strlen(before) - strlen(after);

    snprintf(name, sizeof name, "%s%.*s%s", before, (int)(text.length < room ? text.length : room), text.start, after);
    return memscope_names_add(names, name, strlen(name));
}

uint32_t memscope_names_find(const struct memscope_names *names, const char *text, size_t length) {
    return length == 0 ? 0 : *place(names, text, length);
}

uint32_t memscope_names_add(struct memscope_names *names, const char *text, size_t length) {
    uint32_t number = memscope_names_find(names, text, length);

    if (number != 0 || length == 0 || !make_room(names, length))
        return number;
    number = names->count;
    *place(names, text, length) = number;
    memcpy(names->text + names->starts[number], text, length);
    names->starts[++names->count] = names->starts[number] + (uint32_t)length;
    return number;
}

bool memscope_names_copy(const struct memscope_names *names, struct memscope_shared_room *room,
                         struct memscope_names *copy) {
    size_t starts = names->count + (size_t)1, bytes = names->starts[names->count];

    *copy = (struct memscope_names){.count = names->count,
                                    .starts = memscope_shared_room_take(room, starts, sizeof *copy->starts),
                                    .text = memscope_shared_room_take(room, bytes, 1)};
    if (copy->starts == NULL || copy->text == NULL)
        return false;
    memcpy(copy->starts, names->starts, starts * sizeof *copy->starts);
    memcpy(copy->text, names->text, bytes);
    return true;
}
