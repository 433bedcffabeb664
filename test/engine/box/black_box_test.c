#include "../expect.h"
#include "base/descriptors.h"
#include "box/black_box.h"
#include "trend/history.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/*
 * ---- the writer's only system call, which can be killed after any of its bytes, or fail ---------------------------
 */

static jmp_buf killed;
static size_t bytes_left = SIZE_MAX; /* until the writer is killed */
static size_t bytes_written;
static int error_of_write; /* 0: none */
static char *memory;       /* the file, if it is in memory */
static struct {
    size_t offset, size;
    char before[32 << 10];
} undo[8];
static size_t undone;

ssize_t pwrite(int descriptor, const void *bytes, size_t size, off_t offset) {
    size_t part = size < bytes_left ? size : bytes_left;

    if (error_of_write) {
        errno = error_of_write;
        return -1;
    }
    if (memory == NULL)
        return syscall(SYS_pwrite64, descriptor, bytes, size, offset);
    undo[undone].offset = (size_t)offset;
    undo[undone].size = part;
    memcpy(undo[undone++].before, memory + offset, part);
    memcpy(memory + offset, bytes, part);
    bytes_left -= part;
    bytes_written += part;
    if (part < size)
        longjmp(killed, 1);
    return (ssize_t)size;
}

/* ---- a history --------------------------------------------------------------------------------------------------- */

static const uint64_t boot_ms = UINT64_C(1790000000000);

static void sample(struct memscope_rings *rings, uint64_t seconds) {
    uint64_t values[MEMSCOPE_HISTORY_SERIES];

    for (size_t series = 0; series < MEMSCOPE_HISTORY_SERIES; series++)
        values[series] = (seconds * 7919 + series) % 100000 * memscope_history_units[series];
    EXPECT(memscope_rings_add(rings, seconds, values));
}

static bool same_rings(const struct memscope_rings *one, const struct memscope_rings *other) {
    static struct memscope_rings_point points[2][MEMSCOPE_RINGS_MAX_POINTS];
    struct memscope_rings_event events[2][MEMSCOPE_RINGS_EVENTS];
    uint64_t starts[2], spans[4];
    bool same = memscope_rings_span(one, &spans[0], &spans[1]) == memscope_rings_span(other, &spans[2], &spans[3]) &&
                memscope_rings_read_events(one, events[0]) == memscope_rings_read_events(other, events[1]) &&
                spans[0] == spans[2] && spans[1] == spans[3];

    for (int ring = 0; same && ring < MEMSCOPE_RING_COUNT; ring++)
        for (size_t series = 0; same && series < MEMSCOPE_HISTORY_SERIES; series++) {
            size_t count = memscope_rings_read(one, (enum memscope_ring)ring, series, 0, points[0], &starts[0]);

            same = count == memscope_rings_read(other, (enum memscope_ring)ring, series, 0, points[1], &starts[1]) &&
                   starts[0] == starts[1] && memcmp(points[0], points[1], count * sizeof **points) == 0;
        }
    return same;
}

/* ---- a box ------------------------------------------------------------------------------------------------------- */

static char directory[] = "/tmp/black_box_test.XXXXXX", path[64];
static struct memscope_box box;
static struct memscope_box_contents contents;
static struct memscope_rings *rings, *room;
static char *file;

static struct memscope_text text(const char *string) {
    return memscope_text_of(string);
}

static void put(enum memscope_box_slot slot, const char *string, uint64_t at) {
    EXPECT(memscope_box_prepare(&box, slot, at, text(string)) == MEMSCOPE_OK);
    EXPECT(memscope_box_write(&box) == MEMSCOPE_OK);
}

static void add(uint64_t seconds) {
    sample(rings, seconds);
    memscope_box_prepare_rings(&box, boot_ms + seconds * 1000, rings);
    EXPECT(memscope_box_write(&box) == MEMSCOPE_OK);
}

static enum memscope_status parse(const char *bytes, size_t size) {
    memset(room, 0, memscope_rings_bytes());
    return memscope_box_parse(bytes, size, room, &contents);
}

static size_t read_file(void) {
    int descriptor = open(path, O_RDONLY);
    ssize_t size = read(descriptor, file, memscope_box_bytes());

    EXPECT(size >= 0);
    close(descriptor);
    return (size_t)size;
}

static bool has(enum memscope_box_slot slot, const char *string) {
    return memscope_text_is(contents.slots[slot].text, string);
}

