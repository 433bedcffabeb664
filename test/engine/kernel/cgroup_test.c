#include "../expect.h"
#include "kernel/cgroup.h"

#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[] = "cgroup_test_XXXXXX";

static void make_directory(const char *name) {
    char path[PATH_MAX];

    snprintf(path, sizeof path, "%s/%s", root, name);
    EXPECT(mkdir(path, 0700) == 0);
}

static void write_file(const char *name, const char *text) {
    char path[PATH_MAX];
    FILE *file;

    snprintf(path, sizeof path, "%s/%s", root, name);
    file = fopen(path, "w");
    EXPECT(file && fputs(text, file) >= 0 && fclose(file) == 0);
}

/* A mount list whose first line is longer than the reader's window, and a group two levels down. */
static void write_tree(void) {
    static const char group[] = " - overlay none rw\n31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
    char mounts[(size_t)3 * MEMSCOPE_CGROUP_PATH + sizeof group];
    const size_t length = sizeof mounts - sizeof group;

    memset(mounts, 'x', length);
    memcpy(mounts + length, group, sizeof group);
    make_directory("self");
    make_directory("a");
    make_directory("a/b");
    write_file("self/cgroup", "0::/a/b\n");
    write_file("self/mountinfo", mounts);
    write_file("meminfo", "MemTotal:  1024 kB\n");
    write_file("a/memory.current", "900\n");
    write_file("a/memory.max", "1000\n");
    write_file("a/memory.stat", "anon 1\ninactive_file 100\n");
    write_file("a/b/memory.current", "300\n");
    write_file("a/b/memory.max", "max\n");
    write_file("a/b/memory.stat", "anon 1\ninactive_file 50\n");
}

static void test_read_finds_the_limit_above(void) {
    struct memscope_cgroup cgroup;

    write_tree();
    EXPECT(memscope_cgroup_read("self", root, root, &cgroup) == MEMSCOPE_OK);
    EXPECT(cgroup.version == MEMSCOPE_CGROUP_V2 && strcmp(cgroup.path, "/a/b") == 0);
    EXPECT(cgroup.figures[MEMSCOPE_CGROUP_limit_bytes].status == MEMSCOPE_OK);
    EXPECT(cgroup.figures[MEMSCOPE_CGROUP_limit_bytes].value == 1000);
    EXPECT(strcmp(cgroup.limit_directory + strlen(root), "/a") == 0);
    EXPECT(cgroup.hierarchy_headroom.value == 200);
    EXPECT(cgroup.figures[MEMSCOPE_CGROUP_current_bytes].value == 300);
    EXPECT(cgroup.figures[MEMSCOPE_CGROUP_peak_bytes].status == MEMSCOPE_NOT_FOUND);
    EXPECT(memscope_cgroup_is_known(&cgroup.working_set) && cgroup.working_set.value == 250);
    EXPECT(memscope_cgroup_is_known(&cgroup.headroom) && cgroup.headroom.value == 750);
    EXPECT(cgroup.host_memory.value == UINT64_C(1024) * 1024);
}

static void test_read_derives_what_is_known(void) {
    struct memscope_cgroup cgroup;

    write_file("a/memory.max", "max\n");
    EXPECT(memscope_cgroup_read("self", root, root, &cgroup) == MEMSCOPE_OK);
    EXPECT(cgroup.working_set.value == 250);
    EXPECT(cgroup.headroom.status == MEMSCOPE_OK && cgroup.headroom.unlimited);
    EXPECT(cgroup.hierarchy_headroom.status == MEMSCOPE_OK && cgroup.hierarchy_headroom.unlimited);
    EXPECT(strcmp(cgroup.hierarchy_headroom.file, "memory.max") == 0);
    write_file("a/b/memory.max", "200\n");
    EXPECT(memscope_cgroup_read("self", root, root, &cgroup) == MEMSCOPE_OK);
    EXPECT((int64_t)cgroup.headroom.value == -50 && cgroup.hierarchy_headroom.value == 0);
    write_file("a/b/memory.stat", "anon 1\ninactive_file 400\n");
    EXPECT(memscope_cgroup_read("self", root, root, &cgroup) == MEMSCOPE_OK);
    EXPECT(cgroup.working_set.value == 0 && cgroup.headroom.value == 200);
    write_file("a/b/memory.stat", "anon 1\n");
    EXPECT(memscope_cgroup_read("self", root, root, &cgroup) == MEMSCOPE_OK);
    EXPECT(cgroup.working_set.status == MEMSCOPE_NOT_FOUND && cgroup.headroom.status == MEMSCOPE_NOT_FOUND);
    EXPECT(strcmp(cgroup.headroom.file, "memory.stat") == 0);
}

static void test_read_of_another_process(void) {
    struct memscope_cgroup cgroup;

    make_directory("7");
    write_file("7/cgroup", "0::/a\n");
    EXPECT(memscope_cgroup_read("7", root, root, &cgroup) == MEMSCOPE_OK);
    EXPECT(strcmp(cgroup.path, "/a") == 0 && cgroup.figures[MEMSCOPE_CGROUP_current_bytes].value == 900);
    EXPECT(memscope_cgroup_read("8", root, root, &cgroup) == MEMSCOPE_NOT_FOUND);
}

static void test_read_says_why_not(void) {
    struct memscope_cgroup cgroup;

    EXPECT(memscope_cgroup_read("self", "/nonexistent", "/nonexistent", &cgroup) == MEMSCOPE_NOT_FOUND);
    EXPECT(cgroup.version == MEMSCOPE_CGROUP_NONE && !*cgroup.path && !*cgroup.directory);
    EXPECT(cgroup.figures[MEMSCOPE_CGROUP_limit_bytes].status == MEMSCOPE_NOT_FOUND);
    EXPECT(cgroup.headroom.status == MEMSCOPE_NOT_FOUND && cgroup.host_memory.status == MEMSCOPE_NOT_FOUND);
}

int main(void) {
    EXPECT(mkdtemp(root));
    test_read_finds_the_limit_above();
    test_read_derives_what_is_known();
    test_read_of_another_process();
    test_read_says_why_not();
    return 0;
}
