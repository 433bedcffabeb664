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
    test_decimal();
    test_hexadecimal();
    return 0;
}