static void test_what_is_written_is_read(void) {
    for (uint64_t seconds = 1000; seconds < 60000; seconds += 10) {
        if (seconds % 5000 == 0)
            EXPECT(memscope_rings_mark(rings, seconds, 1));
        if (seconds < 30000 || seconds > 33000) /* a suspended process */
            add(seconds);
    }
    put(MEMSCOPE_BOX_identity, "{\"pid\":1}", 1);
    put(MEMSCOPE_BOX_verdict, "old", 2);
    put(MEMSCOPE_BOX_verdict, "new", 3);
    EXPECT(parse(file, read_file()) == MEMSCOPE_OK);
    EXPECT(has(MEMSCOPE_BOX_identity, "{\"pid\":1}") && has(MEMSCOPE_BOX_verdict, "new"));
    EXPECT(contents.slots[MEMSCOPE_BOX_verdict].at == 3 && contents.slots[MEMSCOPE_BOX_census].text.start == NULL);
    EXPECT(contents.rings != NULL && same_rings(contents.rings, rings));
}

static void test_the_file(void) {
    struct stat status;
    struct memscope_box other;

    EXPECT(stat(path, &status) == 0 && (status.st_mode & 07777) == 0600);
    EXPECT((size_t)status.st_size == memscope_box_bytes() && status.st_size <= 1 << 20);
    EXPECT(memscope_box_create(&other, path) != MEMSCOPE_OK && other.error == EEXIST);
    EXPECT(access(path, F_OK) == 0);
    EXPECT(symlink(path, "/tmp/black_box_test.link") == 0 || errno == EEXIST);
    EXPECT(memscope_box_create(&other, "/tmp/black_box_test.link") != MEMSCOPE_OK && other.error == EEXIST);
    unlink("/tmp/black_box_test.link");
    EXPECT(memscope_box_create(&other, "/nonexistent/box") == MEMSCOPE_NOT_FOUND && other.error == ENOENT);
}

static void test_a_text_without_room(void) {
    static char long_text[MEMSCOPE_BOX_MAX_PART];

    EXPECT(memscope_box_prepare(&box, MEMSCOPE_BOX_memory, 4, (struct memscope_text){long_text, 1024 - 31}) ==
           MEMSCOPE_TRUNCATED);
    EXPECT(memscope_box_write(&box) == MEMSCOPE_OK); /* of nothing */
    EXPECT(memscope_box_prepare(&box, MEMSCOPE_BOX_memory, 4, (struct memscope_text){long_text, 1024 - 32}) ==
           MEMSCOPE_OK);
    EXPECT(memscope_box_write(&box) == MEMSCOPE_OK && parse(file, read_file()) == MEMSCOPE_OK);
    EXPECT(contents.slots[MEMSCOPE_BOX_memory].text.length == 1024 - 32);
}

static void test_a_failed_write_leaves_the_text_before(void) {
    error_of_write = ENOSPC;
    EXPECT(memscope_box_prepare(&box, MEMSCOPE_BOX_verdict, 5, text("unwritten")) == MEMSCOPE_OK);
    EXPECT(memscope_box_write(&box) == MEMSCOPE_IO && box.error == ENOSPC);
    error_of_write = 0;
    EXPECT(parse(file, read_file()) == MEMSCOPE_OK && has(MEMSCOPE_BOX_verdict, "new"));
    put(MEMSCOPE_BOX_verdict, "later", 6);
    EXPECT(parse(file, read_file()) == MEMSCOPE_OK && has(MEMSCOPE_BOX_verdict, "later"));
}

/* Returns true if the writer was killed before it had written everything. */
static bool write_until(size_t bytes) {
    bytes_left = bytes;
    bytes_written = undone = 0;
    if (setjmp(killed))
        return true;
    EXPECT(memscope_box_write(&box) == MEMSCOPE_OK);
    return false;
}

static void undo_writes(void) {
    while (undone-- > 0)
        memcpy(memory + undo[undone].offset, undo[undone].before, undo[undone].size);
    undone = 0;
}

/* All bytes near the ends of a write, and some of those between. */
static size_t next_kill(size_t bytes) {
    return bytes % 1024 < 48 || bytes % 1024 > 990 ? bytes + 1 : bytes + 23;
}

static void test_a_writer_that_is_killed_in_a_text(void) {
    struct memscope_box before;
    char long_text[3000] = {0};

    memset(long_text, 'x', sizeof long_text - 1);
    memcpy(&before, &box, sizeof box);
    for (size_t bytes = 0;; bytes = next_kill(bytes)) {
        memcpy(&box, &before, sizeof box);
        EXPECT(memscope_box_prepare(&box, MEMSCOPE_BOX_census, 8, text(long_text)) == MEMSCOPE_OK);
        if (!write_until(bytes))
            break;
        EXPECT(parse(file, memscope_box_bytes()) == MEMSCOPE_OK);
        EXPECT(has(MEMSCOPE_BOX_census, "the text before"));
        undo_writes();
    }
    EXPECT(parse(file, memscope_box_bytes()) == MEMSCOPE_OK && has(MEMSCOPE_BOX_census, long_text));
}

