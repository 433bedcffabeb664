#include "kernel/cgroup.h"

#include "base/descriptors.h"
#include "base/text_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* memory.stat, the longest of the files, has some 70 lines. */
#define TEXT_CAPACITY 8192

/* v1 prints PAGE_COUNTER_MAX pages for "no limit": 2^63 bytes minus one page, which is 64 KiB at most. */
#define V1_UNLIMITED (((UINT64_C(1) << 63) - 1) & ~UINT64_C(0xffff))

static const char *after_line(const char *text) {
    const char *end = strchr(text, '\n');

    return end ? end + 1 : text + strlen(text);
}

static bool ends_line(const char *text) {
    return *text == '\0' || *text == '\n';
}

/* Copies the text from start to end. Returns false when it exceeds the length of a path. */
static bool copy_path(char *path, const char *start, const char *end) {
    size_t length = (size_t)(end - start);

    if (length >= MEMSCOPE_CGROUP_PATH)
        return false;
    memcpy(path, start, length);
    path[length] = '\0';
    return true;
}

static bool lists(const char *controllers, const char *end, const char *controller) {
    const size_t length = strlen(controller);

    while (controllers < end) {
        const char *comma = memchr(controllers, ',', (size_t)(end - controllers));
        const char *stop = comma ? comma : end;

        if ((size_t)(stop - controllers) == length && memcmp(controllers, controller, length) == 0)
            return true;
        controllers = stop + 1;
    }
    return false;
}

/* A line is "hierarchy:controllers:path"; v2's is "0::path". */
enum memscope_status memscope_cgroup_parse_membership(const char *text, const char *controller,
                                                      struct memscope_cgroup_membership *membership) {
    const char *line;

    memset(membership, 0, sizeof *membership);
    for (line = text; *line; line = after_line(line)) {
        const char *end = line + strcspn(line, "\n");
        const char *controllers = memchr(line, ':', (size_t)(end - line));
        const char *path = controllers ? memchr(controllers + 1, ':', (size_t)(end - controllers - 1)) : NULL;

        if (!path || path[1] != '/')
            continue;
        if (strncmp(line, "0::", 3) == 0)
            membership->has_v2 = copy_path(membership->v2_path, path + 1, end);
        else if (lists(controllers + 1, path, controller))
            membership->has_v1 = copy_path(membership->v1_path, path + 1, end);
    }
    return membership->has_v1 || membership->has_v2 ? MEMSCOPE_OK : MEMSCOPE_NOT_FOUND;
}

/* The kernel writes blank, tab, newline and backslash in a mount's paths as \ooo. */
static bool copy_escaped(char *path, const char *text, const char *end) {
    size_t length = 0;

    while (text < end) {
        unsigned char character = (unsigned char)*text;

        if (character == '\\' && end - text >= 4 && strspn(text + 1, "01234567") >= 3) {
            character = (unsigned char)((text[1] - '0') << 6 | (text[2] - '0') << 3 | (text[3] - '0'));
            text += 3;
        }
        if (length + 1 >= MEMSCOPE_CGROUP_PATH)
            return false;
        path[length++] = (char)character;
        text++;
    }
    path[length] = '\0';
    return true;
}

/* Start and end of the next blank-separated word. Returns false at the end of the line. */
static bool next_word(const char **cursor, const char **start) {
    *start = *cursor + strspn(*cursor, " ");
    *cursor = *start + strcspn(*start, " \n");
    return *cursor > *start;
}

static bool is_word(const char *start, const char *end, const char *word) {
    return (size_t)(end - start) == strlen(word) && memcmp(start, word, (size_t)(end - start)) == 0;
}

