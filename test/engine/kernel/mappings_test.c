#include "../expect.h"
#include "kernel/mappings.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static struct memscope_scratch list, names;
static const struct memscope_mappings_memory memory = {&list, &names};

static enum memscope_status parse(const char *text, struct memscope_mappings *mappings) {
    char path[32];
    int file = memfd_create("text", 0);
    enum memscope_status status;

    EXPECT(file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text));
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    list.used = names.used = 0;
    status = memscope_mappings_read_file(path, &memory, mappings);
    close(file);
    return status;
}

static void test_maps(void) {
    struct memscope_mappings mappings;

    EXPECT(parse("56218a114000-56218a417000 rw-p 00000000 00:00 0                          [heap]\n"
                 "7f1de8000000-7f1de8021000 rw-p 00000000 00:00 0 \n"
                 "7f1e0b4ab000-7f1e0b502000 r-xp 00001000 fe:00 327932                     /usr/lib/a b\n"
                 "7f1e0b502000-7f1e0b503000 ---p 00001000 fe:00 327932                     /usr/lib/a b\n"
                 "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]\n",
                 &mappings) == MEMSCOPE_OK);
    EXPECT(mappings.count == 5);
    EXPECT(mappings.list[0].start == 0x56218a114000 && mappings.list[0].end == 0x56218a417000);
    EXPECT(strcmp(mappings.list[0].name, "[heap]") == 0 && !memscope_mapping_is_anonymous(&mappings.list[0]));
    EXPECT(mappings.list[1].name[0] == '\0' && memscope_mapping_is_data(&mappings.list[1]));
    EXPECT(strcmp(mappings.list[2].name, "/usr/lib/a b") == 0 && mappings.list[2].inode == 327932);
    EXPECT(mappings.list[2].readable && mappings.list[2].executable && !mappings.list[2].writable);
    EXPECT(mappings.list[3].name == mappings.list[2].name && !mappings.list[3].readable);
    EXPECT(memscope_mappings_find(&mappings, 0x7f1de8020fff) == &mappings.list[1]);
    EXPECT(memscope_mappings_find(&mappings, 0x7f1de8021000) == NULL);
    EXPECT(memscope_mappings_find(&mappings, 0) == NULL);
}

static void test_smaps(void) {
    struct memscope_mappings mappings;

    EXPECT(parse("7f1de8000000-7f1de8021000 rw-p 00000000 00:00 0 \nSize:  132 kB\nRss:       12 kB\n"
                 "VmFlags: rd wr mr mw me nr sd \n"
                 "7f1de9000000-7f1de9021000 rw-p 00000000 00:00 0 [anon:x]\nRss:        0 kB\nVmFlags: rd wr \n",
                 &mappings) == MEMSCOPE_OK);
    EXPECT(mappings.count == 2);
    EXPECT(mappings.list[0].resident_bytes == 12 * 1024 && mappings.list[0].noreserve);
    EXPECT(mappings.list[1].resident_bytes == 0 && !mappings.list[1].noreserve);
    EXPECT(memscope_mapping_is_data(&mappings.list[1]));
}

static void test_malformed(void) {
    static const char *const texts[] = {
        "7f1de8000000-7f1de8021000 rw-p 00000000 00:00 0",              /* no newline */
        "7f1de8000000 rw-p 00000000 00:00 0 \n",                        /* no end address */
        "7f1de8021000-7f1de8000000 rw-p 00000000 00:00 0 \n",           /* end below start */
        "7f1de8000000-7f1de8021000 rw\n",                               /* truncated */
        "7f1de8000000-7f1de8021000 rw-p 00000000 00:00 \n",             /* no inode */
        "10000000000000000-20000000000000000 rw-p 00000000 00:00 0 \n", /* too large */
        "Rss: 12 kB\n",                                                 /* before any mapping */
        "1000-2000 rw-p 00000000 00:00 0 \nRss: many kB\n",             /* no number */
    };
    struct memscope_mappings mappings;

    for (size_t index = 0; index < sizeof texts / sizeof texts[0]; index++)
        EXPECT(parse(texts[index], &mappings) == MEMSCOPE_MALFORMED);
    EXPECT(parse("", &mappings) == MEMSCOPE_OK && mappings.count == 0);
}

/* Between two reads of the file, mappings may merge or grow: still nothing is listed twice or out of order. */
static void test_overlapping(void) {
    struct memscope_mappings mappings;

    EXPECT(parse("1000-3000 rw-p 00000000 00:00 0 \nRss: 8 kB\n2000-5000 rw-p 00000000 00:00 0 \nRss: 12 kB\n"
                 "3000-4000 rw-p 00000000 00:00 0 \nRss: 4 kB\n",
                 &mappings) == MEMSCOPE_OK);
    EXPECT(mappings.count == 2);
    EXPECT(mappings.list[0].start == 0x1000 && mappings.list[0].end == 0x3000);
    EXPECT(mappings.list[1].start == 0x3000 && mappings.list[1].end == 0x5000);
    EXPECT(mappings.list[1].resident_bytes == 12 * 1024);
}

/* A line longer than any the kernel writes must end the parse, not the process. */
static void test_endless_line(void) {
    static char text[256 << 10];
    struct memscope_mappings mappings;

    memset(text, '7', sizeof text - 1);
    EXPECT(parse(text, &mappings) == MEMSCOPE_MALFORMED);
}

static void test_this_process(void) {
    size_t size = 3 * 4096;
    char *mapped = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    struct memscope_mappings mappings;
    const struct memscope_mapping *mapping;

    EXPECT(mapped != MAP_FAILED);
    memset(mapped, 1, size);
    list.used = names.used = 0;
    EXPECT(memscope_mappings_read(false, &memory, &mappings) == MEMSCOPE_OK);
    mapping = memscope_mappings_find(&mappings, (uintptr_t)mapped);
    EXPECT(mapping != NULL && mapping->end >= (uintptr_t)mapped + size && memscope_mapping_is_data(mapping));
    EXPECT(memscope_mappings_read(true, &memory, &mappings) == MEMSCOPE_OK);
    mapping = memscope_mappings_find(&mappings, (uintptr_t)mapped);
    EXPECT(mapping != NULL && mapping->noreserve && mapping->resident_bytes >= size);
}

int main(void) {
    EXPECT(memscope_scratch_open(&list) == MEMSCOPE_OK && memscope_scratch_open(&names) == MEMSCOPE_OK);
    test_maps();
    test_smaps();
    test_malformed();
    test_overlapping();
    test_endless_line();
    test_this_process();
    memscope_scratch_close(&list);
    memscope_scratch_close(&names);
    return 0;
}