/*
 * The sample begins new buckets in all three rings. What is read is the history before it, or with it if all bytes that
 * changed are written, and never less.
 */
static void test_a_writer_that_is_killed_in_a_sample(void) {
    struct memscope_rings *old = calloc(1, memscope_rings_bytes());
    struct memscope_box before;

    memcpy(old, rings, memscope_rings_bytes());
    memcpy(&before, &box, sizeof box);
    sample(rings, 66000);
    for (size_t bytes = 0;; bytes = next_kill(bytes)) {
        memcpy(&box, &before, sizeof box);
        memscope_box_prepare_rings(&box, boot_ms + UINT64_C(66000000), rings);
        if (!write_until(bytes))
            break;
        EXPECT(parse(file, memscope_box_bytes()) == MEMSCOPE_OK && contents.rings != NULL);
        EXPECT(same_rings(contents.rings, old) || same_rings(contents.rings, rings));
        undo_writes();
    }
    EXPECT(bytes_written > 3 * 184);
    EXPECT(parse(file, memscope_box_bytes()) == MEMSCOPE_OK && same_rings(contents.rings, rings));
    free(old);
}

static void test_a_truncated_box_has_the_parts_before_its_end(void) {
    size_t size = read_file();

    EXPECT(parse(file, 0) == MEMSCOPE_MALFORMED && parse(file, 31) == MEMSCOPE_MALFORMED);
    for (size_t end = 32; end < size; end += 997)
        EXPECT(parse(file, end) == MEMSCOPE_OK);
    EXPECT(parse(file, 64 << 10) == MEMSCOPE_OK && has(MEMSCOPE_BOX_identity, "{\"pid\":1}"));
    file[0] ^= 1;
    EXPECT(parse(file, size) == MEMSCOPE_MALFORMED);
    file[0] ^= 1;
    file[16] ^= 1;
    EXPECT(parse(file, size) == MEMSCOPE_UNSUPPORTED);
    file[16] ^= 1;
}

static void expect_lost(void) {
    EXPECT(memscope_box_prepare(&box, MEMSCOPE_BOX_verdict, 9, text("after it")) == MEMSCOPE_OK);
    EXPECT(memscope_box_write(&box) == MEMSCOPE_TRUNCATED && box.lost);
}

static void test_a_file_that_another_process_truncates_or_deletes(void) {
    struct stat status;

    EXPECT(truncate(path, 64 << 10) == 0);
    expect_lost();
    EXPECT(stat(path, &status) == 0 && status.st_size == 64 << 10);
    EXPECT(parse(file, read_file()) == MEMSCOPE_OK && has(MEMSCOPE_BOX_identity, "{\"pid\":1}"));
    EXPECT(truncate(path, (off_t)memscope_box_bytes()) == 0);
    put(MEMSCOPE_BOX_verdict, "whole again", 9);
    EXPECT(unlink(path) == 0);
    expect_lost();
}

static void test_a_forked_child_has_no_descriptor_of_it(void) {
    int status;
    pid_t child = fork();

    if (child == 0)
        _exit(fcntl(box.descriptor, F_GETFD) == -1 && errno == EBADF ? 0 : 1);
    EXPECT(waitpid(child, &status, 0) == child && status == 0);
}

int main(void) {
    memscope_descriptors_guard();
    EXPECT(mkdtemp(directory) != NULL);
    snprintf(path, sizeof path, "%s/1.box", directory);
    rings = memscope_rings_map(memscope_history_units, MEMSCOPE_HISTORY_SERIES);
    room = calloc(1, memscope_rings_bytes());
    file = calloc(1, memscope_box_bytes());
    EXPECT(rings != NULL && room != NULL && file != NULL);
    EXPECT(memscope_box_create(&box, path) == MEMSCOPE_OK);
    test_what_is_written_is_read();
    test_the_file();
    test_a_text_without_room();
    test_a_failed_write_leaves_the_text_before();
    put(MEMSCOPE_BOX_census, "the text before", 7);
    read_file();
    memory = file;
    test_a_writer_that_is_killed_in_a_text();
    test_a_writer_that_is_killed_in_a_sample();
    memory = NULL;
    test_a_truncated_box_has_the_parts_before_its_end();
    test_a_file_that_another_process_truncates_or_deletes();
    test_a_forked_child_has_no_descriptor_of_it();
    memscope_box_close(&box);
    rmdir(directory);
    free(file);
    free(room);
    return 0;
}