/* "id parent device root point options [optional ...] - type source super-options" */
bool memscope_cgroup_parse_mount(const char *line, const char *controller, struct memscope_cgroup_mount *mount) {
    const char *cursor = line;
    const char *start;
    const char *type;
    int index = 0;

    while (next_word(&cursor, &start) && !is_word(start, cursor, "-")) {
        if (index == 3 && !copy_escaped(mount->root, start, cursor))
            return false;
        if (index == 4 && !copy_escaped(mount->point, start, cursor))
            return false;
        index++;
    }
    if (index < 6 || !next_word(&cursor, &type))
        return false;
    mount->is_v2 = is_word(type, cursor, "cgroup2");
    if (mount->is_v2)
        return true;
    return is_word(type, cursor, "cgroup") && next_word(&cursor, &start) && next_word(&cursor, &start) &&
           lists(start, cursor, controller);
}

void memscope_cgroup_parse_figure(const char *text, const char *key, struct memscope_cgroup_figure *figure) {
    size_t length = key ? strlen(key) : 0;

    figure->unlimited = false;
    figure->value = 0;
    figure->status = MEMSCOPE_NOT_FOUND;
    for (; key && *text; text = after_line(text))
        if (strncmp(text, key, length) == 0 && text[length] == ' ')
            break;
    if (key && !*text)
        return;
    if (key)
        text += length + 1;
    figure->status = MEMSCOPE_OK;
    figure->unlimited = strncmp(text, "max", 3) == 0 && ends_line(text + 3);
    if (figure->unlimited)
        return;
    if (!memscope_text_decimal(&text, &figure->value) || !ends_line(text))
        figure->status = MEMSCOPE_MALFORMED;
    else
        figure->unlimited = figure->value >= V1_UNLIMITED;
}

void memscope_cgroup_parse_quota(const char *text, struct memscope_cgroup_cpus *cpus) {
    uint64_t quota, period;

    cpus->status = MEMSCOPE_OK;
    cpus->unlimited = strncmp(text, "max", 3) == 0 || strncmp(text, "-1", 2) == 0;
    cpus->count = 0;
    if (cpus->unlimited)
        return;
    if (memscope_text_decimal(&text, &quota) && *text++ == ' ' && memscope_text_decimal(&text, &period) &&
        ends_line(text) && period > 0)
        cpus->count = (double)quota / (double)period;
    else
        cpus->status = MEMSCOPE_MALFORMED;
}

/* "name=" and a number with two decimals. */
static bool parse_average(const char **cursor, const char *name, double *percent) {
    uint64_t whole, hundredths;
    size_t length = strlen(name);

    if (strncmp(*cursor, name, length) != 0)
        return false;
    *cursor += length;
    if (!memscope_text_decimal(cursor, &whole) || *(*cursor)++ != '.' || !memscope_text_decimal(cursor, &hundredths))
        return false;
    *percent = (double)whole + (double)hundredths / 100;
    return true;
}

static bool parse_stall(const char *text, const char *name, struct memscope_cgroup_stall *stall) {
    static const char total[] = " total=";
    size_t length = strlen(name);

    while (*text && strncmp(text, name, length) != 0)
        text = after_line(text);
    if (!*text)
        return false;
    text += length;
    if (!parse_average(&text, " avg10=", &stall->avg10) || !parse_average(&text, " avg60=", &stall->avg60) ||
        !parse_average(&text, " avg300=", &stall->avg300) || strncmp(text, total, sizeof total - 1) != 0)
        return false;
    text += sizeof total - 1;
    return memscope_text_decimal(&text, &stall->total_us) && ends_line(text);
}

enum memscope_status memscope_cgroup_parse_pressure(const char *text, struct memscope_cgroup_pressure *pressure) {
    bool complete = parse_stall(text, "some", &pressure->some) && parse_stall(text, "full", &pressure->full);

    return complete ? MEMSCOPE_OK : MEMSCOPE_MALFORMED;
}

/* Marks every figure unread, for one reason. */
static void mark_unread(struct memscope_cgroup *cgroup, enum memscope_status status) {
    for (size_t index = 0; index < MEMSCOPE_CGROUP_FIGURE_COUNT; index++)
        cgroup->figures[index].status = status;
    for (size_t index = 0; index < MEMSCOPE_CGROUP_EVENT_COUNT; index++)
        cgroup->events[index].status = status;
    cgroup->working_set.status = cgroup->headroom.status = cgroup->hierarchy_headroom.status = status;
    cgroup->pressure_status = status;
}

