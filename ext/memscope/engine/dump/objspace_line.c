#include "dump/objspace_line.h"

#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* ---- many bytes at a time -------------------------------------------------------------------------------------- */

#define EACH(byte) (UINT64_C(0x0101010101010101) * (byte))

static inline uint64_t load(const char *text) {
    uint64_t bytes;

    memcpy(&bytes, text, sizeof bytes);
    return bytes;
}

/*
 * Finds the first byte that equals one of the three arguments. One argument must be the newline, so that the search
 * ends.
 */
static inline const char *find_one(const char *text, char first, char second, char third) {
#ifdef __SSE2__
    for (;;) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)text);
        __m128i found = _mm_or_si128(
            _mm_or_si128(_mm_cmpeq_epi8(bytes, _mm_set1_epi8(first)), _mm_cmpeq_epi8(bytes, _mm_set1_epi8(second))),
            _mm_cmpeq_epi8(bytes, _mm_set1_epi8(third)));
        int mask = _mm_movemask_epi8(found);

        if (mask != 0)
            return text + __builtin_ctz((unsigned)mask);
        text += sizeof bytes;
    }
#else
    while (*text != first && *text != second && *text != third)
        text++;
    return text;
#endif
}

/* The closing quote of the string that contains text, NULL if the line ends first. */
static inline const char *end_of_string(const char *text) {
    for (;;) {
        text = find_one(text, '"', '\\', '\n');
        if (*text == '"')
            return text;
        if (*text == '\n' || text[1] == '\n')
            return NULL;
        text += 2;
    }
}

/* ---- values ---------------------------------------------------------------------------------------------------- */

/* The value of a hexadecimal digit, 16 for any other character. */
static inline unsigned digit_of(char character) {
    unsigned code = (unsigned char)character, letter = (code | 0x20) - 'a';

    return code - '0' < 10 ? code - '0' : letter < 6 ? letter + 10 : 16;
}

/*
 * Appends up to eight hexadecimal digits to *value, and returns their number. The fast way takes any byte from '0' to
 * 0x7f for a digit. Quotes, blanks and newlines are below '0'.
 */
static inline size_t read_digits(const char *text, uint64_t *value) {
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    uint64_t bytes = load(text), others = ((bytes - EACH('0')) | bytes) & EACH(0x80);
    size_t count = others == 0 ? 8 : (size_t)__builtin_ctzll(others) / 8;

    if (count == 0)
        return 0;
    bytes <<= 64 - 8 * count;
    bytes = (bytes & EACH(0x0f)) + (bytes >> 6 & EACH(0x01)) * 9;
    bytes = (bytes << 4 | bytes >> 8) & UINT64_C(0x00ff00ff00ff00ff);
    bytes = (bytes << 8 | bytes >> 16) & UINT64_C(0x0000ffff0000ffff);
    *value = *value << 4 * count | ((bytes << 16 | bytes >> 32) & UINT32_MAX);
#else
    size_t count = 0;

    for (; count < 8 && digit_of(text[count]) < 16; count++)
        *value = *value << 4 | digit_of(text[count]);
#endif
    return count;
}

/* "0x7f50ea2300b8", with its quotes. Returns the text after it, or NULL if it is not an address. */
static inline const char *read_address(const char *text, uint64_t *address) {
    uint64_t value = 0;
    size_t count;

    if (text[0] != '"' || text[1] != '0' || text[2] != 'x')
        return NULL;
    text += 3;
    count = read_digits(text, &value);
    if (count == 8)
        count += read_digits(text + 8, &value);
    *address = value;
    return count > 0 && text[count] == '"' ? text + count + 1 : NULL;
}

/* Returns the text after the closing bracket. */
static inline const char *read_references(const char *text, uint64_t *references, uint32_t *count) {
    uint32_t read = *count;

    if (*text != '[')
        return NULL;
    text++;
    while (*text != ']') {
        text = read_address(text, &references[read]);
        if (text == NULL)
            return NULL;
        read++;
        while (*text == ',' || *text == ' ')
            text++;
    }
    *count = read;
    return text + 1;
}

