/*
 * Native.cgroup(process, proc_root, cgroup_root): process is "self" or a pid, as a String.
 */
#include "bindings/reasons.h"

#include "init.h"
#include "kernel/cgroup.h"

static const char *const version_names[] = {
    [MEMSCOPE_CGROUP_NONE] = "none",
    [MEMSCOPE_CGROUP_V1] = "v1",
    [MEMSCOPE_CGROUP_HYBRID] = "hybrid",
    [MEMSCOPE_CGROUP_V2] = "v2",
};

#define FIGURE(field, type, v2_file, v2_key, v1_file, v1_key) #field,
#define EVENT(name, v2_file, v2_key, v1_file, v1_key) #name,
static const char *const figure_names[] = {MEMSCOPE_FIGURES_Cgroup(FIGURE)
#include "kernel/cgroup_events.def"
};
#undef FIGURE

/* The answer that is being built, and the reading that it is built from. */
struct answer {
    const struct memscope_cgroup *cgroup;
    VALUE body, reasons;
};

static VALUE group_absence(const struct answer *answer, enum memscope_status status) {
    bool unread = !*answer->cgroup->path && status != MEMSCOPE_NOT_FOUND && status != MEMSCOPE_OK;

    if (answer->cgroup->version == MEMSCOPE_CGROUP_NONE)
        return unread ? memscope_reason_of("cgroup_file_unread", memscope_status_reason(status))
                      : memscope_reason("cgroup_absent");
    return memscope_reason_of("cgroup_directory_unread", memscope_status_reason(status));
}

static VALUE absence_of(const struct answer *answer, const struct memscope_cgroup_figure *figure) {
    if (figure->status == MEMSCOPE_OK)
        return memscope_reason_of("unlimited", rb_utf8_str_new_cstr(figure->file));
    if (figure->file)
        return memscope_unread(figure->file, figure->status);
    if (*answer->cgroup->directory)
        return memscope_reason_of(
            "figure_absent",
            rb_utf8_str_new_cstr(answer->cgroup->version == MEMSCOPE_CGROUP_V2 ? "cgroup v2" : "cgroup v1"));
    return group_absence(answer, figure->status);
}

static void set_figure(struct answer *answer, const char *key, const struct memscope_cgroup_figure *figure) {
    memscope_hash_set(answer->body, key, memscope_cgroup_is_known(figure) ? ULL2NUM(figure->value) : Qnil);
    if (!memscope_cgroup_is_known(figure))
        memscope_hash_set(answer->reasons, key, absence_of(answer, figure));
}

static void set_headroom(struct answer *answer) {
    const struct memscope_cgroup *cgroup = answer->cgroup;

    set_figure(answer, "headroom_bytes", &cgroup->headroom);
    if (memscope_cgroup_is_known(&cgroup->headroom))
        memscope_hash_set(answer->body, "headroom_bytes", LL2NUM((int64_t)cgroup->headroom.value));
    set_figure(answer, "hierarchy_headroom_bytes", &cgroup->hierarchy_headroom);
    if (cgroup->hierarchy_headroom.status == MEMSCOPE_NOT_FOUND && *cgroup->directory)
        memscope_set_reason(answer->reasons, "hierarchy_headroom_bytes", "limit_group_hidden");
}

/* Sets only the events that this cgroup version counts. */
static void set_events(struct answer *answer) {
    VALUE events = rb_hash_new();

    for (size_t index = MEMSCOPE_CGROUP_EVENTS; index < MEMSCOPE_CGROUP_FIELDS; index++) {
        const struct memscope_cgroup_figure *event = &answer->cgroup->figures[index];

        if (memscope_cgroup_is_known(event))
            memscope_hash_set(events, figure_names[index], ULL2NUM(event->value));
    }
    memscope_hash_set(answer->body, "events", RHASH_EMPTY_P(events) ? Qnil : events);
    if (RHASH_EMPTY_P(events))
        memscope_hash_set(answer->reasons, "events",
                          absence_of(answer, &answer->cgroup->figures[MEMSCOPE_CGROUP_EVENT_oom_kill]));
}

static VALUE stall_to_hash(const struct memscope_cgroup_stall *stall) {
    return memscope_hash_of({"avg10", DBL2NUM(stall->avg10)}, {"avg60", DBL2NUM(stall->avg60)},
                            {"avg300", DBL2NUM(stall->avg300)}, {"total_us", ULL2NUM(stall->total_us)});
}

