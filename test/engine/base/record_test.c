#include "../expect.h"
#include "record_structs.h"

#include <stddef.h>
#include <string.h>

struct step {
    struct memscope_text name;
    uint64_t times;
    struct memscope_text edge, by, made_at, thread_name;
};

static const struct memscope_member members[] = {
    {"name", "", offsetof(struct step, name), MEMSCOPE_MEMBER_TEXT},
    {"times", "", offsetof(struct step, times), MEMSCOPE_MEMBER_NUMBER},
    {"edge", ",internal,ivar,thread_local,", offsetof(struct step, edge), MEMSCOPE_MEMBER_SYMBOL},
    {"by", "", offsetof(struct step, by), MEMSCOPE_MEMBER_TEXT},
    {"made_at", "", offsetof(struct step, made_at), MEMSCOPE_MEMBER_TEXT},
    {"thread_name", "", offsetof(struct step, thread_name), MEMSCOPE_MEMBER_TEXT},
};

static const struct memscope_record description = {4711, sizeof(struct step), sizeof members / sizeof *members,
                                                   members};
static const struct memscope_record *const record = &description;

static const struct step step = {
    .name = {"Order, and more", 5}, .times = 7, .edge = {"ivar", 4}, .by = {"@lines", 6}, .thread_name = {"", 0}};

/* The bytes of `step`. */
static size_t written(char *buffer, size_t capacity) {
    return memscope_record_write(record, &step, buffer, capacity);
}

static bool is(struct memscope_text text, const char *string) {
    return text.start != NULL && memscope_text_is(text, string);
}

static void test_what_is_written_is_read_again(void) {
    char buffer[256];
    struct step read;
    size_t length = 0, size = written(buffer, sizeof buffer);

    EXPECT(size > 0 && size < sizeof buffer);
    EXPECT(memscope_record_read(record, buffer, sizeof buffer, &read, &length) == MEMSCOPE_OK);
    EXPECT(length == size); /* another record may follow */
    EXPECT(is(read.name, "Order") && read.times == 7 && is(read.edge, "ivar") && is(read.by, "@lines"));
    EXPECT(read.made_at.start == NULL && is(read.thread_name, ""));
}

static void test_unknown_and_negative_numbers(void) {
    const struct memscope_growth_row row = {
        .count = -3, .bytes = MEMSCOPE_UNKNOWN_SIGNED, .new_count = MEMSCOPE_UNKNOWN};
    char buffer[256];
    struct memscope_growth_row read;
    size_t length;

    memscope_record_write(&memscope_growth_row_record, &row, buffer, sizeof buffer);
    EXPECT(memscope_record_read(&memscope_growth_row_record, buffer, sizeof buffer, &read, &length) == MEMSCOPE_OK);
    EXPECT(memcmp(&read, &row, sizeof row) == 0);
}

/* Nothing is read behind the buffer's end, whatever the record says of its length: a sanitizer would tell. */
static void test_a_record_that_is_cut(void) {
    char buffer[256];
    struct step read;
    size_t length, size = written(buffer, sizeof buffer);

    for (size_t left = 0; left < size; left++) {
        char *cut = malloc(left + 1);

        memcpy(cut, buffer, left);
        EXPECT(memscope_record_read(record, cut, left, &read, &length) == MEMSCOPE_TRUNCATED);
        free(cut);
    }
}

static void set(char *buffer, size_t at, uint64_t number) {
    memcpy(buffer + at, &number, sizeof number);
}

enum { MARK = 0, VERSION = 8, LENGTH = 16, NAME_LENGTH = 24 };

static enum memscope_status read_with(size_t at, uint64_t number) {
    char buffer[256];
    struct step read;
    size_t length;

    memset(buffer, 0, sizeof buffer);
    written(buffer, sizeof buffer);
    set(buffer, at, number);
    return memscope_record_read(record, buffer, sizeof buffer, &read, &length);
}

static void test_what_is_no_such_record(void) {
    size_t size = written(NULL, 0);

    EXPECT(read_with(MARK, UINT64_C(0x0102030405060708)) == MEMSCOPE_MALFORMED);
    EXPECT(read_with(VERSION, memscope_growth_row_record.version) == MEMSCOPE_UNSUPPORTED);
    EXPECT(read_with(LENGTH, size + 8) == MEMSCOPE_MALFORMED); /* longer than its members */
    EXPECT(read_with(LENGTH, size - 1) == MEMSCOPE_MALFORMED);
    EXPECT(read_with(LENGTH, 8) == MEMSCOPE_MALFORMED);
    EXPECT(read_with(LENGTH, UINT64_MAX) == MEMSCOPE_TRUNCATED);
    EXPECT(read_with(NAME_LENGTH, 1000) == MEMSCOPE_MALFORMED);
    EXPECT(read_with(NAME_LENGTH, UINT64_MAX - 1) == MEMSCOPE_MALFORMED);
}

static enum memscope_status read_with_edge(const char *edge) {
    struct step other = step, read;
    char buffer[256];
    size_t length;

    other.edge = memscope_text_of(edge);
    memscope_record_write(record, &other, buffer, sizeof buffer);
    return memscope_record_read(record, buffer, sizeof buffer, &read, &length);
}

static void test_only_the_symbols_that_the_table_allows(void) {
    EXPECT(read_with_edge("internal") == MEMSCOPE_OK);
    EXPECT(read_with_edge("thread_local") == MEMSCOPE_OK);
    EXPECT(read_with_edge(NULL) == MEMSCOPE_OK);
    EXPECT(read_with_edge("iva") == MEMSCOPE_MALFORMED);
    EXPECT(read_with_edge("ivar,thread_local") == MEMSCOPE_MALFORMED);
    EXPECT(read_with_edge("") == MEMSCOPE_MALFORMED);
}

static void test_a_buffer_that_is_too_small(void) {
    char buffer[64];
    size_t size = written(NULL, 0);

    memset(buffer, 'x', sizeof buffer);
    EXPECT(written(buffer, 40) == size);
    for (size_t at = 40; at < sizeof buffer; at++)
        EXPECT(buffer[at] == 'x');
}

static void test_records_of_which_nothing_is_known(void) {
    EXPECT(memscope_growth_row_unknown.count == MEMSCOPE_UNKNOWN_SIGNED);
    EXPECT(memscope_growth_row_unknown.new_bytes == MEMSCOPE_UNKNOWN);
    EXPECT(memscope_graph_totals_unknown.walked_in.start == NULL && isnan(memscope_graph_totals_unknown.pause_ms));
    EXPECT(memscope_class_row_unknown.name == 0);
    EXPECT(isnan(memscope_verdict_figures_unknown.bytes_per_hour));
}

static void test_members_in_a_larger_struct(void) {
    struct {
        bool before;
        MEMSCOPE_EMBED(growth_row);
    } larger = {.before = true, .new_count = 3};

    larger.growth_row.bytes = -5;
    EXPECT(larger.before && larger.bytes == -5 && larger.growth_row.new_count == 3);
}

int main(void) {
    test_what_is_written_is_read_again();
    test_unknown_and_negative_numbers();
    test_a_record_that_is_cut();
    test_what_is_no_such_record();
    test_only_the_symbols_that_the_table_allows();
    test_a_buffer_that_is_too_small();
    test_records_of_which_nothing_is_known();
    test_members_in_a_larger_struct();
    return 0;
}
