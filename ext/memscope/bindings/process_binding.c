/*
 * Memscope.rss and Native.process_memory(process): process is "self" or a pid, as a String. Init_ also makes forked
 * children close the descriptors that the engine opened.
 */
#include "bindings/reasons.h"
#include "bindings/without_children.h"

#include "base/descriptors.h"
#include "init.h"
#include "kernel/process.h"

#include <string.h>

/* Memscope.rss: the fast path. Keeps the GVL, since releasing it costs more than the reading. */
static VALUE native_rss(VALUE self) {
    struct memscope_statm statm;

    return memscope_statm_read(&statm) == MEMSCOPE_OK ? SIZET2NUM(statm.resident_bytes) : Qnil;
}

#define FIGURE(field, source, key, unit) #field,
static const char *const names[] = {
#include "kernel/process_memory.def"
};

/* The field of /proc/PID/status with the same figure, or the field itself. */
static enum memscope_process_field fallback_of(enum memscope_process_field field) {
    switch (field) {
    case MEMSCOPE_PROCESS_rss_bytes:
        return MEMSCOPE_PROCESS_status_rss_bytes;
    case MEMSCOPE_PROCESS_anonymous_bytes:
        return MEMSCOPE_PROCESS_status_anonymous_bytes;
    case MEMSCOPE_PROCESS_swap_bytes:
        return MEMSCOPE_PROCESS_status_swap_bytes;
    default:
        return field;
    }
}

static const char *const file_names[] = {
    [MEMSCOPE_PROCESS_STATUS] = "status",
    [MEMSCOPE_PROCESS_SMAPS_ROLLUP] = "smaps_rollup",
};

struct scan {
    const char *process;
    struct memscope_process_memory memory;
};

static VALUE path_of(const struct scan *scan, enum memscope_process_source source) {
    return rb_sprintf("/proc/%s/%s", scan->process, file_names[source]);
}

static VALUE absence_of(const struct scan *scan, enum memscope_process_field field) {
    const struct memscope_process_memory *memory = &scan->memory;
    enum memscope_process_source source = memscope_process_source_of(field);
    enum memscope_status status = source == MEMSCOPE_PROCESS_STATUS ? memory->status : memory->smaps_rollup;
    VALUE path = path_of(scan, source);

    if (status != MEMSCOPE_OK)
        return memscope_reason_of("unread", path, memscope_status_reason(status));
    return memscope_reason_of("key_absent", path, rb_utf8_str_new_cstr(memscope_process_key_of(field)));
}

static void set_figure(VALUE body, VALUE reasons, const struct scan *scan, enum memscope_process_field field) {
    const struct memscope_process_memory *memory = &scan->memory;
    enum memscope_process_field read = memscope_process_has(memory, field) ? field : fallback_of(field);
    VALUE absence = read == field && memscope_process_has(memory, field) ? Qnil : absence_of(scan, field);

    if (read != field && memscope_process_has(memory, read))
        absence = memscope_reason_of("from_file", path_of(scan, MEMSCOPE_PROCESS_STATUS), absence);
    if (!NIL_P(absence))
        memscope_hash_set(reasons, names[field], absence);
    if (!memscope_process_has(memory, read))
        memscope_hash_set(body, names[field], Qnil);
    else if (field == MEMSCOPE_PROCESS_thp_enabled)
        memscope_hash_set(body, names[field], memory->values[read] ? Qtrue : Qfalse);
    else
        memscope_hash_set(body, names[field], ULL2NUM(memory->values[read]));
}

/* USS: the bytes that would be freed if only this process ended. */
static void set_uss(VALUE body, VALUE reasons, const struct scan *scan) {
    const struct memscope_process_memory *memory = &scan->memory;
    const enum memscope_process_field clean = MEMSCOPE_PROCESS_private_clean_bytes;
    const enum memscope_process_field dirty = MEMSCOPE_PROCESS_private_dirty_bytes;

    if (memscope_process_has(memory, clean) && memscope_process_has(memory, dirty)) {
        memscope_hash_set(body, "uss_bytes", ULL2NUM(memory->values[clean] + memory->values[dirty]));
        return;
    }
    memscope_hash_set(body, "uss_bytes", Qnil);
    memscope_hash_set(reasons, "uss_bytes", absence_of(scan, memscope_process_has(memory, clean) ? dirty : clean));
}

static bool read_memory(void *argument) {
    struct scan *scan = argument;

    memscope_process_memory_read(scan->process, &scan->memory);
    return scan->memory.smaps_rollup == MEMSCOPE_SHARED;
}

/* Native.process_memory. Reads without the GVL, since smaps_rollup walks page tables. */
VALUE native_process_memory(VALUE self, VALUE process) {
    struct scan scan = {.process = StringValueCStr(process)};
    uint64_t start = memscope_now_ns(), without_gvl_ns = memscope_without_children(read_memory, &scan, true);
    VALUE body = rb_hash_new(), reasons = rb_hash_new();

    for (int field = 0; field < MEMSCOPE_PROCESS_FIELD_COUNT; field++)
        if (strncmp(names[field], "status_", 7) != 0) /* only a fallback */
            set_figure(body, reasons, &scan, (enum memscope_process_field)field);
    set_uss(body, reasons, &scan);
    RB_GC_GUARD(process);
    return memscope_finish(body, reasons, "T2", start, without_gvl_ns, 0);
}

void Init_memscope_process(void) {
    memscope_descriptors_guard();
    rb_define_singleton_method(rb_mMemscope, "rss", native_rss, 0);
}
