#include "record_structs.h"

#include <string.h>

#define MEMBER(record, name, kind, allowed)                                                                            \
    {#name, allowed, offsetof(struct memscope_##record, name), MEMSCOPE_MEMBER_##kind},
#define RECORD(name)                                                                                                   \
    static const struct memscope_member name##_members[] = {MEMSCOPE_MEMBERS_##name(MEMBER)};                          \
    const struct memscope_record memscope_##name##_record = {MEMSCOPE_VERSION_##name, sizeof(struct memscope_##name),  \
                                                             sizeof name##_members / sizeof *name##_members,           \
                                                             name##_members};
MEMSCOPE_RECORDS(RECORD)
#undef RECORD
#undef MEMBER

#define UNKNOWN_NUMBER MEMSCOPE_UNKNOWN
#define UNKNOWN_SIGNED MEMSCOPE_UNKNOWN_SIGNED
#define UNKNOWN_BOOLEAN MEMSCOPE_UNKNOWN_SIGNED
#define UNKNOWN_REAL NAN
#define UNKNOWN_ROUNDED NAN
#define UNKNOWN_NAME 0
#define UNKNOWN_TEXT                                                                                                   \
    { NULL, 0 }
#define UNKNOWN_SYMBOL                                                                                                 \
    { NULL, 0 }
#define MEMBER(record, name, kind, allowed) .name = UNKNOWN_##kind,
#define RECORD(name) const struct memscope_##name memscope_##name##_unknown = {MEMSCOPE_MEMBERS_##name(MEMBER)};
MEMSCOPE_RECORDS(RECORD)
#undef RECORD
#undef MEMBER

static const char mark[8] = {'m', 'e', 'm', 's', 'c', 'o', 'p', 'e'};

/* used: the bytes that were put so far, though the capacity may be less. */
struct output {
    char *buffer;
    size_t capacity, used;
};

static void put(struct output *output, const void *bytes, size_t size) {
    if (output->used + size <= output->capacity)
        memcpy(output->buffer + output->used, bytes, size);
    output->used += size;
}

static void put_text(struct output *output, const struct memscope_text *text) {
    const uint64_t length = text->start == NULL ? MEMSCOPE_UNKNOWN : text->length;

    put(output, &length, sizeof length);
    if (text->start != NULL)
        put(output, text->start, text->length);
}

size_t memscope_record_write(const struct memscope_record *record, const void *values, char *buffer, size_t capacity) {
    struct output output = {buffer, capacity, 0};
    uint64_t length = 0;

    put(&output, mark, sizeof mark);
    put(&output, &record->version, sizeof record->version);
    put(&output, &length, sizeof length);
    for (size_t index = 0; index < record->count; index++) {
        const void *at = (const char *)values + record->members[index].offset;

        if (record->members[index].kind >= MEMSCOPE_MEMBER_TEXT)
            put_text(&output, at);
        else
            put(&output, at, sizeof(uint64_t));
    }
    length = output.used;
    if (length <= capacity)
        memcpy(buffer + sizeof mark + sizeof record->version, &length, sizeof length);
    return output.used;
}

struct input {
    const char *bytes;
    size_t left;
};

static bool get(struct input *input, void *bytes, size_t size) {
    if (input->left < size)
        return false;
    memcpy(bytes, input->bytes, size);
    input->bytes += size;
    input->left -= size;
    return true;
}

static bool get_text(struct input *input, struct memscope_text *text) {
    uint64_t length;

    *text = (struct memscope_text){NULL, 0};
    if (!get(input, &length, sizeof length))
        return false;
    if (length == MEMSCOPE_UNKNOWN)
        return true;
    if (length > input->left)
        return false;
    *text = (struct memscope_text){input->bytes, (size_t)length};
    input->bytes += length;
    input->left -= length;
    return true;
}

/* Returns true if the symbol is unknown, or between two commas of the list, which has at least one symbol. */
static bool is_allowed(const char *list, struct memscope_text symbol) {
    if (symbol.start == NULL)
        return true;
    for (const char *at = list; at[1] != '\0'; at = strchr(at + 1, ','))
        if ((size_t)(strchr(at + 1, ',') - at) == symbol.length + 1 && memcmp(at + 1, symbol.start, symbol.length) == 0)
            return true;
    return false;
}

static bool get_member(struct input *input, const struct memscope_member *member, void *at) {
    if (member->kind < MEMSCOPE_MEMBER_TEXT)
        return get(input, at, sizeof(uint64_t));
    return get_text(input, at) &&
           (member->allowed[0] == '\0' || is_allowed(member->allowed, *(struct memscope_text *)at));
}

enum memscope_status memscope_record_read(const struct memscope_record *record, const char *buffer, size_t size,
                                          void *values, size_t *length) {
    struct input input = {buffer, size};
    char begin[sizeof mark];
    uint64_t version, whole;

    if (!get(&input, begin, sizeof begin) || !get(&input, &version, sizeof version) ||
        !get(&input, &whole, sizeof whole))
        return MEMSCOPE_TRUNCATED;
    if (memcmp(begin, mark, sizeof mark) != 0)
        return MEMSCOPE_MALFORMED;
    if (version != record->version)
        return MEMSCOPE_UNSUPPORTED;
    if (whole > size)
        return MEMSCOPE_TRUNCATED;
    if (whole < size - input.left)
        return MEMSCOPE_MALFORMED;
    input.left -= size - (size_t)whole;
    for (size_t index = 0; index < record->count; index++)
        if (!get_member(&input, &record->members[index], (char *)values + record->members[index].offset))
            return MEMSCOPE_MALFORMED;
    *length = (size_t)whole;
    return input.left == 0 ? MEMSCOPE_OK : MEMSCOPE_MALFORMED;
}