/* Saturates. */
static inline const char *read_number(const char *text, uint64_t *number) {
    uint64_t value = 0;

    if (digit_of(*text) >= 10)
        return NULL;
    for (; digit_of(*text) < 10; text++)
        value = value > UINT64_MAX / 16 ? value : value * 10 + digit_of(*text);
    *number = value;
    return text;
}

static inline const char *read_text(const char *text, struct memscope_text *into) {
    const char *end;

    if (*text != '"' || (end = end_of_string(text + 1)) == NULL)
        return NULL;
    into->start = text + 1;
    into->length = (size_t)(end - into->start);
    return end + 1;
}

/* Skips any value. Brackets need not match in kind. */
static inline const char *skip_value(const char *text) {
    size_t depth = 0;

    if (*text != '"' && *text != '{' && *text != '[') {
        text = find_one(text, ',', '}', '\n');
        return *text == '\n' ? NULL : text;
    }
    for (;;) {
        switch (*text) {
        case '"':
            text = end_of_string(text + 1);
            if (text == NULL)
                return NULL;
            break;
        case '{':
        case '[':
            depth++;
            break;
        case '}':
        case ']':
            if (depth == 0)
                return text;
            depth--;
            break;
        case ',':
            if (depth == 0)
                return text;
            break;
        case '\n':
            return NULL;
        }
        text++;
    }
}

/* ---- types ----------------------------------------------------------------------------------------------------- */

/* The most frequent types first. 0 is not an object: a shape, for example, or the remains of a finalised object. */
static const struct {
    const char *name;
    uint8_t length, number;
} types[] = {{"STRING", 6, 0x05}, {"ARRAY", 5, 0x07},    {"HASH", 4, 0x08},    {"OBJECT", 6, 0x01}, {"IMEMO", 5, 0x1a},
             {"DATA", 4, 0x0c},   {"STRUCT", 6, 0x09},   {"SYMBOL", 6, 0x14},  {"CLASS", 5, 0x02},  {"MODULE", 6, 0x03},
             {"ICLASS", 6, 0x1c}, {"FLOAT", 5, 0x04},    {"BIGNUM", 6, 0x0a},  {"REGEXP", 6, 0x06}, {"MATCH", 5, 0x0d},
             {"FILE", 4, 0x0b},   {"RATIONAL", 8, 0x0f}, {"COMPLEX", 7, 0x0e}, {"NODE", 4, 0x1b},   {"SHAPE", 5, 0},
             {"ZOMBIE", 6, 0},    {"MOVED", 5, 0},       {"NONE", 4, 0}};

static void take_type(struct memscope_objspace_line *line, struct memscope_text type) {
    if (type.length == 4 && memcmp(type.start, "ROOT", 4) == 0) {
        line->root = true;
        return;
    }
    line->type = MEMSCOPE_OBJSPACE_UNKNOWN_TYPE;
    for (size_t index = 0; index < sizeof types / sizeof *types; index++)
        if (types[index].length == type.length && *types[index].name == *type.start &&
            memcmp(types[index].name, type.start, type.length) == 0) {
            line->type = types[index].number;
            return;
        }
}

const char *memscope_objspace_type_name(uint8_t type) {
    for (size_t index = 0; index < sizeof types / sizeof *types; index++)
        if (types[index].number == type && type != 0)
            return types[index].name;
    return "UNKNOWN";
}

/* ---- the line -------------------------------------------------------------------------------------------------- */

static inline const char *read_flag(const char *text, bool *flag) {
    *flag = *text == 't';
    return skip_value(text);
}

/* Flags such as {"wb_protected":true, "old":true} make up a third of a dump. */
static inline const char *skip_flags(const char *text) {
    const char *end = find_one(text, '}', '\n', '[');

    return *text == '{' && *end == '}' ? end + 1 : skip_value(text);
}