#ifdef __linux__

static enum memscope_status join(char *path, size_t capacity, const char *directory, const char *rest) {
    int length = snprintf(path, capacity, "%s%s", directory, rest);

    return length >= 0 && (size_t)length < capacity ? MEMSCOPE_OK : MEMSCOPE_TRUNCATED;
}

/* One file of one directory, as far as it fits; consecutive rows of the tables that name the same file share it. */
struct loaded_file {
    const char *directory;
    const char *name; /* NULL: nothing yet */
    enum memscope_status status;
    char text[TEXT_CAPACITY];
};

static void load(struct loaded_file *file, const char *directory, const char *name) {
    char path[MEMSCOPE_CGROUP_PATH + 64];
    size_t length;

    if (file->name && strcmp(file->name, name) == 0 && file->directory == directory)
        return;
    file->directory = directory;
    file->name = name;
    file->status = MEMSCOPE_TRUNCATED;
    if (snprintf(path, sizeof path, "%s/%s", directory, name) >= (int)sizeof path)
        return;
    file->status = memscope_text_file_read(path, file->text, sizeof file->text, &length);
}

static void read_figure(struct loaded_file *file, const char *directory, const char *name, const char *key,
                        struct memscope_cgroup_figure *figure) {
    memset(figure, 0, sizeof *figure);
    figure->file = name;
    figure->status = MEMSCOPE_UNSUPPORTED;
    if (!name)
        return;
    load(file, directory, name);
    if (file->status == MEMSCOPE_OK || (file->status == MEMSCOPE_TRUNCATED && key))
        memscope_cgroup_parse_figure(file->text, key, figure);
    else
        figure->status = file->status;
}

struct source {
    const char *v2_file, *v2_key, *v1_file, *v1_key;
};

#define FIGURE(field, v2_file, v2_key, v1_file, v1_key) {v2_file, v2_key, v1_file, v1_key},
static const struct source figure_sources[] = {
#include "kernel/cgroup_figures.def"
};
#undef FIGURE

#define EVENT(name, v2_file, v2_key, v1_file, v1_key) {v2_file, v2_key, v1_file, v1_key},
static const struct source event_sources[] = {
#include "kernel/cgroup_events.def"
};
#undef EVENT

static void read_sources(const struct memscope_cgroup *cgroup, struct loaded_file *file, const struct source *sources,
                         size_t count, struct memscope_cgroup_figure *figures) {
    bool is_v2 = cgroup->version == MEMSCOPE_CGROUP_V2;

    for (size_t index = 0; index < count; index++)
        read_figure(file, cgroup->directory, is_v2 ? sources[index].v2_file : sources[index].v1_file,
                    is_v2 ? sources[index].v2_key : sources[index].v1_key, &figures[index]);
}

static void read_pressure(struct memscope_cgroup *cgroup, struct loaded_file *file) {
    cgroup->pressure_status = MEMSCOPE_UNSUPPORTED;
    if (cgroup->version != MEMSCOPE_CGROUP_V2)
        return;
    load(file, cgroup->directory, "memory.pressure");
    cgroup->pressure_status = file->status;
    if (file->status == MEMSCOPE_OK)
        cgroup->pressure_status = memscope_cgroup_parse_pressure(file->text, &cgroup->pressure);
}

/*
 * Lowers limit to an ancestor's. If the ancestor's file cannot be read, the limit becomes unknown; if it does not
 * exist, as in the root group, the limit stays.
 */
static void tighten(struct memscope_cgroup_figure *limit, const struct memscope_cgroup_figure *ancestor) {
    bool is_first = limit->status == MEMSCOPE_NOT_FOUND && ancestor->status == MEMSCOPE_OK;
    bool is_tighter = limit->status == MEMSCOPE_OK && memscope_cgroup_is_known(ancestor) &&
                      (limit->unlimited || ancestor->value < limit->value);

    if (ancestor->status != MEMSCOPE_OK && ancestor->status != MEMSCOPE_NOT_FOUND)
        limit->status = ancestor->status;
    else if (is_first || is_tighter)
        *limit = *ancestor;
}

