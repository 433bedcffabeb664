#include "bindings/dump_file.h"
#include "bindings/heap_graph_binding.h"
#include "bindings/reasons.h"

#include "dump/dump_growth.h"
#include "graph/top_rows.h"
#include "init.h"

#define MIN_DUMPS 2
#define MAX_DUMPS 3

struct growth_scan {
    VALUE descriptors;
    struct memscope_dump_file files[MAX_DUMPS];
    int count; /* of files, the last of which has the new objects */
    struct memscope_dump_growth growth;
    struct memscope_heap_question question;
    struct memscope_shared_room room;
    struct memscope_heap_answer answer;
    enum memscope_status status;
    VALUE refusal;    /* the reason why there is no answer, or nil */
    VALUE incomplete; /* an Array of dumps and their missing parts */
};

/* ---- the dumps ------------------------------------------------------------------------------------------------- */

static void open_files(struct growth_scan *scan) {
    for (int index = 0; index < scan->count; index++) {
        memscope_dump_file_open(&scan->files[index], NUM2INT(rb_ary_entry(scan->descriptors, index)));
        scan->files[index].reader.is_compared = true;
    }
}

/* Keeps the references of the last dump only. */
static bool read_files(struct growth_scan *scan) {
    for (int index = 0; index < scan->count; index++) {
        struct memscope_dump_file *file = &scan->files[index];
        VALUE reason;

        memscope_dump_file_read(file);
        if (file->status != MEMSCOPE_OK) {
            scan->refusal =
                memscope_reason_of("one_dump_unread", INT2FIX(index + 1), memscope_status_reason(file->status));
            return false;
        }
        reason = memscope_dump_file_reason(file);
        if (!NIL_P(reason))
            rb_ary_push(scan->incomplete, memscope_reason_of("unread", rb_sprintf("dump %d", index + 1), reason));
        memscope_kept_mappings_close(&file->kept);
        if (index < scan->count - 1)
            memscope_objspace_graph_drop_edges(&file->reader);
    }
    return true;
}

/* Runs without the GVL. */
static void compare(void *argument) {
    struct growth_scan *scan = argument;

    scan->growth.first = &scan->files[0].reader;
    scan->growth.second = scan->count == MAX_DUMPS ? &scan->files[1].reader : NULL;
    scan->growth.last = &scan->files[scan->count - 1].reader;
    scan->status = memscope_dump_growth_open(&scan->growth);
    if (scan->status == MEMSCOPE_OK)
        scan->status = memscope_shared_room_open(&scan->room);
    if (scan->status != MEMSCOPE_OK)
        return;
    scan->question.growth = &scan->growth;
    memscope_heap_answer_of_dump(&scan->question, &scan->growth.last->dump, &scan->room, &scan->answer);
    scan->status = scan->answer.status;
}

/* ---- the reading ----------------------------------------------------------------------------------------------- */

static VALUE class_hash(const struct growth_scan *scan, uint32_t name) {
    return memscope_hash_add(memscope_growth_row_hash(&scan->growth.classes[name]),
                             {"name", memscope_name_value(&scan->growth.last->graph.names, name)});
}

static VALUE site_hash(const struct growth_scan *scan, uint32_t name) {
    const struct memscope_growth_row *row = &scan->growth.sites[name];
    const struct memscope_site_row site = {.name = name, .count = row->new_count, .bytes = row->new_bytes};

    return memscope_site_row_named_hash(&site, &scan->growth.last->graph.names);
}

/* The rows with the largest new bytes or growth. Name 0 stands for objects whose site is not stated. */
static VALUE rows_array(const struct growth_scan *scan, const struct memscope_growth_row *rows,
                        VALUE (*convert)(const struct growth_scan *, uint32_t)) {
    struct memscope_top_rows largest;
    VALUE list = rb_ary_new();

    if (memscope_top_rows_open(&largest, scan->question.top) != MEMSCOPE_OK)
        rb_memerror();
    for (uint32_t name = 1; name < scan->growth.name_count; name++) {
        uint64_t grown = rows[name].bytes > 0 ? (uint64_t)rows[name].bytes : 0;

        memscope_top_rows_offer(&largest, rows[name].new_bytes > grown ? rows[name].new_bytes : grown, name);
    }
    memscope_top_rows_sort(&largest);
    for (size_t index = 0; index < largest.count; index++)
        rb_ary_push(list, convert(scan, largest.items[index].number));
    memscope_top_rows_close(&largest);
    return list;
}