static inline const char *read_whole(const char *text, struct memscope_text *into) {
    const char *end = skip_value(text);

    if (end != NULL)
        *into = (struct memscope_text){text, (size_t)(end - text)};
    return end;
}

/* A class may be null. */
static inline const char *read_address_or_null(const char *text, uint64_t *address) {
    return *text == '"' ? read_address(text, address) : skip_value(text);
}

/* Adds 1 to the generation, so that 0 means none. */
static inline const char *read_generation(const char *text, uint64_t *generation) {
    text = read_number(text, generation);
    *generation += text != NULL;
    return text;
}

#define IS(name) (memcmp(key, name, sizeof(name) - 1) == 0)

/*
 * Skips a key that mostly follows, if it does, written as Ruby writes it: no search for its end, no comparison with the
 * others. *text: NULL if the value before it could not be read.
 */
#define AFTER_VALUE ", \"encoding\":\"UTF-8\", \"memsize\":"
_Static_assert(sizeof AFTER_VALUE - 1 <= MEMSCOPE_OBJSPACE_PADDING, "the longest key that is compared");
#define SKIP_KEY(text, key) skip_key((text), (key), sizeof(key) - 1)
static inline bool skip_key(const char **text, const char *key, size_t length) {
    bool follows = *text != NULL && memcmp(*text, key, length) == 0;

    if (follows)
        *text += length;
    return follows;
}

static inline const char *read_type_and_class(const char *text, struct memscope_objspace_line *line) {
    struct memscope_text type;

    text = read_text(text, &type);
    if (text != NULL)
        take_type(line, type);
    return SKIP_KEY(&text, ", \"class\":") ? read_address_or_null(text, &line->class_address) : text;
}

static inline const char *read_memsize_and_flags(const char *text, struct memscope_objspace_line *line) {
    text = read_number(text, &line->bytes);
    return SKIP_KEY(&text, ", \"flags\":") ? skip_flags(text) : text;
}

static inline const char *read_value(const char *key, size_t length, const char *text,
                                     struct memscope_objspace_line *line, uint64_t *references) {
    switch (length) {
    case 4:
        if (IS("type"))
            return read_type_and_class(text, line);
        if (IS("name"))
            return read_text(text, &line->name);
        if (IS("root"))
            return read_text(text, &line->category);
        if (IS("file"))
            return read_text(text, &line->file);
        if (IS("line"))
            return read_number(text, &line->line_number);
        break;
    case 5:
        if (IS("class"))
            return read_address_or_null(text, &line->class_address);
        if (IS("flags"))
            return skip_flags(text);
        if (IS("value")) {
            text = skip_value(text);
            return SKIP_KEY(&text, AFTER_VALUE) ? read_memsize_and_flags(text, line) : text;
        }
        break;
    case 6:
        if (IS("struct"))
            return read_text(text, &line->data_type);
        break;
    case 7:
        if (IS("address")) {
            text = read_address(text, &line->address);
            return SKIP_KEY(&text, ", \"type\":") ? read_type_and_class(text, line) : text;
        }
        if (IS("memsize"))
            return read_memsize_and_flags(text, line);
        break;
    case 9:
        if (IS("slot_size"))
            return read_number(text, &line->slot_bytes);
        if (IS("singleton"))
            return read_flag(text, &line->singleton);
        break;
    case 10:
        if (IS("references"))
            return read_references(text, references, &line->reference_count);
        if (IS("edge_names"))
            return read_whole(text, &line->edge_names);
        if (IS("imemo_type"))
            return read_text(text, &line->imemo_type);
        if (IS("superclass"))
            return read_address_or_null(text, &line->superclass);
        if (IS("generation"))
            return read_generation(text, &line->generation);
        break;
    case 15:
        if (IS("real_class_name"))
            return read_text(text, &line->name);
        break;
    }
    return skip_value(text);
}

/* The byte order mark that editors and Windows put at the beginning of a file. */
static inline const char *skip_byte_order_mark(const char *text) {
    return memcmp(text, "\xef\xbb\xbf", 3) == 0 ? text + 3 : text;
}

