#include "bindings/dump_file.h"
#include "bindings/heap_call.h"

#include "init.h"
#include "ruby/graph/live_dump.h"
#include "ruby/graph/named_references.h"

#include <ruby/thread.h>

/* ---- this process ---------------------------------------------------------------------------------------------- */

static memscope_slot_rate ns_of_1000_slots = UINT64_C(1000) * MEMSCOPE_DUMP_NS_OF_A_SLOT;

struct dumping {
    struct memscope_heap_call call;
    struct memscope_live_dump asked;
    struct memscope_dump_result result;
    bool collect;
    unsigned deadline_ms;
};

static void write_dump(void *argument, struct memscope_scratch *scratch) {
    struct dumping *dumping = argument;

    memscope_live_dump_write(&dumping->asked, &dumping->call.listing, scratch, &dumping->result);
}

/* Returns the reason why there is no dump, or nil if there is one, or if a write failed. */
static VALUE dump_in_child(struct dumping *dumping) {
    const struct memscope_heap_errand errand = {
        write_dump, dumping, &dumping->result, sizeof dumping->result, dumping->asked.file, dumping->deadline_ms, NULL};
    VALUE refusal;

    dumping->call.child_bytes = memscope_heap_slots() * MEMSCOPE_DUMP_BYTES_OF_A_SLOT;
    memscope_heap_call_begin(&dumping->call);
    if (!NIL_P(refusal = memscope_heap_call_without_room(&dumping->call)))
        return refusal;
    memscope_heap_call_settle(&dumping->call, dumping->collect);
    if (!NIL_P(refusal = memscope_heap_call_list(&dumping->call, "references_unreadable")) ||
        !NIL_P(refusal = memscope_heap_call_ask(&dumping->call, &errand)))
        return refusal;
    return dumping->result.status == MEMSCOPE_OK ? Qnil : memscope_unread("objects", dumping->result.status);
}

static void set_reason_without_ids(VALUE reasons, bool lacks_ids) {
    if (lacks_ids)
        memscope_set_reason(reasons, "numbers", "objects_numbered");
}

static VALUE dump(VALUE argument) {
    struct dumping *dumping = (struct dumping *)argument;
    struct memscope_dump_result *result = &dumping->result;
    VALUE hash, reasons = rb_hash_new(), refusal;

    memscope_named_references_learn();
    refusal = dump_in_child(dumping);
    if (!NIL_P(refusal) || result->error != 0)
        return NIL_P(refusal) ? INT2FIX(result->error) : refusal;
    result->pause_ms = dumping->call.in_child ? (double)dumping->call.child.pause_ns / 1e6 : NAN;
    if (!dumping->call.in_child)
        result->child_bytes = MEMSCOPE_UNKNOWN;
    hash = memscope_dump_figures_hash(&result->dump_figures);
    set_reason_without_ids(reasons, result->lacks_ids);
    return memscope_heap_call_finish(&dumping->call, hash, reasons, "T3", 0);
}

/*
 * file: a descriptor to write to. format and sizes: numbers of enum memscope_dump_format and memscope_size_rule.
 * Returns a Hash or, if no dump was written, a reason or the errno of the failed write.
 */
VALUE native_dump(VALUE self, VALUE file, VALUE format, VALUE sizes, VALUE collect, VALUE deadline_ms) {
    struct dumping dumping = {.call = {.bounded = true, .rate = &ns_of_1000_slots},
                              .asked = {.format = (enum memscope_dump_format)NUM2INT(format),
                                        .sizes = (enum memscope_size_rule)NUM2INT(sizes),
                                        .file = NUM2INT(file),
                                        .time_ns = memscope_clock_ns(CLOCK_REALTIME)},
                              .collect = RTEST(collect),
                              .deadline_ms = NUM2UINT(deadline_ms)};

    return rb_ensure(dump, (VALUE)&dumping, memscope_heap_call_end, (VALUE)&dumping.call);
}

/* ---- a file ---------------------------------------------------------------------------------------------------- */

static void *read_on(void *argument) {
    struct memscope_dump_file *file = argument;

    file->more = memscope_objspace_reader_continue(&file->reader);
    return NULL;
}

static void *resolve(void *argument) {
    struct memscope_dump_file *file = argument;

    memscope_array_keep_in(&file->kept);
    file->status = memscope_objspace_graph_make(&file->reader);
    memscope_array_keep_in(NULL);
    return NULL;
}

enum memscope_status memscope_dump_file_open(struct memscope_dump_file *file, int descriptor) {
    return file->status = memscope_objspace_reader_open(&file->reader, descriptor);
}

