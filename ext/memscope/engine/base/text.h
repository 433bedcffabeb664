/* Text that ends at its length, not at a NUL: part of a longer text, or a NUL-terminated string. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* start is NULL if there is no text. */
struct memscope_text {
    const char *start;
    size_t length;
};

/* The text of a NUL-terminated string, or no text for NULL. */
static inline struct memscope_text memscope_text_of(const char *string) {
    struct memscope_text text = {string, 0};

    while (string && string[text.length])
        text.length++;
    return text;
}

/* Returns true if the text is exactly this string. */
static inline bool memscope_text_is(struct memscope_text text, const char *string) {
    size_t index = 0;

    while (index < text.length && string[index] && text.start[index] == string[index])
        index++;
    return index == text.length && string[index] == '\0';
}