/* Usage minus inactive files; if one of the two figures is unknown, a copy of it, which carries the reason. */
static struct memscope_cgroup_figure working_set_of(const struct memscope_cgroup_figure *current,
                                                    const struct memscope_cgroup_figure *inactive) {
    struct memscope_cgroup_figure used = *current;

    if (!memscope_cgroup_is_known(current))
        return *current;
    if (!memscope_cgroup_is_known(inactive))
        return *inactive;
    used.value = current->value > inactive->value ? current->value - inactive->value : 0;
    return used;
}

/* Lowers hierarchy_headroom to the room that one group has left under its own limit. */
static void measure_headroom(struct memscope_cgroup *cgroup, struct loaded_file *file, const char *directory,
                             const struct memscope_cgroup_figure *limit) {
    bool is_v2 = cgroup->version == MEMSCOPE_CGROUP_V2;
    const struct source *usage = &figure_sources[MEMSCOPE_CGROUP_current_bytes];
    const struct source *cache = &figure_sources[MEMSCOPE_CGROUP_inactive_file_bytes];
    struct memscope_cgroup_figure current, inactive, used;
    uint64_t room;

    if (cgroup->hierarchy_headroom.status != MEMSCOPE_OK)
        return;
    read_figure(file, directory, is_v2 ? usage->v2_file : usage->v1_file, NULL, &current);
    read_figure(file, directory, is_v2 ? cache->v2_file : cache->v1_file, is_v2 ? cache->v2_key : cache->v1_key,
                &inactive);
    used = working_set_of(&current, &inactive);
    if (used.status != MEMSCOPE_OK) {
        cgroup->hierarchy_headroom = used;
        return;
    }
    room = limit->value > used.value ? limit->value - used.value : 0;
    if (cgroup->hierarchy_headroom.unlimited || room < cgroup->hierarchy_headroom.value)
        cgroup->hierarchy_headroom.value = room;
    cgroup->hierarchy_headroom.unlimited = false;
}

/* Removes the last component, unless the directory is already top. */
static bool climb(char *directory, const char *top) {
    char *slash = strrchr(directory, '/');

    if (!slash || strlen(directory) <= strlen(top))
        return false;
    *slash = '\0';
    return true;
}

/* Applies one group's own limit. */
static void apply_limit(struct memscope_cgroup *cgroup, struct loaded_file *file, const char *directory,
                        const struct memscope_cgroup_figure *own, bool is_settled) {
    struct memscope_cgroup_figure *limit = &cgroup->figures[MEMSCOPE_CGROUP_limit_bytes];
    bool is_tighter = memscope_cgroup_is_known(own) && (!memscope_cgroup_is_known(limit) || own->value < limit->value);

    if (!is_settled)
        tighten(limit, own);
    if (!memscope_cgroup_is_known(own))
        return;
    if ((is_tighter || !*cgroup->limit_directory) && own->value == limit->value)
        memcpy(cgroup->limit_directory, directory, sizeof cgroup->limit_directory);
    measure_headroom(cgroup, file, directory, own);
}

/*
 * Walks up from the group itself. If v1's hierarchical_memory_limit exists, it is the limit. An ancestor may still have
 * a smaller limit: then memory.use_hierarchy is 0 (kernels before 5.11), and the ancestor's limit does not apply.
 */
