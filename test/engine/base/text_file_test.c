#include "../expect.h"
#include "base/text_file.h"

#include <string.h>
#include <unistd.h>

static char path[] = "text_file_test_XXXXXX";

static void write_file(const char *text) {
    FILE *file = fopen(path, "w");

    EXPECT(file && fputs(text, file) >= 0 && fclose(file) == 0);
}

static void test_reads_whole_files(void) {
    char text[8];
    size_t length;

    write_file("1234567");
    EXPECT(memscope_text_file_read(path, text, sizeof text, &length) == MEMSCOPE_TRUNCATED);
    write_file("123456");
    EXPECT(memscope_text_file_read(path, text, sizeof text, &length) == MEMSCOPE_OK);
    EXPECT(length == 6 && strcmp(text, "123456") == 0);
    write_file("");
    EXPECT(memscope_text_file_read(path, text, sizeof text, &length) == MEMSCOPE_OK);
    EXPECT(length == 0 && *text == '\0');
}

static void test_says_why_it_cannot(void) {
    char text[8];
    size_t length;

    EXPECT(memscope_text_file_read("/nonexistent/file", text, sizeof text, &length) == MEMSCOPE_NOT_FOUND);
    EXPECT(memscope_text_file_read("/", text, sizeof text, &length) != MEMSCOPE_OK);
}

static void test_lines(void) {
    char window[8];
    struct memscope_text_lines lines = {.window = window, .capacity = sizeof window};
    const char *line;

    write_file("1234567\n\n12\n");
    EXPECT(memscope_text_lines_open(&lines, path) == MEMSCOPE_OK);
    EXPECT((line = memscope_text_lines_next(&lines)) && strcmp(line, "1234567") == 0);
    EXPECT((line = memscope_text_lines_next(&lines)) && strcmp(line, "") == 0);
    EXPECT((line = memscope_text_lines_next(&lines)) && strcmp(line, "12") == 0);
    EXPECT(!memscope_text_lines_next(&lines) && lines.status == MEMSCOPE_OK);
    memscope_text_lines_close(&lines);
    EXPECT(memscope_text_lines_open(&lines, "/nonexistent/file") == MEMSCOPE_NOT_FOUND);
}

/* A line that is too long is left out, and so is the last one, which does not end. */
static void test_lines_left_out(void) {
    char window[8];
    struct memscope_text_lines lines = {.window = window, .capacity = sizeof window};
    const char *line;

    write_file("12345678901234567890\n1\n23");
    EXPECT(memscope_text_lines_open(&lines, path) == MEMSCOPE_OK);
    EXPECT((line = memscope_text_lines_next(&lines)) && strcmp(line, "1") == 0);
    EXPECT(!memscope_text_lines_next(&lines) && lines.status == MEMSCOPE_MALFORMED);
    memscope_text_lines_close(&lines);
}

static void test_number_of_a_line(void) {
    static const char text[] = "MemTotal: 9 kB\nTHP:\t1\nMemFree:   123 kB\nMax: 18446744073709551615 kB\nLast: 1";
    uint64_t number = 7;

    EXPECT(memscope_text_bytes(text, "MemFree", &number) && number == UINT64_C(123) * 1024);
    EXPECT(memscope_text_number(text, "THP", "", &number) && number == 1);
    EXPECT(!memscope_text_bytes(text, "THP", &number) && !memscope_text_number(text, "MemFree", "", &number));
    EXPECT(!memscope_text_bytes(text, "Mem", &number) && !memscope_text_bytes(text, "Max", &number));
    EXPECT(!memscope_text_number(text, "Last", "", &number)); /* cut short: it may have been 12 */
    EXPECT(!memscope_text_number("Key:", "Key", "", &number) && number == 1);
}

static void test_decimal(void) {
    const char *cursor = "18446744073709551615 7";
    uint64_t value = 0;

    EXPECT(memscope_text_decimal(&cursor, &value) && value == UINT64_MAX && *cursor == ' ');
    EXPECT(!memscope_text_decimal(&cursor, &value) && *cursor == ' ');
    cursor = "18446744073709551616";
    EXPECT(!memscope_text_decimal(&cursor, &value) && *cursor == '1');
    cursor = "-1";
    EXPECT(!memscope_text_decimal(&cursor, &value));
}

static void test_hexadecimal(void) {
    const char *cursor = "7fff5000-7fff";
    uint64_t value = 0;

    EXPECT(memscope_text_hexadecimal(&cursor, &value) && value == 0x7fff5000 && *cursor == '-');
    cursor = "ffffffffffffffff";
    EXPECT(memscope_text_hexadecimal(&cursor, &value) && value == UINT64_MAX);
    cursor = "10000000000000000";
    EXPECT(!memscope_text_hexadecimal(&cursor, &value));
}

int main(void) {
    int descriptor = mkstemp(path);

    EXPECT(descriptor >= 0 && close(descriptor) == 0);
    test_reads_whole_files();
    test_says_why_it_cannot();
    test_lines();
    test_lines_left_out();
    test_number_of_a_line();
    test_decimal();
    test_hexadecimal();
    return 0;
}
