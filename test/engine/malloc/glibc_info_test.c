/* The parser of malloc_info's text, in each known format and an unknown one. */
#include "../expect.h"
#include "malloc/glibc_info.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Two arenas as glibc 2.36 prints them. */
#define SIZES                                                                                                          \
    "<sizes>\n  <size from=\"33\" to=\"48\" total=\"96\" count=\"2\"/>\n"                                              \
    "  <unsorted from=\"177\" to=\"3937\" total=\"9\" count=\"4\"/>\n</sizes>\n"
#define FAST(count, size) "<total type=\"fast\" count=\"" count "\" size=\"" size "\"/>\n"
#define REST(count, size) "<total type=\"rest\" count=\"" count "\" size=\"" size "\"/>\n"
#define SYSTEM(current, max)                                                                                           \
    "<system type=\"current\" size=\"" current "\"/>\n<system type=\"max\" size=\"" max "\"/>\n"
#define SPACE(total, mprotect)                                                                                         \
    "<aspace type=\"total\" size=\"" total "\"/>\n<aspace type=\"mprotect\" size=\"" mprotect "\"/>\n"
#define BEGINNING "<malloc version=\"1\">\n"
#define MAIN                                                                                                           \
    "<heap nr=\"0\">\n" SIZES FAST("2", "64") REST("38", "158453") SYSTEM("270336", "270337")                          \
        SPACE("5", "6") "</heap>\n"
#define OTHER                                                                                                          \
    "<heap nr=\"1\">\n" SIZES REST("50", "102065") SYSTEM("204800", "204801")                                          \
        SPACE("7", "8") "<aspace type=\"subheaps\" size=\"3\"/>\n</heap>\n"
#define TOTALS                                                                                                         \
    FAST("2", "64")                                                                                                    \
    REST("88", "260518")                                                                                               \
    "<total type=\"mmap\" count=\"1\" size=\"9003008\"/>\n" SYSTEM("475136", "9") SPACE("12", "14") "</malloc>\n"

static struct memscope_scratch list, sizes;
static struct memscope_glibc_arenas arenas;

static enum memscope_status parse(const char *text) {
    const struct memscope_glibc_arenas_memory memory = {&list, &sizes};

    memscope_scratch_close(&list);
    memscope_scratch_close(&sizes);
    EXPECT(memscope_scratch_open(&list) == MEMSCOPE_OK && memscope_scratch_open(&sizes) == MEMSCOPE_OK);
    return memscope_glibc_parse_arenas(text, strlen(text), &memory, &arenas);
}

static void test_whole(void) {
    const struct memscope_glibc_arena *main_arena, *other;

    EXPECT(parse(BEGINNING MAIN OTHER TOTALS) == MEMSCOPE_OK);
    EXPECT(arenas.count == 2);
    main_arena = &arenas.list[0];
    other = &arenas.list[1];
    EXPECT(main_arena->index == 0 && other->index == 1);
    EXPECT(main_arena->fast_blocks == 2 && main_arena->fast_bytes == 64);
    EXPECT(main_arena->free_blocks == 38 && main_arena->free_bytes == 158453);
    EXPECT(main_arena->system_bytes == 270336 && main_arena->system_max_bytes == 270337);
    EXPECT(main_arena->address_space_bytes == 5 && main_arena->writable_bytes == 6);
    EXPECT(main_arena->heaps == MEMSCOPE_UNKNOWN && other->heaps == 3);
    EXPECT(other->first_size == 2 && other->size_count == 2 && arenas.size_count == 4);
    EXPECT(!arenas.sizes[2].unsorted && arenas.sizes[2].from_bytes == 33 && arenas.sizes[2].bytes == 96);
    EXPECT(arenas.sizes[3].unsorted && arenas.sizes[3].to_bytes == 3937 && arenas.sizes[3].blocks == 4);
    EXPECT(arenas.mmapped_blocks == 1 && arenas.mmapped_bytes == 9003008);
    EXPECT(arenas.merged.free_bytes == 260518 && arenas.merged.writable_bytes == 14);
}