void memscope_dump_file_read(struct memscope_dump_file *file) {
    if (file->status != MEMSCOPE_OK)
        return;
    do {
        rb_thread_call_without_gvl(read_on, file, RUBY_UBF_IO, NULL);
        rb_thread_check_ints();
    } while (file->more);
    rb_thread_call_without_gvl(resolve, file, NULL, NULL);
}

bool memscope_dump_file_tells_garbage(const struct memscope_dump_file *file) {
    return file->reader.has_roots && !file->reader.truncated && !memscope_objspace_lacks_objects(&file->reader) &&
           file->reader.unreadable_lines <= file->reader.object_count / 1000;
}

VALUE memscope_dump_file_reason(const struct memscope_dump_file *file) {
    if (file->reader.truncated)
        return memscope_reason("dump_cut");
    if (file->status == MEMSCOPE_OK && !file->reader.has_roots)
        return memscope_reason("dump_without_roots");
    if (file->reader.unreadable_lines > 0)
        return memscope_reason_of("dump_lines_unreadable", ULL2NUM(file->reader.unreadable_lines));
    if (file->reader.missing_references > 0)
        return memscope_reason_of("dump_lacks_objects", ULL2NUM(file->reader.missing_references));
    return Qnil;
}

void memscope_dump_file_set_reasons(const struct memscope_dump_file *file, VALUE reasons, const char *key) {
    VALUE reason = memscope_dump_file_reason(file);

    if (!NIL_P(reason))
        memscope_hash_set(reasons, key, reason);
}

void memscope_dump_file_close(struct memscope_dump_file *file) {
    memscope_objspace_reader_close(&file->reader);
    memscope_kept_mappings_close(&file->kept);
}

struct conversion {
    struct memscope_dump_file file;
    struct memscope_dump_output output;
    enum memscope_dump_format format;
    int to;
};

static void *write_out(void *argument) {
    struct conversion *conversion = argument;

    memscope_heap_dump_write(&conversion->file.reader.dump, conversion->format, &conversion->output);
    memscope_dump_output_flush(&conversion->output);
    return NULL;
}

/* Cannot be interrupted: takes a second or two for millions of objects. */
static void write_all(struct conversion *conversion) {
    conversion->file.reader.dump.sizes = MEMSCOPE_SIZES_EXACT; /* a dump does not have the malloc of its sizes */
    conversion->file.reader.dump.time_ns = memscope_clock_ns(CLOCK_REALTIME);
    if (memscope_dump_output_open(&conversion->output, conversion->to))
        rb_thread_call_without_gvl(write_out, conversion, NULL, NULL);
}

static VALUE convert(VALUE argument) {
    struct conversion *conversion = (struct conversion *)argument;
    uint64_t start = memscope_now_ns(), without_gvl_ns;
    const struct memscope_heap_graph *graph = &conversion->file.reader.graph;
    struct memscope_dump_figures figures = memscope_dump_figures_unknown;
    VALUE hash, reasons = rb_hash_new();

    memscope_dump_file_read(&conversion->file);
    if (conversion->file.status != MEMSCOPE_OK)
        return memscope_status_reason(conversion->file.status);
    memscope_kept_mappings_close(&conversion->file.kept);
    write_all(conversion);
    rb_thread_check_ints();
    if (conversion->output.error != 0)
        return INT2FIX(conversion->output.error);
    without_gvl_ns = memscope_now_ns() - start;
    figures.objects = graph->object_count;
    figures.references = graph->first_edge[graph->slot_count];
    figures.bytes = conversion->output.written;
    hash = memscope_dump_figures_hash(&figures);
    memscope_dump_file_set_reasons(&conversion->file, reasons, "objects");
    set_reason_without_ids(reasons, conversion->file.reader.dump.ids == NULL);
    return memscope_finish(hash, reasons, "T3", start, without_gvl_ns, 0);
}

static VALUE end_conversion(VALUE argument) {
    struct conversion *conversion = (struct conversion *)argument;

    memscope_dump_output_close(&conversion->output);
    memscope_dump_file_close(&conversion->file);
    return Qnil;
}

/* from and to: descriptors. Returns the same as native_dump. */
VALUE native_convert_dump(VALUE self, VALUE from, VALUE to, VALUE format) {
    struct conversion conversion = {.to = NUM2INT(to), .format = (enum memscope_dump_format)NUM2INT(format)};

    memscope_dump_file_open(&conversion.file, NUM2INT(from));
    conversion.file.reader.is_converted = true;
    return rb_ensure(convert, (VALUE)&conversion, end_conversion, (VALUE)&conversion);
}