static void set_pressure(struct answer *answer) {
    const struct memscope_cgroup *cgroup = answer->cgroup;
    struct memscope_cgroup_figure absence = {.status = cgroup->pressure_status};

    if (cgroup->pressure_status == MEMSCOPE_OK) {
        memscope_hash_set(answer->body, "pressure",
                          memscope_hash_of({"some", stall_to_hash(&cgroup->pressure.some)},
                                           {"full", stall_to_hash(&cgroup->pressure.full)}));
        return;
    }
    if (cgroup->version == MEMSCOPE_CGROUP_V2 && *cgroup->directory)
        absence.file = "memory.pressure";
    set_figure(answer, "pressure", &absence);
}

static void set_cpu_limit(struct answer *answer) {
    const struct memscope_cgroup_cpus *cpus = &answer->cgroup->cpus;
    struct memscope_cgroup_figure absence = {.status = cpus->status, .file = cpus->file, .unlimited = true};

    if (cpus->status == MEMSCOPE_OK && !cpus->unlimited)
        memscope_hash_set(answer->body, "cpu_limit", DBL2NUM(cpus->count));
    else if (cpus->file)
        set_figure(answer, "cpu_limit", &absence);
    else
        memscope_set_reason_of(answer->reasons, "cpu_limit", "cpu_group_unread", memscope_status_reason(cpus->status));
}

static void set_place(struct answer *answer, enum memscope_status status) {
    const struct memscope_cgroup *cgroup = answer->cgroup;

    memscope_hash_add(answer->body, {"version", memscope_symbol(version_names[cgroup->version])},
                      {"path", memscope_text_or_nil(cgroup->path)},
                      {"directory", memscope_text_or_nil(cgroup->directory)},
                      {"limit_directory", memscope_text_or_nil(cgroup->limit_directory)});
    if (cgroup->version == MEMSCOPE_CGROUP_NONE)
        memscope_hash_set(answer->reasons, "version",
                          *cgroup->path ? memscope_reason("memory_controller_absent")
                                        : memscope_reason_of("cgroup_file_unread", memscope_status_reason(status)));
    if (!*cgroup->path)
        memscope_hash_set(answer->reasons, "path", group_absence(answer, status));
    if (!*cgroup->directory)
        memscope_hash_set(answer->reasons, "directory", group_absence(answer, status));
    if (!*cgroup->limit_directory)
        memscope_hash_set(answer->reasons, "limit_directory",
                          memscope_cgroup_is_known(&cgroup->figures[MEMSCOPE_CGROUP_limit_bytes])
                              ? memscope_reason("limit_group_hidden")
                              : absence_of(answer, &cgroup->figures[MEMSCOPE_CGROUP_limit_bytes]));
}

struct cgroup_scan {
    const char *process, *proc_root, *cgroup_root;
    struct memscope_cgroup cgroup;
    enum memscope_status status;
};

static void read_cgroup(void *argument) {
    struct cgroup_scan *scan = argument;

    scan->status = memscope_cgroup_read(scan->process, scan->proc_root, scan->cgroup_root, &scan->cgroup);
}

/*
 * Native.cgroup. Reads without the GVL: the kernel flushes its statistics when memory.stat is read, which takes
 * milliseconds in a tree of many groups. The roots, which a user gave, are frozen copies, since another thread may
 * change the Strings. `process` is a String that only memscope's own Ruby code has.
 */
VALUE native_cgroup(VALUE self, VALUE process, VALUE proc_root, VALUE cgroup_root) {
    uint64_t start = memscope_now_ns();
    struct cgroup_scan scan;
    struct answer answer = {.cgroup = &scan.cgroup};
    uint64_t without_gvl_ns;

    proc_root = rb_str_new_frozen(rb_str_to_str(proc_root));
    cgroup_root = rb_str_new_frozen(rb_str_to_str(cgroup_root));
    scan.process = StringValueCStr(process);
    scan.proc_root = StringValueCStr(proc_root);
    scan.cgroup_root = StringValueCStr(cgroup_root);
    without_gvl_ns = memscope_without_gvl(read_cgroup, &scan);
    RB_GC_GUARD(process);
    RB_GC_GUARD(proc_root);
    RB_GC_GUARD(cgroup_root);
    answer.body = rb_hash_new();
    answer.reasons = rb_hash_new();
    set_place(&answer, scan.status);
    for (size_t index = 0; index < MEMSCOPE_CGROUP_EVENTS; index++)
        set_figure(&answer, figure_names[index], &scan.cgroup.figures[index]);
    set_figure(&answer, "working_set_bytes", &scan.cgroup.working_set);
    set_headroom(&answer);
    set_figure(&answer, "host_memory_bytes", &scan.cgroup.host_memory);
    set_cpu_limit(&answer);
    set_events(&answer);
    set_pressure(&answer);
    return memscope_finish(answer.body, answer.reasons, "T1", start, without_gvl_ns, 0);
}
