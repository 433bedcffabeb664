#include "kernel/cgroup.h"

#include "base/text_file.h"
#include "kernel/cgroup_search.h"
#include "kernel/cgroup_text.h"

#include <stdio.h>
#include <string.h>

/* Marks every figure unread, for one reason. */
static void mark_unread(struct memscope_cgroup *cgroup, enum memscope_status status) {
    for (size_t index = 0; index < MEMSCOPE_CGROUP_FIELDS; index++)
        cgroup->figures[index].status = status;
    cgroup->working_set.status = cgroup->headroom.status = cgroup->hierarchy_headroom.status = status;
    cgroup->pressure_status = status;
}

/* One file of one directory, as far as it fits. Consecutive rows of the tables that name the same file share it. */
struct loaded_file {
    const char *directory;
    const char *name; /* NULL before the first file */
    enum memscope_status status;
    char text[MEMSCOPE_CGROUP_TEXT];
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
    if (file->status == MEMSCOPE_TRUNCATED) { /* of its last line, a part may be missing */
        char *last = strrchr(file->text, '\n');

        *(last == NULL ? file->text : last) = '\0';
    }
}

/* Where a figure is. */
struct place {
    const char *file, *key;
};

static struct memscope_cgroup_figure read_figure(struct loaded_file *file, const char *directory, struct place place) {
    struct memscope_cgroup_figure figure = {.file = place.file, .status = MEMSCOPE_UNSUPPORTED};

    if (!place.file)
        return figure;
    load(file, directory, place.file);
    figure.status = file->status;
    if (file->status == MEMSCOPE_OK || (file->status == MEMSCOPE_TRUNCATED && place.key))
        memscope_cgroup_parse_figure(file->text, place.key, &figure);
    return figure;
}

struct source {
    struct place v2, v1;
};

static struct place place_of(const struct memscope_cgroup *cgroup, const struct source *source) {
    return cgroup->version == MEMSCOPE_CGROUP_V2 ? source->v2 : source->v1;
}

#define FIGURE(field, type, v2_file, v2_key, v1_file, v1_key) {{v2_file, v2_key}, {v1_file, v1_key}},
#define EVENT(name, v2_file, v2_key, v1_file, v1_key) {{v2_file, v2_key}, {v1_file, v1_key}},
static const struct source sources[] = {MEMSCOPE_FIGURES_Cgroup(FIGURE)
#include "kernel/cgroup_events.def"
};
#undef FIGURE

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
 * Lowers `limit` to an ancestor's. If the ancestor's file cannot be read, the limit becomes unknown. If it does not
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

/* Usage minus inactive file pages, or a copy of an unknown one of the two, which carries the reason. */
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
    const struct source *cache = &sources[MEMSCOPE_CGROUP_inactive_file_bytes];
    struct memscope_cgroup_figure current, inactive, used;
    uint64_t room;

    if (cgroup->hierarchy_headroom.status != MEMSCOPE_OK)
        return;
    current = read_figure(file, directory, place_of(cgroup, &sources[MEMSCOPE_CGROUP_current_bytes]));
    inactive = read_figure(file, directory, place_of(cgroup, cache));
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
 * Walks up from the group itself. If v1's hierarchical_memory_limit exists, it is the limit. If an ancestor still has a
 * smaller limit, memory.use_hierarchy is 0 (kernels before 5.11), and that limit does not apply.
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
        own = read_figure(file, directory, (struct place){is_v2 ? "memory.max" : "memory.limit_in_bytes", NULL});
        if (is_settled && memscope_cgroup_is_known(&own) && own.value < limit->value)
            break;
        apply_limit(cgroup, file, directory, &own, is_settled);
        if (!is_v2)
            continue;
        own = read_figure(file, directory, (struct place){"memory.high", NULL});
        tighten(&cgroup->figures[MEMSCOPE_CGROUP_high_bytes], &own);
        own = read_figure(file, directory, (struct place){"memory.swap.max", NULL});
        tighten(&cgroup->figures[MEMSCOPE_CGROUP_swap_limit_bytes], &own);
    } while (memscope_cgroup_climb(directory, top));
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

/* Sets version, path, directory, and top: the mount point, which is the highest visible directory. */
static enum memscope_status find_memory_group(struct memscope_cgroup_search search, struct memscope_cgroup *cgroup,
                                              char *top) {
    struct memscope_cgroup_membership member;
    enum memscope_status status = memscope_cgroup_find(&search, &member);

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
static void read_quota(const struct memscope_cgroup_search *search, struct memscope_cgroup_cpus *cpus) {
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
static void read_cpus(struct memscope_cgroup_search search, struct memscope_cgroup_cpus *cpus) {
    struct memscope_cgroup_membership member;

    cpus->status = memscope_cgroup_find(&search, &member);
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
    } while (memscope_cgroup_climb(search.directory, search.top));
}

static void read_host_memory(const char *proc_root, struct memscope_cgroup_figure *total) {
    char path[MEMSCOPE_CGROUP_PATH + 64];
    char text[MEMSCOPE_CGROUP_TEXT];
    size_t length;

    total->file = "meminfo";
    total->status = MEMSCOPE_TRUNCATED;
    if (snprintf(path, sizeof path, "%s/meminfo", proc_root) < (int)sizeof path)
        total->status = memscope_text_file_read(path, text, sizeof text, &length);
    if (total->status == MEMSCOPE_OK && !memscope_text_bytes(text, "MemTotal", &total->value))
        total->status = MEMSCOPE_MALFORMED;
}

enum memscope_status memscope_cgroup_read(const char *process, const char *proc_root, const char *cgroup_root,
                                          struct memscope_cgroup *cgroup) {
    char top[MEMSCOPE_CGROUP_PATH];
    struct loaded_file file = {.name = NULL};
    struct memscope_cgroup_search search = {
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
    for (size_t index = 0; index < MEMSCOPE_CGROUP_FIELDS; index++)
        cgroup->figures[index] = read_figure(&file, cgroup->directory, place_of(cgroup, &sources[index]));
    read_pressure(cgroup, &file);
    read_limits(cgroup, &file, top);
    derive(cgroup);
    return MEMSCOPE_OK;
}