static void read_limits(struct memscope_cgroup *cgroup, struct loaded_file *file, const char *top) {
    bool is_v2 = cgroup->version == MEMSCOPE_CGROUP_V2;
    struct memscope_cgroup_figure *limit = &cgroup->figures[MEMSCOPE_CGROUP_limit_bytes];
    bool is_settled = !is_v2 && limit->status == MEMSCOPE_OK;
    char directory[MEMSCOPE_CGROUP_PATH];

    memcpy(directory, cgroup->directory, sizeof directory);
    cgroup->hierarchy_headroom.unlimited = true;
    do {
        struct memscope_cgroup_figure own;

        file->name = NULL;
        read_figure(file, directory, is_v2 ? "memory.max" : "memory.limit_in_bytes", NULL, &own);
        if (is_settled && memscope_cgroup_is_known(&own) && own.value < limit->value)
            break;
        apply_limit(cgroup, file, directory, &own, is_settled);
        if (!is_v2)
            continue;
        read_figure(file, directory, "memory.high", NULL, &own);
        tighten(&cgroup->figures[MEMSCOPE_CGROUP_high_bytes], &own);
        read_figure(file, directory, "memory.swap.max", NULL, &own);
        tighten(&cgroup->figures[MEMSCOPE_CGROUP_swap_limit_bytes], &own);
    } while (climb(directory, top));
    if (memscope_cgroup_is_known(limit) && !*cgroup->limit_directory)
        cgroup->hierarchy_headroom.status = MEMSCOPE_NOT_FOUND;
    if (cgroup->hierarchy_headroom.status == MEMSCOPE_OK && cgroup->hierarchy_headroom.unlimited)
        cgroup->hierarchy_headroom = *limit;
}

static void derive(struct memscope_cgroup *cgroup) {
    const struct memscope_cgroup_figure *limit = &cgroup->figures[MEMSCOPE_CGROUP_limit_bytes];

    cgroup->working_set = working_set_of(&cgroup->figures[MEMSCOPE_CGROUP_current_bytes],
                                         &cgroup->figures[MEMSCOPE_CGROUP_inactive_file_bytes]);
    cgroup->headroom = memscope_cgroup_is_known(&cgroup->working_set) ? *limit : cgroup->working_set;
    if (memscope_cgroup_is_known(&cgroup->headroom))
        cgroup->headroom.value -= cgroup->working_set.value;
}

/* The search among the mounts, and its result. */
struct search {
    const char *proc_root, *process, *cgroup_root;
    const char *controller;
    const char *path; /* of the process in the hierarchy */
    bool is_v2;
    bool is_mounted; /* some mount shows the process's group */
    enum memscope_status status;
    char top[MEMSCOPE_CGROUP_PATH];
    char directory[MEMSCOPE_CGROUP_PATH];
};

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
 * Whether the directory is a group of the controller. For CPUs, any existing directory will do: a v2 group without the
 * controller, like every root group, simply has no quota. A v2 group without the memory controller is accounted to its
 * nearest ancestor with the controller; the root group has no memory.current, but has memory.stat.
 */
static bool settle(struct search *search) {
    if (strcmp(search->controller, "memory") != 0)
        return has_file(search->directory, "");
    if (!search->is_v2)
        return has_file(search->directory, "/memory.usage_in_bytes");
    while (!has_file(search->directory, "/memory.current"))
        if (!climb(search->directory, search->top))
            return has_file(search->directory, "/memory.stat");
    return true;
}

/*
 * Sets top and directory from the mount point and the root of the mount, which is a group. Inside a cgroup namespace, a
 * mount made outside has a root like "/../..": it shows groups whose names this process cannot know, so the process's
 * own group cannot be found by name.
 */
