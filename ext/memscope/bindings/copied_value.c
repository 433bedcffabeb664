#include "bindings/copied_value.h"

#include "base/mapped_array.h"
#include "dump/dump_output.h"

#include <math.h>
#include <string.h>

#define MAX_BYTES ((size_t)64 << 20)
#define MAX_DEPTH 100

void memscope_copied_put(struct memscope_copied_text *text, const char *bytes, size_t size) {
    if (text->cut || size > MAX_BYTES - text->length || !MEMSCOPE_ARRAY_RESERVE(text->bytes, text->length + size)) {
        text->cut = true;
        return;
    }
    memcpy(text->bytes + text->length, bytes, size);
    text->length += size;
}

static void put_text(struct memscope_copied_text *text, const char *bytes) {
    memscope_copied_put(text, bytes, strlen(bytes));
}

/* ---- strings --------------------------------------------------------------------------------------------------- */

static bool is_utf8(const char *bytes, size_t size) {
    for (size_t at = 0, length; at < size; at += length)
        if ((length = memscope_dump_utf8_length(bytes + at, size - at)) == 0)
            return false;
    return true;
}

static bool is_plain(unsigned char byte, bool utf8) {
    return byte >= 0x20 && byte != '"' && byte != '\\' && (byte < 0x80 || utf8);
}

static void put_escape(struct memscope_copied_text *text, unsigned char byte) {
    char escape[] = "\\u00xx";

    escape[4] = "0123456789abcdef"[byte >> 4];
    escape[5] = "0123456789abcdef"[byte & 15];
    put_text(text, escape);
}

static void put_string(struct memscope_copied_text *text, char kind, VALUE string) {
    const char *bytes = RSTRING_PTR(string);
    size_t size = (size_t)RSTRING_LEN(string);
    bool utf8 = is_utf8(bytes, size);

    put_text(text, "\"");
    memscope_copied_put(text, utf8 ? &kind : "=", 1);
    for (size_t start = 0, end = 0; start < size && !text->cut; start = end) {
        while (end < size && is_plain((unsigned char)bytes[end], utf8))
            end++;
        memscope_copied_put(text, bytes + start, end - start);
        if (end < size)
            put_escape(text, (unsigned char)bytes[end++]);
    }
    put_text(text, "\"");
    RB_GC_GUARD(string);
}

/* ---- numbers --------------------------------------------------------------------------------------------------- */

static void put_integer(struct memscope_copied_text *text, VALUE number) {
    VALUE digits = FIXNUM_P(number) ? rb_fix2str(number, 10) : rb_big2str(number, 10);

    memscope_copied_put(text, RSTRING_PTR(digits), (size_t)RSTRING_LEN(digits));
    RB_GC_GUARD(digits);
}

/* With a point or an exponent, without which it would be read as an Integer. */
static void put_float(struct memscope_copied_text *text, double number) {
    char digits[40];

    if (!isfinite(number)) {
        put_text(text, "null");
        return;
    }
    snprintf(digits, sizeof digits, "%.17g", number); /* Ruby's, which knows no locale */
    put_text(text, digits);
    if (strpbrk(digits, ".e") == NULL)
        put_text(text, ".0");
}

/* ---- values ---------------------------------------------------------------------------------------------------- */

struct nesting {
    struct memscope_copied_text *text;
    int depth;
};

static void put_value(struct nesting at, VALUE value);

static void put_comma(struct memscope_copied_text *text) {
    if (!text->cut && strchr("[{", text->bytes[text->length - 1]) == NULL)
        put_text(text, ",");
}

static void put_array(struct nesting at, VALUE array) {
    put_text(at.text, "[");
    at.depth++;
    for (long index = 0; index < RARRAY_LEN(array) && !at.text->cut; index++) {
        put_comma(at.text);
        put_value(at, RARRAY_AREF(array, index));
    }
    put_text(at.text, "]");
}

static int put_pair(VALUE key, VALUE value, VALUE argument) {
    struct nesting at = *(struct nesting *)argument;

    if (!RB_SYMBOL_P(key) && !RB_TYPE_P(key, T_STRING) && !RB_INTEGER_TYPE_P(key))
        return ST_CONTINUE;
    put_comma(at.text);
    if (RB_INTEGER_TYPE_P(key)) {
        put_text(at.text, "\"#");
        put_integer(at.text, key);
        put_text(at.text, "\"");
    } else {
        put_value(at, key);
    }
    put_text(at.text, ":");
    put_value(at, value);
    return at.text->cut ? ST_STOP : ST_CONTINUE;
}

static void put_hash(struct nesting at, VALUE hash) {
    put_text(at.text, "{");
    at.depth++;
    rb_hash_foreach(hash, put_pair, (VALUE)&at);
    put_text(at.text, "}");
}

static void put_value(struct nesting at, VALUE value) {
    bool is_nested = RB_TYPE_P(value, T_ARRAY) || RB_TYPE_P(value, T_HASH);

    switch (is_nested && at.depth == MAX_DEPTH ? T_NIL : rb_type(value)) {
    case T_TRUE:
        put_text(at.text, "true");
        break;
    case T_FALSE:
        put_text(at.text, "false");
        break;
    case T_FIXNUM:
    case T_BIGNUM:
        put_integer(at.text, value);
        break;
    case T_FLOAT:
        put_float(at.text, RFLOAT_VALUE(value));
        break;
    case T_SYMBOL:
        put_string(at.text, ':', rb_sym2str(value));
        break;
    case T_STRING:
        put_string(at.text, '\'', value);
        break;
    case T_ARRAY:
        put_array(at, value);
        break;
    case T_HASH:
        put_hash(at, value);
        break;
    default:
        put_text(at.text, "null");
    }
}

void memscope_copied_put_value(struct memscope_copied_text *text, VALUE value) {
    put_value((struct nesting){text, 0}, value);
    RB_GC_GUARD(value);
}