static inline const char *skip_blanks(const char *text) {
    while (*text == ' ' || *text == '\t')
        text++;
    return text;
}

/* Faster than memset, since it skips the fields that are only read if a length is not 0. */
static inline void clear(struct memscope_objspace_line *line) {
    line->address = line->class_address = line->superclass = 0;
    line->bytes = line->slot_bytes = line->generation = line->line_number = 0;
    line->type = 0;
    line->root = line->singleton = false;
    line->category.length = line->name.length = line->imemo_type.length = line->data_type.length = 0;
    line->edge_names.length = line->file.length = 0;
    line->reference_count = 0;
}

const char *memscope_objspace_line_read(const char *text, struct memscope_objspace_line *line, uint64_t *references) {
    clear(line);
    text = skip_blanks(skip_byte_order_mark(text));
    if (*text != '{')
        return NULL;
    text = skip_blanks(text + 1);
    while (*text != '}') {
        const char *key = text + 1, *end;

        if (*text != '"' || (end = end_of_string(key)) == NULL)
            return NULL;
        text = skip_blanks(end + 1);
        if (*text != ':')
            return NULL;
        text = read_value(key, (size_t)(end - key), skip_blanks(text + 1), line, references);
        if (text == NULL)
            return NULL;
        text = skip_blanks(text);
        if (*text == ',')
            text = skip_blanks(text + 1);
        else if (*text != '}')
            return NULL;
    }
    return text + 1;
}

/* Nothing reads past the line, since the value ends before its newline. */
bool memscope_objspace_edge_name_take(struct memscope_text *edge_names, uint64_t *index, struct memscope_text *name) {
    const char *text = edge_names->start, *end = text + edge_names->length;

    if (edge_names->length == 0 || (*text != '{' && *text != ','))
        return false;
    text = skip_blanks(text + 1);
    if (*text != '"' || (text = read_number(text + 1, index)) == NULL || *text != '"')
        return false;
    text = skip_blanks(text + 1);
    if (*text != ':' || (text = read_text(skip_blanks(text + 1), name)) == NULL)
        return false;
    text = skip_blanks(text);
    *edge_names = (struct memscope_text){text, text < end ? (size_t)(end - text) : 0};
    return true;
}

/* ---- escapes --------------------------------------------------------------------------------------------------- */

/*
 * Writes the code point of four digits as UTF-8. Returns the length in UTF-8, or 0 if the four are not all digits.
 * Surrogates are not paired, since names have hardly any.
 */
static size_t unescape_code(const char *digits, size_t left, char *into) {
    unsigned code = 0;

    if (left < 4)
        return 0;
    for (size_t index = 0; index < 4; index++) {
        unsigned digit = digit_of(digits[index]);

        if (digit == 16)
            return 0;
        code = code << 4 | digit;
    }
    if (code < 0x80) {
        into[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        into[0] = (char)(0xc0 | code >> 6);
        into[1] = (char)(0x80 | (code & 0x3f));
        return 2;
    }
    into[0] = (char)(0xe0 | code >> 12);
    into[1] = (char)(0x80 | (code >> 6 & 0x3f));
    into[2] = (char)(0x80 | (code & 0x3f));
    return 3;
}

size_t memscope_objspace_unescape(struct memscope_text text, char *into, size_t capacity) {
    static const char escapes[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    size_t length = 0;

    for (size_t index = 0; index < text.length && length + 3 <= capacity; index++) {
        const char *found = NULL;
        size_t bytes;

        if (text.start[index] == '\\' && index + 1 < text.length) {
            bytes = text.start[index + 1] == 'u'
                        ? unescape_code(text.start + index + 2, text.length - index - 2, into + length)
                        : 0;
            if (bytes > 0) {
                length += bytes;
                index += 5;
                continue;
            }
            found = memchr(escapes, text.start[index + 1], sizeof escapes - 1);
        }
        into[length++] = (char)(found == NULL ? text.start[index] : meanings[found - escapes]);
        index += found != NULL;
    }
    return length;
}