/* 2.43 has no fastbins. */
static void test_without_fastbins(void) {
    EXPECT(parse(BEGINNING OTHER REST("1", "2") SYSTEM("3", "4") "</malloc>\n") == MEMSCOPE_OK);
    EXPECT(arenas.list[0].fast_blocks == MEMSCOPE_UNKNOWN && arenas.list[0].fast_bytes == MEMSCOPE_UNKNOWN);
    EXPECT(arenas.merged.fast_bytes == MEMSCOPE_UNKNOWN && arenas.merged.free_blocks == 1);
}

/* Elements that a later glibc may add are skipped; the order of the attributes does not matter. */
static void test_unknown_elements(void) {
    EXPECT(parse(BEGINNING
                 "<arenas max=\"8\"/>\n<heap nr=\"4\">\n<tcache count=\"7\"/>\n"
                 "<total type=\"new\" size=\"9\" count=\"9\"/>\n"
                 "<total new=\"0\" count=\"1\" type=\"rest\" size=\"2\"/>\n</heap>\n</malloc>\n") == MEMSCOPE_OK);
    EXPECT(arenas.count == 1 && arenas.list[0].index == 4);
    EXPECT(arenas.list[0].free_bytes == 2 && arenas.list[0].free_blocks == 1);
}

#ifdef __GLIBC__

static int exit_of_child = -1;

static void *fork_a_child(void *argument) {
    pid_t child = fork();

    if (child == 0)
        exit(0); /* flushes the child's copy of the stream */
    EXPECT(child > 0 && waitpid(child, &exit_of_child, 0) == child);
    return argument;
}

/* Takes the place of glibc's, which another thread may interrupt by a fork. */
int malloc_info(int options, FILE *stream) {
    pthread_t other;

    fputs(BEGINNING MAIN, stream);
    EXPECT(options == 0 && pthread_create(&other, NULL, fork_a_child, NULL) == 0);
    EXPECT(pthread_join(other, NULL) == 0);
    fputs(OTHER TOTALS, stream);
    return 0;
}

static void test_a_child_that_exits_meanwhile(void) {
    const struct memscope_glibc_arenas_memory memory = {&list, &sizes};

    list.used = sizes.used = 0;
    EXPECT(memscope_glibc_read_arenas(&memory, &arenas) == MEMSCOPE_OK);
    EXPECT(exit_of_child == 0 && arenas.count == 2 && arenas.list[1].free_blocks == 50);
}

#else

static void test_a_child_that_exits_meanwhile(void) {
}

#endif

static void test_malformed(void) {
    EXPECT(parse("") == MEMSCOPE_MALFORMED);
    EXPECT(parse("<html>\n" TOTALS) == MEMSCOPE_MALFORMED);
    EXPECT(parse(BEGINNING MAIN OTHER) == MEMSCOPE_MALFORMED);
    EXPECT(parse(BEGINNING "<heap nr=\"x\">\n</heap>\n</malloc>\n") == MEMSCOPE_MALFORMED);
    EXPECT(parse(BEGINNING "<heap nr=\"0\"") == MEMSCOPE_MALFORMED);
    EXPECT(parse(BEGINNING SYSTEM("", "-1") "</malloc>\n") == MEMSCOPE_MALFORMED);
    EXPECT(parse(BEGINNING REST("1", "99999999999999999999999") "</malloc>\n") == MEMSCOPE_MALFORMED);
    EXPECT(parse(BEGINNING "<heap nr=\"0\">\n" TOTALS) == MEMSCOPE_MALFORMED);
    EXPECT(parse("<malloc version=\"2\">\n" TOTALS) == MEMSCOPE_MALFORMED);
}

static void test_this_process(void) {
    const struct memscope_glibc_arenas_memory memory = {&list, &sizes};
    enum memscope_status status = memscope_glibc_read_arenas(&memory, &arenas);

    if (status == MEMSCOPE_UNSUPPORTED) {
        EXPECT(arenas.count == 0);
        return;
    }
    EXPECT(status == MEMSCOPE_OK);
    EXPECT(arenas.count > 0);
}

int main(void) {
    test_whole();
    test_without_fastbins();
    test_unknown_elements();
    test_malformed();
    test_a_child_that_exits_meanwhile();
    test_this_process();
    memscope_scratch_close(&list);
    memscope_scratch_close(&sizes);
    return 0;
}
