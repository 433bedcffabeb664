/*
 * Fuzzes the parsers of a cgroup's files, /proc/self/cgroup and lines of mountinfo; the first byte selects the parser.
 */
#include "kernel/cgroup_text.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void parse(char which, const char *text) {
    struct memscope_cgroup_membership membership;
    struct memscope_cgroup_mount mount = {0};
    struct memscope_cgroup_figure figure = {0};
    struct memscope_cgroup_pressure pressure;
    struct memscope_cgroup_cpus cpus;

    switch (which) {
    case 'c':
        memscope_cgroup_parse_membership(text, "memory", &membership);
        if (strlen(membership.v1_path) >= MEMSCOPE_CGROUP_PATH || strlen(membership.v2_path) >= MEMSCOPE_CGROUP_PATH)
            abort();
        break;
    case 'm':
        memscope_cgroup_parse_mount(text, "memory", &mount);
        if (strlen(mount.root) >= MEMSCOPE_CGROUP_PATH || strlen(mount.point) >= MEMSCOPE_CGROUP_PATH)
            abort();
        break;
    case 's':
        memscope_cgroup_parse_figure(text, "inactive_file", &figure);
        break;
    case 'q':
        memscope_cgroup_parse_quota(text, &cpus);
        break;
    case 'p':
        memscope_cgroup_parse_pressure(text, &pressure);
        break;
    default:
        memscope_cgroup_parse_figure(text, NULL, &figure);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text;

    if (size == 0)
        return 0;
    text = malloc(size);
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    parse((char)data[0], text);
    free(text);
    return 0;
}