static VALUE paths_array(const struct growth_scan *scan) {
    VALUE list = rb_ary_new();

    for (size_t index = 0; index < scan->answer.path_count; index++)
        rb_ary_push(list, memscope_path_hash(&scan->answer, NULL, &scan->answer.paths[index]));
    return list;
}

static VALUE reasons_hash(const struct growth_scan *scan) {
    const struct memscope_dump_file *last = &scan->files[scan->count - 1];
    VALUE reasons = rb_hash_new();

    if (!NIL_P(scan->refusal)) {
        memscope_hash_set(reasons, "new_count", scan->refusal);
        return reasons;
    }
    if (RARRAY_LEN(scan->incomplete) > 0)
        memscope_hash_set(reasons, "new_count", scan->incomplete);
    if (scan->answer.saturated_count > 0)
        memscope_set_reason_of(reasons, "bytes", "objects_saturated", ULL2NUM(scan->answer.saturated_count));
    /* Objects that an incomplete first dump lacks look new, so no figure is a lower bound. */
    if (!scan->growth.knows_generations && NIL_P(memscope_dump_file_reason(&scan->files[0])))
        memscope_set_reason(reasons, "new_bytes", "objects_by_address");
    else if (scan->growth.untraced_count > 0)
        memscope_set_reason_of(reasons, "new_bytes", "objects_untraced", ULL2NUM(scan->growth.untraced_count));
    if (!scan->growth.knows_sites)
        memscope_set_reason(reasons, "sites", "dump_without_sites");
    memscope_set_reason(reasons, "paths", last->reader.named_count > 0 ? "dump_with_some_names" : "dump_without_names");
    return reasons;
}

static VALUE growth_hash(struct growth_scan *scan) {
    const struct memscope_dump_growth *growth = &scan->growth;
    bool known = NIL_P(scan->refusal);
    const struct memscope_growth_figures figures = {.total_count = growth->count,
                                                    .total_bytes = growth->bytes,
                                                    .new_count = growth->added.count,
                                                    .new_bytes = growth->added.bytes,
                                                    .new_garbage_count = growth->garbage.count,
                                                    .new_garbage_bytes = growth->garbage.bytes,
                                                    .path_count = scan->answer.totals.path_count};

    return memscope_hash_add(memscope_growth_figures_hash(known ? &figures : &memscope_growth_figures_unknown),
                             {"classes", known ? rows_array(scan, growth->classes, class_hash) : rb_ary_new()},
                             {"sites", known ? rows_array(scan, growth->sites, site_hash) : rb_ary_new()},
                             {"paths", paths_array(scan)});
}

static VALUE read_growth(VALUE argument) {
    struct growth_scan *scan = (struct growth_scan *)argument;
    uint64_t start_ns = memscope_now_ns(), without_gvl_ns;
    VALUE hash;

    open_files(scan);
    if (read_files(scan)) {
        memscope_without_gvl(compare, scan);
        if (scan->status == MEMSCOPE_NOT_FOUND)
            scan->refusal =
                RARRAY_LEN(scan->incomplete) > 0 ? scan->incomplete : memscope_reason("dumps_of_several_processes");
        else if (scan->status != MEMSCOPE_OK)
            scan->refusal = memscope_reason_of("dump_unread", memscope_status_reason(scan->status));
    }
    without_gvl_ns = memscope_now_ns() - start_ns;
    hash = growth_hash(scan);
    return memscope_finish(hash, reasons_hash(scan), "T3", start_ns, without_gvl_ns, scan->room.used);
}

static VALUE close_growth(VALUE argument) {
    struct growth_scan *scan = (struct growth_scan *)argument;

    memscope_dump_growth_close(&scan->growth);
    memscope_shared_room_close(&scan->room);
    for (int index = 0; index < scan->count; index++)
        memscope_dump_file_close(&scan->files[index]);
    return Qnil;
}

/* files: the descriptors of two or three dumps, the earliest first. */
VALUE native_heap_growth(VALUE self, VALUE files, VALUE top) {
    long count = RARRAY_LEN(files);
    struct growth_scan scan = {.descriptors = files,
                               .count = (int)count,
                               .question = {.top = NUM2UINT(top)},
                               .refusal = Qnil,
                               .incomplete = rb_ary_new()};

    if (count < MIN_DUMPS || count > MAX_DUMPS)
        rb_raise(rb_eArgError, "Native.heap_growth: files: given %ld, allowed: %d to %d", count, MIN_DUMPS, MAX_DUMPS);
    return rb_ensure(read_growth, (VALUE)&scan, close_growth, (VALUE)&scan);
}
