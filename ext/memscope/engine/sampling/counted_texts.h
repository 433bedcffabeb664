/*
 * Short texts, each stored once. A text counts its users and is freed when the last user releases it. The caller
 * provides the memory, whose size is fixed. Any context, one thread at a time.
 *
 * The text "[no room]", which is stored first, stands for each text that finds no room.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define MEMSCOPE_TEXT_CELLS 45056 /* of 64 bytes; a Ruby frame takes two or three */
#define MEMSCOPE_TEXT_BUCKETS 32768
#define MEMSCOPE_TEXT_LIMIT 1024 /* bytes, longer texts are cut */
#define MEMSCOPE_NO_ROOM 1       /* the number of "[no room]" */

struct memscope_text_cell {
    uint16_t next;    /* next cell of the text, or next free cell, 0 if none */
    uint16_t sibling; /* next text in the bucket, in a text's first cell only */
    uint32_t users;   /* in a text's first cell only */
    uint16_t length;  /* bytes of the whole text, in its first cell only */
    char bytes[54];
};

struct memscope_counted_texts {
    struct memscope_text_cell cells[MEMSCOPE_TEXT_CELLS];
    uint16_t first_by_hash[MEMSCOPE_TEXT_BUCKETS];
    uint16_t used, free; /* cells ever used, and the first free one among them, 0 if none */
    uint32_t count;      /* texts */
};

/* The table must be all zeros. */
void memscope_texts_begin(struct memscope_counted_texts *texts);

/* Returns the text's number, with a reference for the caller, or MEMSCOPE_NO_ROOM. The empty text is a text too. */
uint32_t memscope_text_add(struct memscope_counted_texts *texts, const char *bytes, size_t length);

/* Both ignore number 0. */
void memscope_text_retain(struct memscope_counted_texts *texts, uint32_t number);
void memscope_text_release(struct memscope_counted_texts *texts, uint32_t number);

uint32_t memscope_text_users(const struct memscope_counted_texts *texts, uint32_t number);

/* Copies the text and returns its length. */
size_t memscope_text_copy(const struct memscope_counted_texts *texts, uint32_t number, char bytes[MEMSCOPE_TEXT_LIMIT]);
