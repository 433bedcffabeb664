#include "kernel/cgroup_search.h"

#include "base/copy.h"
#include "base/text_file.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static enum memscope_status join(char *path, size_t capacity, const char *directory, const char *rest) {
    int length = snprintf(path, capacity, "%s%s", directory, rest);

    return length >= 0 && (size_t)length < capacity ? MEMSCOPE_OK : MEMSCOPE_TRUNCATED;
}

bool memscope_cgroup_climb(char *directory, const char *top) {
    char *slash = strrchr(directory, '/');

    if (!slash || strlen(directory) <= strlen(top))
        return false;
    *slash = '\0';
    return true;
}

static bool leaves_root(const char *path) {
    for (; (path = strstr(path, "/..")); path += 3)
        if (path[3] == '/' || path[3] == '\0')
            return true;
    return false;
}

static bool has_file(const char *directory, const char *name) {
    char path[MEMSCOPE_CGROUP_PATH + 64];

    return join(path, sizeof path, directory, name) == MEMSCOPE_OK && access(path, F_OK) == 0;
}

/*
 * Returns true if the directory is a group of the controller. For CPUs, any existing directory will do: a v2 group
 * without the controller, like every root group, simply has no quota. A v2 group without the memory controller is
 * accounted to its nearest ancestor with the controller. The root group has no memory.current, but has memory.stat.
 */
static bool settle(struct memscope_cgroup_search *search) {
    if (strcmp(search->controller, "memory") != 0)
        return has_file(search->directory, "");
    if (!search->is_v2)
        return has_file(search->directory, "/memory.usage_in_bytes");
    while (!has_file(search->directory, "/memory.current"))
        if (!memscope_cgroup_climb(search->directory, search->top))
            return has_file(search->directory, "/memory.stat");
    return true;
}

/*
 * Sets top and directory from the mount point and the root of the mount, which is a group. Inside a cgroup namespace, a
 * mount made outside has a root like "/../..": it shows groups whose names are hidden from this process, so the
 * process's own group cannot be found by name.
 */
static void try_mount(struct memscope_cgroup_search *search, const char *point, const char *root) {
    static const char usual_root[] = "/sys/fs/cgroup";
    const size_t usual_length = sizeof usual_root - 1;
    size_t root_length = strcmp(root, "/") == 0 ? 0 : strlen(root);
    const char *rest = search->path + root_length;
    bool is_usual =
        strncmp(point, usual_root, usual_length) == 0 && (point[usual_length] == '/' || point[usual_length] == '\0');

    if (strncmp(search->path, root, root_length) != 0 || (*rest != '/' && *rest != '\0') || leaves_root(rest))
        return;
    search->is_mounted = true;
    search->status = join(search->top, sizeof search->top, is_usual ? search->cgroup_root : point,
                          is_usual ? point + usual_length : "");
    if (search->status == MEMSCOPE_OK)
        search->status =
            join(search->directory, sizeof search->directory, search->top, strcmp(rest, "/") == 0 ? "" : rest);
    if (search->status == MEMSCOPE_OK && !settle(search))
        search->status = MEMSCOPE_NOT_FOUND;
}

/* If there is no list of mounts (proc_root is a copy without it, or /proc hides it), tries the usual mount point. */
static void search_mounts(struct memscope_cgroup_search *search) {
    char path[MEMSCOPE_CGROUP_PATH + 64];
    char window[2 * MEMSCOPE_CGROUP_PATH + 512]; /* longer lines are skipped, as their paths are too long */
    struct memscope_text_lines lines = {.window = window, .capacity = sizeof window};
    struct memscope_cgroup_mount mount;
    const char *line;

    search->status = MEMSCOPE_NOT_FOUND;
    if (join(path, sizeof path, search->proc_root, "/self/mountinfo") != MEMSCOPE_OK ||
        memscope_text_lines_open(&lines, path) != MEMSCOPE_OK) {
        snprintf(path, sizeof path, "/sys/fs/cgroup%s%s", search->is_v2 ? "" : "/",
                 search->is_v2 ? "" : search->controller);
        try_mount(search, path, "/");
        return;
    }
    while (search->status != MEMSCOPE_OK && (line = memscope_text_lines_next(&lines)))
        if (memscope_cgroup_parse_mount(line, search->controller, &mount) && mount.is_v2 == search->is_v2)
            try_mount(search, mount.point, mount.root);
    memscope_text_lines_close(&lines);
}

enum memscope_status memscope_cgroup_find(struct memscope_cgroup_search *search,
                                          struct memscope_cgroup_membership *member) {
    char text[MEMSCOPE_CGROUP_TEXT];
    char path[MEMSCOPE_CGROUP_PATH + 64];
    size_t length;
    enum memscope_status status = MEMSCOPE_TRUNCATED;

    if (snprintf(path, sizeof path, "%s/%s/cgroup", search->proc_root, memscope_name_in_proc(search->process)) <
        (int)sizeof path)
        status = memscope_text_file_read(path, text, sizeof text, &length);
    if (status == MEMSCOPE_OK)
        status = memscope_cgroup_parse_membership(text, search->controller, member);
    if (status != MEMSCOPE_OK)
        return status;
    search->is_v2 = !member->has_v1;
    search->path = member->has_v1 ? member->v1_path : member->v2_path;
    search_mounts(search);
    return search->status;
}
