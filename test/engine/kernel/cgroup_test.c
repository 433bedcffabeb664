#include "../expect.h"
#include "kernel/cgroup.h"

#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct memscope_cgroup_figure figure_of(const char *text, const char *key) {
    struct memscope_cgroup_figure figure = {0};

    memscope_cgroup_parse_figure(text, key, &figure);
    return figure;
}

static void test_parse_figure(void) {
    EXPECT(figure_of("4096\n", NULL).status == MEMSCOPE_OK && figure_of("4096\n", NULL).value == 4096);
    EXPECT(figure_of("max\n", NULL).status == MEMSCOPE_OK && figure_of("max\n", NULL).unlimited);
    EXPECT(figure_of("9223372036854771712\n", NULL).unlimited);
    EXPECT(figure_of("9223372036854710272\n", NULL).unlimited); /* pages of 64 KiB */
    EXPECT(!figure_of("9223372036854644736\n", NULL).unlimited);
    EXPECT(figure_of("maximum\n", NULL).status == MEMSCOPE_MALFORMED);
    EXPECT(figure_of("12 34\n", NULL).status == MEMSCOPE_MALFORMED);
    EXPECT(figure_of("", NULL).status == MEMSCOPE_MALFORMED);
    EXPECT(figure_of("99999999999999999999\n", NULL).status == MEMSCOPE_MALFORMED);
    EXPECT(figure_of("inactive_file 7\nfile 9\n", "file").value == 9);
    EXPECT(figure_of("file_mapped 7\nfile 9", "file").value == 9);
    EXPECT(figure_of("file_mapped 7\n", "file").status == MEMSCOPE_NOT_FOUND);
    EXPECT(figure_of("file x\n", "file").status == MEMSCOPE_MALFORMED);
}

static struct memscope_cgroup_cpus quota_of(const char *text) {
    struct memscope_cgroup_cpus cpus = {0};

    memscope_cgroup_parse_quota(text, &cpus);
    return cpus;
}

static void test_parse_quota(void) {
    EXPECT(quota_of("150000 100000\n").status == MEMSCOPE_OK && quota_of("150000 100000\n").count == 1.5);
    EXPECT(quota_of("max 100000\n").unlimited && quota_of("-1 100000").unlimited);
    EXPECT(quota_of("50000\n").status == MEMSCOPE_MALFORMED);
    EXPECT(quota_of("50000 0\n").status == MEMSCOPE_MALFORMED);
    EXPECT(quota_of("50000 100000 1\n").status == MEMSCOPE_MALFORMED);
    EXPECT(quota_of("").status == MEMSCOPE_MALFORMED);
}

static void test_parse_membership(void) {
    struct memscope_cgroup_membership member;
    char text[MEMSCOPE_CGROUP_PATH + 64];

    EXPECT(memscope_cgroup_parse_membership("9:name=systemd:/\n4:cpu,memory:/a:b\n0::/c\n", "memory", &member) ==
           MEMSCOPE_OK);
    EXPECT(member.has_v1 && strcmp(member.v1_path, "/a:b") == 0);
    EXPECT(member.has_v2 && strcmp(member.v2_path, "/c") == 0);
    EXPECT(memscope_cgroup_parse_membership("4:cpu,memory:/a\n", "cpu", &member) == MEMSCOPE_OK && member.has_v1);
    EXPECT(memscope_cgroup_parse_membership("4:cpuset,cpuacct:/a\n", "cpu", &member) == MEMSCOPE_NOT_FOUND);
    EXPECT(memscope_cgroup_parse_membership("0::/only\n", "memory", &member) == MEMSCOPE_OK && !member.has_v1);
    EXPECT(memscope_cgroup_parse_membership("4:memory2:/a\n", "memory", &member) == MEMSCOPE_NOT_FOUND);
    EXPECT(memscope_cgroup_parse_membership("4:memory:relative\n0:\n::\n", "memory", &member) == MEMSCOPE_NOT_FOUND);
    EXPECT(memscope_cgroup_parse_membership("", "memory", &member) == MEMSCOPE_NOT_FOUND);
    memset(text, 'x', sizeof text - 1);
    memcpy(text, "0::/", 4);
    text[sizeof text - 1] = '\0';
    EXPECT(memscope_cgroup_parse_membership(text, "memory", &member) == MEMSCOPE_NOT_FOUND);
}

static void test_parse_mount(void) {
    struct memscope_cgroup_mount mount;

    EXPECT(memscope_cgroup_parse_mount("35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory",
                                       "memory", &mount));
    EXPECT(!mount.is_v2 && strcmp(mount.root, "/") == 0 && strcmp(mount.point, "/sys/fs/cgroup/memory") == 0);
    EXPECT(memscope_cgroup_parse_mount("1 2 0:3 /../.. /my\\040groups rw shared:5 master:7 - cgroup2 none rw\n",
                                       "memory", &mount));
    EXPECT(mount.is_v2 && strcmp(mount.root, "/../..") == 0 && strcmp(mount.point, "/my groups") == 0);
    EXPECT(!memscope_cgroup_parse_mount("35 31 0:32 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu", "memory", &mount));
    EXPECT(!memscope_cgroup_parse_mount("22 27 0:21 / /proc rw,relatime - proc proc rw", "memory", &mount));
    EXPECT(!memscope_cgroup_parse_mount("35 31 0:32 /", "memory", &mount));
    EXPECT(!memscope_cgroup_parse_mount("35 31 0:32 / /point rw - cgroup", "memory", &mount));
    EXPECT(!memscope_cgroup_parse_mount("", "memory", &mount));
}

static void test_parse_pressure(void) {
    struct memscope_cgroup_pressure pressure;

    EXPECT(memscope_cgroup_parse_pressure("some avg10=1.25 avg60=0.50 avg300=99.99 total=77\n"
                                          "full avg10=0.00 avg60=0.00 avg300=0.01 total=5\n",
                                          &pressure) == MEMSCOPE_OK);
    EXPECT(pressure.some.avg10 == 1.25 && pressure.some.avg300 == 99.99 && pressure.some.total_us == 77);
    EXPECT(pressure.full.avg300 == 0.01 && pressure.full.total_us == 5);
    EXPECT(memscope_cgroup_parse_pressure("some avg10=1.25 avg60=0.50 avg300=0.00 total=77\n", &pressure) ==
           MEMSCOPE_MALFORMED);
    EXPECT(memscope_cgroup_parse_pressure("some avg10=1\nfull avg10=\n", &pressure) == MEMSCOPE_MALFORMED);
    EXPECT(memscope_cgroup_parse_pressure("", &pressure) == MEMSCOPE_MALFORMED);
}

#ifdef __linux__

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

#endif

int main(void) {
    test_parse_figure();
    test_parse_quota();
    test_parse_membership();
    test_parse_mount();
    test_parse_pressure();
#ifdef __linux__
    EXPECT(mkdtemp(root));
    test_read_finds_the_limit_above();
    test_read_derives_what_is_known();
    test_read_of_another_process();
    test_read_says_why_not();
#else
    struct memscope_cgroup cgroup;

    EXPECT(memscope_cgroup_read("self", "/proc", "/sys/fs/cgroup", &cgroup) == MEMSCOPE_UNSUPPORTED);
    EXPECT(cgroup.version == MEMSCOPE_CGROUP_NONE);
#endif
    return 0;
}
