#include "dump/heap_dump.h"

#include "../expect.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static void ids_are_distances(void) {
    EXPECT(memscope_heap_dump_id(0) == 1);
    EXPECT(memscope_heap_dump_id(40) == 3 && memscope_heap_dump_id(80) == 5 && memscope_heap_dump_id(120) == 7);
    EXPECT(memscope_heap_dump_id(-40) == (uint32_t)-3 && memscope_heap_dump_id(-8) == (uint32_t)-1);
    EXPECT(memscope_heap_dump_id(((int64_t)1 << 35) - 1) == INT32_MAX);
    EXPECT(memscope_heap_dump_id((int64_t)1 << 35) == 0);
    EXPECT(memscope_heap_dump_id(-((int64_t)1 << 35)) == (uint32_t)INT32_MIN + 1);
    EXPECT(memscope_heap_dump_id(-((int64_t)1 << 35) - 1) == 0 && memscope_heap_dump_id(INT64_MIN) == 0);
}

/* jemalloc's classes are those of its manual; glibc's sizes those that malloc_usable_size returns. */
static void sizes_are_rounded_up(void) {
    static const uint32_t held[] = {0, 1, 17, 24, 25, 100, 129, 161, 4097, 5120, 100000};
    static const uint32_t jemalloc[] = {0, 16, 32, 32, 32, 112, 160, 192, 5120, 5120, 114688};
    static const uint32_t glibc[] = {0, 24, 24, 24, 40, 104, 136, 168, 4104, 5128, 100008};
    uint32_t bytes, slot_bytes = 40;
    struct memscope_heap_graph graph = {.slot_count = 1, .slot_bytes = &slot_bytes, .bytes = &bytes};
    struct memscope_heap_dump dump = {.graph = &graph};

    for (size_t index = 0; index < sizeof held / sizeof *held; index++) {
        bytes = slot_bytes + held[index];
        dump.sizes = MEMSCOPE_SIZES_EXACT;
        EXPECT(memscope_heap_dump_bytes(&dump, 0) == bytes);
        dump.sizes = MEMSCOPE_SIZES_OF_JEMALLOC;
        EXPECT(memscope_heap_dump_bytes(&dump, 0) == slot_bytes + jemalloc[index]);
        dump.sizes = MEMSCOPE_SIZES_OF_GLIBC;
        EXPECT(memscope_heap_dump_bytes(&dump, 0) == slot_bytes + glibc[index]);
    }
    bytes = UINT32_MAX;
    EXPECT(memscope_heap_dump_bytes(&dump, 0) > UINT32_MAX);
}

static size_t written(const char *into, const char *text, size_t length, char *back, size_t capacity) {
    struct memscope_dump_output output;
    int file = open(into, O_RDWR | O_CREAT | O_TRUNC, 0600);
    ssize_t count;

    EXPECT(file >= 0 && memscope_dump_output_open(&output, file));
    memscope_dump_put_string(&output, (struct memscope_text){text, length});
    EXPECT(memscope_dump_output_flush(&output));
    memscope_dump_output_close(&output);
    count = pread(file, back, capacity, 0);
    close(file);
    EXPECT(count >= 0);
    return (size_t)count;
}

static void strings_are_valid_json(void) {
    static const struct {
        const char *text, *expected;
    } cases[] = {
        {"User", "\"User\""},
        {"a\"b\\c\n\x01", "\"a\\\"b\\\\c\\u000a\\u0001\""},
        {"caf\xc3\xa9 \xf0\x9f\x98\x80", "\"caf\xc3\xa9 \xf0\x9f\x98\x80\""},
        {"\xff\xc3(", "\"\xef\xbf\xbd\xef\xbf\xbd(\""},               /* no UTF-8 */
        {"\xc0\x80", "\"\xef\xbf\xbd\xef\xbf\xbd\""},                 /* overlong */
        {"\xed\xa0\x80", "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\""}, /* a surrogate */
        {"x\xe2\x82", "\"x\xef\xbf\xbd\xef\xbf\xbd\""},               /* cut */
    };
    char back[64];

    for (size_t index = 0; index < sizeof cases / sizeof *cases; index++) {
        size_t length = written("text", cases[index].text, strlen(cases[index].text), back, sizeof back);

        EXPECT(length == strlen(cases[index].expected) && memcmp(back, cases[index].expected, length) == 0);
    }
}

/* The flush fails with EFBIG, without SIGXFSZ, which would end the process. */
static void stops_at_the_limit_of_file_sizes(void) {
    const struct rlimit limit = {4096, RLIM_INFINITY};
    struct memscope_dump_output output;
    static char text[3 << 20];
    int file = open("limited", O_RDWR | O_CREAT | O_TRUNC, 0600);

    EXPECT(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    EXPECT(memscope_dump_output_open(&output, file));
    memscope_dump_put(&output, text, sizeof text);
    memscope_dump_put(&output, text, sizeof text);
    EXPECT(!memscope_dump_output_flush(&output) && output.error == EFBIG && lseek(file, 0, SEEK_END) == 0);
    memscope_dump_output_close(&output);
    close(file);
}

int main(void) {
    ids_are_distances();
    sizes_are_rounded_up();
    strings_are_valid_json();
    stops_at_the_limit_of_file_sizes();
    return 0;
}
