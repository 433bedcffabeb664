#include "../expect.h"
#include "kernel/cgroup_text.h"

#include <string.h>

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

int main(void) {
    test_parse_figure();
    test_parse_quota();
    test_parse_membership();
    test_parse_mount();
    test_parse_pressure();
    return 0;
}
