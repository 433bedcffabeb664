/*
 * Values of a copy (base/copy.h) as JSON, for the process that reads the copy from outside. Calls no method, so that no
 * code of the host runs. With the GVL.
 *
 * nil, true, false, Integers and finite Floats are as in JSON. An Array is an array, and a Hash an object. The first
 * character of a string tells what it stands for: ":name" for a Symbol, "'text" for a String, and "#12" for an Integer
 * as a key. A String or Symbol that is not valid UTF-8 is "=" and a code point for each byte. All other values, and
 * those nested more than 100 deep, are null. Pairs with other keys are left out.
 */
#pragma once

#include <ruby.h>
#include <stdbool.h>
#include <stddef.h>

/* Zeroed at first. The bytes are in mapped memory, and are kept from one text to the next. */
struct memscope_copied_text {
    char *bytes;
    size_t length;
    bool cut; /* something did not fit */
};

/* Appends bytes as they are. */
void memscope_copied_put(struct memscope_copied_text *text, const char *bytes, size_t size);

/* Appends a value as JSON. Allocates objects for large Integers, so it may raise NoMemoryError. */
void memscope_copied_put_value(struct memscope_copied_text *text, VALUE value);
