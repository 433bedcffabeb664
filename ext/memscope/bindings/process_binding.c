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

struct scan {
    const char *process;
    struct memscope_process_memory memory;
};

static VALUE path_of(const struct scan *scan, const char *file) {
    return rb_sprintf("/proc/%s/%s", scan->process, file);
}

/* The reason why a figure was not found in the first of its places. */
static VALUE absence_of(const struct scan *scan, enum memscope_process_field field) {
    const char *file = memscope_process_places[field].places[0].file;
    enum memscope_status status = strcmp(file, "status") == 0 ? scan->memory.status : scan->memory.smaps_rollup;

    if (status != MEMSCOPE_OK)
        return memscope_reason_of("unread", path_of(scan, file), memscope_status_reason(status));
    return memscope_reason_of("key_absent", path_of(scan, file),
                              rb_utf8_str_new_cstr(memscope_process_places[field].places[0].key));
}

static VALUE reasons_to_hash(const struct scan *scan) {
    const struct memscope_process_memory *memory = &scan->memory;
    bool knows_clean = memory->figures.private_clean_bytes != MEMSCOPE_UNKNOWN;
    VALUE reasons = rb_hash_new();

    for (int field = 0; field < MEMSCOPE_PROCESS_FIELD_COUNT; field++) {
        const struct memscope_process_places *figure = &memscope_process_places[field];
        VALUE absence = Qnil;

        if ((memory->found[0] >> field & 1) != 0)
            continue;
        absence = absence_of(scan, (enum memscope_process_field)field);
        if ((memory->found[1] >> field & 1) != 0)
            absence = memscope_reason_of("from_file", path_of(scan, figure->places[1].file), absence);
        memscope_hash_set(reasons, figure->name, absence);
    }
    if (memory->figures.uss_bytes == MEMSCOPE_UNKNOWN)
        memscope_hash_set(reasons, "uss_bytes",
                          absence_of(scan, knows_clean ? MEMSCOPE_PROCESS_private_dirty_bytes
                                                       : MEMSCOPE_PROCESS_private_clean_bytes));
    return reasons;
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
    VALUE reasons = reasons_to_hash(&scan);

    RB_GC_GUARD(process);
    return memscope_finish(memscope_process_figures_hash(&scan.memory.figures), reasons, "T2", start, without_gvl_ns,
                           0);
}

void Init_memscope_process(void) {
    memscope_descriptors_guard();
    rb_define_singleton_method(rb_mMemscope, "rss", native_rss, 0);
}