static void try_mount(struct search *search, const char *point, const char *root) {
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

/* Reads a file line by line through a window; a line that does not fit is skipped. */
struct lines {
    int descriptor;
    size_t start, filled;
    char text[2 * MEMSCOPE_CGROUP_PATH + 512];
};

/* The next whole line, its newline replaced by a NUL; NULL at the end. */
static const char *next_line(struct lines *lines) {
    bool is_tail = false;

    for (;;) {
        char *line = lines->text + lines->start;
        char *end = memchr(line, '\n', lines->filled - lines->start);
        ssize_t count;

        if (end) {
            *end = '\0';
            lines->start = (size_t)(end + 1 - lines->text);
            if (!is_tail)
                return line;
            is_tail = false;
            continue;
        }
        lines->filled -= lines->start;
        memmove(lines->text, line, lines->filled);
        lines->start = 0;
        if (lines->filled == sizeof lines->text) {
            lines->filled = 0;
            is_tail = true;
        }
        count = read(lines->descriptor, lines->text + lines->filled, sizeof lines->text - lines->filled);
        if (count == 0 || (count < 0 && errno != EINTR))
            return NULL;
        lines->filled += count > 0 ? (size_t)count : 0;
    }
}

/* Without a list of mounts (a copy of the files, a /proc that hides it), tries the usual mount point. */
static void search_mounts(struct search *search) {
    char path[MEMSCOPE_CGROUP_PATH + 64];
    struct lines lines = {.descriptor = -1};
    struct memscope_cgroup_mount mount;
    const char *line;

    search->status = MEMSCOPE_NOT_FOUND;
    if (join(path, sizeof path, search->proc_root, "/self/mountinfo") == MEMSCOPE_OK)
        lines.descriptor = memscope_descriptor_open(path, O_RDONLY);
    if (lines.descriptor < 0) {
        snprintf(path, sizeof path, "/sys/fs/cgroup%s%s", search->is_v2 ? "" : "/",
                 search->is_v2 ? "" : search->controller);
        try_mount(search, path, "/");
        return;
    }
    while (search->status != MEMSCOPE_OK && (line = next_line(&lines)))
        if (memscope_cgroup_parse_mount(line, search->controller, &mount) && mount.is_v2 == search->is_v2)
            try_mount(search, mount.point, mount.root);
    memscope_descriptor_close(lines.descriptor);
}

/* Finds the process's group of the controller and sets search->path. */
static enum memscope_status find_group(struct memscope_cgroup_membership *member, struct search *search) {
    char text[TEXT_CAPACITY];
    char path[MEMSCOPE_CGROUP_PATH + 64];
    size_t length;
    enum memscope_status status = MEMSCOPE_TRUNCATED;

    if (snprintf(path, sizeof path, "%s/%s/cgroup", search->proc_root, search->process) < (int)sizeof path)
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

/* Sets version, path, directory, and top: the mount point, which is the highest visible directory. */
static enum memscope_status find_memory_group(struct search search, struct memscope_cgroup *cgroup, char *top) {
    struct memscope_cgroup_membership member;
    enum memscope_status status = find_group(&member, &search);

    if (!search.path)
        return status;
    if (member.has_v1)
        cgroup->version = member.has_v2 ? MEMSCOPE_CGROUP_HYBRID : MEMSCOPE_CGROUP_V1;
    else if (status == MEMSCOPE_OK || !search.is_mounted)
        cgroup->version = MEMSCOPE_CGROUP_V2;
    memcpy(cgroup->path, search.path, sizeof cgroup->path);
    if (status != MEMSCOPE_OK)
        return status;
    memcpy(cgroup->directory, search.directory, sizeof cgroup->directory);
    memcpy(top, search.top, sizeof search.top);
    return MEMSCOPE_OK;
}

/* One group's own quota. v1 has it in two files. */
static void read_quota(const struct search *search, struct memscope_cgroup_cpus *cpus) {
    struct loaded_file file = {.name = NULL};
    char text[128];
    int length;

    cpus->file = search->is_v2 ? "cpu.max" : "cpu.cfs_quota_us";
    load(&file, search->directory, cpus->file);
    cpus->status = file.status;
    if (file.status != MEMSCOPE_OK)
        return;
    length = snprintf(text, sizeof text, "%.*s", (int)strcspn(file.text, "\n"), file.text);
    if (!search->is_v2) {
        load(&file, search->directory, "cpu.cfs_period_us");
        cpus->status = file.status;
        if (file.status != MEMSCOPE_OK)
            return;
        if ((size_t)length < sizeof text)
            snprintf(text + length, sizeof text - (size_t)length, " %.32s", file.text);
    }
    memscope_cgroup_parse_quota(text, cpus);
}

static bool is_quota(const struct memscope_cgroup_cpus *cpus) {
    return cpus->status == MEMSCOPE_OK && !cpus->unlimited;
}

/* The smallest quota from the group up to the root of the mount. A group without the file has no quota. */
static void read_cpus(struct search search, struct memscope_cgroup_cpus *cpus) {
    struct memscope_cgroup_membership member;

    cpus->status = find_group(&member, &search);
    if (cpus->status != MEMSCOPE_OK)
        return;
    *cpus = (struct memscope_cgroup_cpus){.status = MEMSCOPE_NOT_FOUND};
    do {
        struct memscope_cgroup_cpus own = {0};

        read_quota(&search, &own);
        if (own.status != MEMSCOPE_OK && own.status != MEMSCOPE_NOT_FOUND) {
            *cpus = own;
            return;
        }
        if (cpus->status != MEMSCOPE_OK || (is_quota(&own) && (!is_quota(cpus) || own.count < cpus->count)))
            *cpus = own;
    } while (climb(search.directory, search.top));
}

/* "MemTotal:  24684092 kB" */
static void read_host_memory(const char *proc_root, struct memscope_cgroup_figure *total) {
    static const char key[] = "MemTotal:";
    char path[MEMSCOPE_CGROUP_PATH + 64];
    char text[TEXT_CAPACITY];
    const char *line = text;
    size_t length;

    total->file = "meminfo";
    total->status = join(path, sizeof path, proc_root, "/meminfo");
    if (total->status == MEMSCOPE_OK)
        total->status = memscope_text_file_read(path, text, sizeof text, &length);
    if (total->status != MEMSCOPE_OK)
        return;
    total->status = MEMSCOPE_MALFORMED;
    if (strncmp(line, key, sizeof key - 1) != 0)
        return;
    line += sizeof key - 1;
    line += strspn(line, " ");
    if (!memscope_text_decimal(&line, &total->value) || strncmp(line, " kB", 3) != 0 ||
        total->value > UINT64_MAX / 1024)
        return;
    total->value *= 1024;
    total->status = MEMSCOPE_OK;
}

enum memscope_status memscope_cgroup_read(const char *process, const char *proc_root, const char *cgroup_root,
                                          struct memscope_cgroup *cgroup) {
    char top[MEMSCOPE_CGROUP_PATH];
    struct loaded_file file = {.name = NULL};
    struct search search = {
        .proc_root = proc_root, .process = process, .cgroup_root = cgroup_root, .controller = "cpu"};
    enum memscope_status status;

    memset(cgroup, 0, sizeof *cgroup);
    read_host_memory(proc_root, &cgroup->host_memory);
    read_cpus(search, &cgroup->cpus);
    search.controller = "memory";
    status = find_memory_group(search, cgroup, top);
    if (status != MEMSCOPE_OK) {
        mark_unread(cgroup, status);
        return status;
    }
    read_sources(cgroup, &file, figure_sources, MEMSCOPE_CGROUP_FIGURE_COUNT, cgroup->figures);
    read_sources(cgroup, &file, event_sources, MEMSCOPE_CGROUP_EVENT_COUNT, cgroup->events);
    read_pressure(cgroup, &file);
    read_limits(cgroup, &file, top);
    derive(cgroup);
    return MEMSCOPE_OK;
}

#else

enum memscope_status memscope_cgroup_read(const char *process, const char *proc_root, const char *cgroup_root,
                                          struct memscope_cgroup *cgroup) {
    (void)process;
    (void)proc_root;
    (void)cgroup_root;
    memset(cgroup, 0, sizeof *cgroup);
    mark_unread(cgroup, MEMSCOPE_UNSUPPORTED);
    cgroup->host_memory.status = MEMSCOPE_UNSUPPORTED;
    cgroup->cpus.status = MEMSCOPE_UNSUPPORTED;
    return MEMSCOPE_UNSUPPORTED;
}

#endif
