#include "sampling/counted_texts.h"

#include <stdbool.h>
#include <string.h>

#define CELL_BYTES sizeof(((struct memscope_text_cell *)0)->bytes)

_Static_assert(MEMSCOPE_TEXT_CELLS <= UINT16_MAX + 1, "numbers of cells have 16 bits");

static uint16_t *bucket_of(struct memscope_counted_texts *texts, const char *bytes, size_t length) {
    uint64_t hash = UINT64_C(1469598103934665603);

    for (size_t index = 0; index < length; index++)
        hash = (hash ^ (unsigned char)bytes[index]) * UINT64_C(1099511628211);
    return &texts->first_by_hash[(hash ^ hash >> 32) & (MEMSCOPE_TEXT_BUCKETS - 1)];
}

static bool is_text(const struct memscope_counted_texts *texts, uint32_t number, const char *bytes, size_t length) {
    const struct memscope_text_cell *cell = &texts->cells[number];

    if (cell->length != length)
        return false;
    for (; length > CELL_BYTES; cell = &texts->cells[cell->next], bytes += CELL_BYTES, length -= CELL_BYTES)
        if (memcmp(cell->bytes, bytes, CELL_BYTES) != 0)
            return false;
    return memcmp(cell->bytes, bytes, length) == 0;
}

static uint16_t take_cell(struct memscope_counted_texts *texts) {
    uint16_t cell = texts->free;

    if (cell != 0)
        texts->free = texts->cells[cell].next;
    else if (texts->used < MEMSCOPE_TEXT_CELLS - 1)
        cell = ++texts->used;
    return cell;
}

static void give_back(struct memscope_counted_texts *texts, uint16_t cell) {
    while (cell != 0) {
        uint16_t next = texts->cells[cell].next;

        texts->cells[cell].next = texts->free;
        texts->free = cell;
        cell = next;
    }
}

/* Returns the first of the text's cells, 0 if too few cells are free. */
static uint16_t store(struct memscope_counted_texts *texts, const char *bytes, size_t length) {
    uint16_t first = 0, *link = &first;

    do {
        size_t part = length < CELL_BYTES ? length : CELL_BYTES;
        uint16_t cell = take_cell(texts);

        *link = cell;
        if (cell == 0) {
            give_back(texts, first);
            return 0;
        }
        memcpy(texts->cells[cell].bytes, bytes, part);
        texts->cells[cell].next = 0;
        link = &texts->cells[cell].next;
        bytes += part;
        length -= part;
    } while (length > 0);
    return first;
}

uint32_t memscope_text_add(struct memscope_counted_texts *texts, const char *bytes, size_t length) {
    uint16_t *bucket, number;

    length = length < MEMSCOPE_TEXT_LIMIT ? length : MEMSCOPE_TEXT_LIMIT;
    bucket = bucket_of(texts, bytes, length);
    for (number = *bucket; number != 0; number = texts->cells[number].sibling) {
        if (is_text(texts, number, bytes, length)) {
            texts->cells[number].users++;
            return number;
        }
    }
    number = store(texts, bytes, length);
    if (number == 0) {
        texts->cells[MEMSCOPE_NO_ROOM].users++;
        return MEMSCOPE_NO_ROOM;
    }
    texts->cells[number].length = (uint16_t)length;
    texts->cells[number].users = 1;
    texts->cells[number].sibling = *bucket;
    texts->count++;
    return *bucket = number;
}

void memscope_texts_begin(struct memscope_counted_texts *texts) {
    static const char no_room[] = "[no room]";

    memscope_text_add(texts, no_room, sizeof no_room - 1);
}

void memscope_text_retain(struct memscope_counted_texts *texts, uint32_t number) {
    if (number != 0)
        texts->cells[number].users++;
}

uint32_t memscope_text_users(const struct memscope_counted_texts *texts, uint32_t number) {
    return texts->cells[number].users;
}

size_t memscope_text_copy(const struct memscope_counted_texts *texts, uint32_t number,
                          char bytes[MEMSCOPE_TEXT_LIMIT]) {
    size_t length = texts->cells[number].length;

    for (size_t done = 0; done < length; done += CELL_BYTES, number = texts->cells[number].next)
        memcpy(bytes + done, texts->cells[number].bytes, length - done < CELL_BYTES ? length - done : CELL_BYTES);
    return length;
}

void memscope_text_release(struct memscope_counted_texts *texts, uint32_t number) {
    char bytes[MEMSCOPE_TEXT_LIMIT];
    uint16_t *link;

    if (number == 0 || --texts->cells[number].users > 0)
        return;
    link = bucket_of(texts, bytes, memscope_text_copy(texts, number, bytes));
    while (*link != number)
        link = &texts->cells[*link].sibling;
    *link = texts->cells[number].sibling;
    give_back(texts, (uint16_t)number);
    texts->count--;
}
