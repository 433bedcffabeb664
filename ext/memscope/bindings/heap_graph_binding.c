#include "bindings/heap_graph_binding.h"
#include "bindings/dump_file.h"
#include "bindings/heap_call.h"

#include "dump/dump_sites.h"
#include "init.h"
#include "ruby/graph/named_references.h"
#include "ruby/sample/object_sampler.h"

#include <string.h>

/* Bytes that a child and its answer take for a thousand slots: initially a measured value, then the last child's. */
static memscope_slot_rate bytes_of_1000_slots = 110000;

/* First as measured on an idle machine, then by the last answer. */
static memscope_slot_rate ns_of_1000_slots = 600000;

struct graph_scan {
    struct memscope_heap_call call;
    struct memscope_heap_question question;
    struct memscope_shared_room room;
    struct memscope_heap_answer answer;
    struct memscope_dump_file file;
    struct memscope_dump_sites sites;
    bool of_file; /* of a dump instead of this process */
    bool constants_named;
    unsigned deadline_ms;
    VALUE globals;      /* the String that question.globals are in */
    VALUE kept_globals; /* an Array of their values, until their addresses are taken */
    VALUE sampled;      /* a String of struct memscope_sampled_object, the targets of the paths, or nil */
    VALUE refusal;      /* the reason why there is no answer, or nil */
};

/* ---- global variables ------------------------------------------------------------------------------------------ */

static VALUE value_of_global(VALUE name) {
    return rb_gv_get(RSTRING_PTR(name));
}

/* $! and the like: Ruby's own, of the running frame or thread. A program's have a letter, as in $k. */
static bool is_special(VALUE name) {
    return (RSTRING_LEN(name) < 3 && !rb_isalpha(RSTRING_PTR(name)[1])) || strcmp(RSTRING_PTR(name), "$FILENAME") == 0;
}

/*
 * Only Ruby itself can list global variables, and not in a child. Reading a variable of Ruby or of a C extension may
 * run code, which a signal may end. $FILENAME, which opens the next file of ARGF, is not read.
 */
static void list_globals(struct graph_scan *scan) {
    VALUE names = rb_f_global_variables();

    scan->globals = rb_str_new(NULL, 0);
    scan->kept_globals = rb_ary_new();
    for (long index = 0; index < RARRAY_LEN(names); index++) {
        VALUE name = rb_sym2str(RARRAY_AREF(names, index)), value;
        struct memscope_global global = {.name = SYM2ID(RARRAY_AREF(names, index))};

        if (is_special(name))
            continue;
        value = memscope_attempt(value_of_global, name);
        if (RB_SPECIAL_CONST_P(value))
            continue;
        rb_str_cat(scan->globals, (const char *)&global, sizeof global);
        rb_ary_push(scan->kept_globals, value);
    }
}

/* Takes the addresses of the values, which hold until the next collection. */
static void settle_globals(struct graph_scan *scan) {
    struct memscope_global *globals = (struct memscope_global *)(void *)RSTRING_PTR(scan->globals);

    scan->question.global_count = (size_t)RARRAY_LEN(scan->kept_globals);
    for (size_t index = 0; index < scan->question.global_count; index++)
        globals[index].value = RARRAY_AREF(scan->kept_globals, (long)index);
    scan->question.globals = globals;
    rb_ary_clear(scan->kept_globals);
}

/* ---- the answer ------------------------------------------------------------------------------------------------ */

/* Keeps, in place, only the sampled objects that are still alive. */
static void list_sampled(struct graph_scan *scan) {
    struct memscope_sampled_object *objects;

    if (NIL_P(scan->sampled))
        return;
    objects = (struct memscope_sampled_object *)(void *)RSTRING_PTR(scan->sampled);
    scan->question.object_count =
        memscope_object_sampler_alive(objects, (size_t)RSTRING_LEN(scan->sampled) / sizeof *objects);
    scan->question.objects = (const VALUE *)(const void *)objects;
}

/* Lists globals and threads, which the child cannot. Precedes the pages, since it allocates and may run code. */
static VALUE prepare(struct graph_scan *scan) {
    VALUE refusal;

    scan->constants_named = memscope_named_references_learn();
    memscope_thread_list_learn();
    scan->call.child_bytes = memscope_slot_rate_predict(&bytes_of_1000_slots, memscope_heap_slots());
    memscope_heap_call_begin(&scan->call);
    if (memscope_shared_room_open(&scan->room) != MEMSCOPE_OK)
        return memscope_reason("no_memory");
    if (!NIL_P(refusal = memscope_heap_call_without_room(&scan->call)))
        return refusal;
    list_globals(scan);
    memscope_thread_list_take(&scan->question.threads);
    memscope_heap_call_settle(&scan->call, false);
    return memscope_heap_call_list(&scan->call, "references_unreadable");
}

static void answer(void *argument, struct memscope_scratch *scratch) {
    struct graph_scan *scan = argument;

    memscope_heap_answer(&scan->question, &scan->call.listing, scratch, &scan->room, &scan->answer);
    if (memscope_is_forked_child())
        scan->answer.totals.child_bytes = memscope_forked_child_grown_bytes();
}

/* No method is called, and nothing allocated, from the listing of the pages to the walk or the fork. */
static VALUE answer_of_process(struct graph_scan *scan) {
    const struct memscope_heap_errand errand = {answer, scan, &scan->answer, sizeof scan->answer, -1, scan->deadline_ms,
                                                NULL};
    VALUE refusal = prepare(scan);

    if (!NIL_P(refusal))
        return refusal;
    settle_globals(scan);
    memscope_thread_list_settle(&scan->question.threads);
    list_sampled(scan);
    if (!NIL_P(refusal = memscope_heap_call_ask(&scan->call, &errand)))
        return refusal;
    if (scan->answer.status == MEMSCOPE_UNSUPPORTED)
        return memscope_reason("references_unexported");
    if (scan->answer.status != MEMSCOPE_OK)
        return memscope_reason_of("graph_unanswered", memscope_status_reason(scan->answer.status));
    memscope_slot_rate_learn(&ns_of_1000_slots, scan->call.listing.slots, scan->answer.spent_ns);
    if (scan->answer.totals.child_bytes > scan->call.listing.slots)
        memscope_slot_rate_learn(&bytes_of_1000_slots, scan->call.listing.slots, scan->answer.totals.child_bytes);
    return Qnil;
}

/* ---- the reading ----------------------------------------------------------------------------------------------- */

static VALUE text(const char *start, size_t length) {
    return length == 0 ? Qnil : rb_utf8_str_new(start, (long)length);
}

/* The part of a name after its NUL, nil if empty. */
static VALUE place(const struct memscope_names *names, uint64_t name) {
    struct memscope_text whole = memscope_names_get(names, (uint32_t)name);
    size_t own = strnlen(whole.start, whole.length);

    return own == whole.length ? Qnil : text(whole.start + own + 1, whole.length - own - 1);
}

static VALUE thread_name(const struct memscope_thread_list *threads, uint32_t thread) {
    const struct memscope_listed_thread *listed;

    if (thread == 0)
        return Qnil;
    listed = (const struct memscope_listed_thread *)(const void *)RSTRING_PTR(threads->threads) + (thread - 1);
    return text(RSTRING_PTR(threads->texts) + listed->name, listed->name_bytes);
}

static VALUE step_hash(const struct memscope_names *names, const struct memscope_thread_list *threads,
                       const struct memscope_step_answer *step) {
    static const char *const edges[] = {"internal", "class", "constant", "ivar",  "cvar",        "global",
                                        "local",    "index", "key",      "value", "thread_local"};
    enum memscope_edge_kind kind = MEMSCOPE_EDGE_KIND(step->edge);
    uint32_t number = MEMSCOPE_EDGE_NUMBER(step->edge);
    VALUE by = kind == MEMSCOPE_EDGE_INDEX ? rb_obj_as_string(UINT2NUM(number)) : memscope_name_value(names, number);

    return memscope_hash_of({"name", memscope_name_value(names, step->name)}, {"times", UINT2NUM(step->times)},
                            {"edge", memscope_symbol(edges[kind])}, {"by", by}, {"made_at", place(names, step->name)},
                            {"thread_name", thread_name(threads, step->thread)});
}

VALUE memscope_path_hash(const struct memscope_heap_answer *answer, const struct memscope_thread_list *threads,
                         const struct memscope_path_answer *path) {
    VALUE steps = rb_ary_new();

    for (size_t index = 0; index < path->step_count; index++)
        rb_ary_push(steps, step_hash(&answer->names, threads, &path->steps[index]));
    return memscope_hash_add(memscope_path_sums_named_hash(&path->path_sums, &answer->names),
                             {"held_made_at", place(&answer->names, path->held_class)}, {"steps", steps});
}

static VALUE path_hash(const struct graph_scan *scan, const struct memscope_path_answer *path) {
    return memscope_path_hash(&scan->answer, &scan->question.threads, path);
}

static VALUE dominator_hash(const struct graph_scan *scan, const struct memscope_dominator_answer *dominator) {
    const struct memscope_names *names = &scan->answer.names;

    return memscope_hash_add(memscope_dominator_sums_named_hash(&dominator->dominator_sums, names),
                             {"held_made_at", place(names, dominator->held_class)},
                             {"path", path_hash(scan, &dominator->path)});
}

/* The lines that allocated most, garbage included, or nil if they are unknown. */
static VALUE sites_of(const struct graph_scan *scan) {
    const struct memscope_top_rows *largest = &scan->sites.largest;
    VALUE list = rb_ary_new();

    for (size_t index = 0; index < largest->count; index++)
        rb_ary_push(list,
                    memscope_site_row_named_hash(&scan->sites.rows[largest->items[index].number], &scan->answer.names));
    return largest->count > 0 ? list : Qnil;
}

static bool tells_garbage(const struct graph_scan *scan) {
    return !scan->of_file || memscope_dump_file_tells_garbage(&scan->file);
}

/* Without roots, retention in a dump is wrong. Where garbage is unknown, so are its classes. */
static void set_lists(VALUE hash, const struct graph_scan *scan) {
    const struct memscope_heap_answer *found = &scan->answer;
    const struct memscope_names *names = &found->names;
    bool has_roots = !scan->of_file || scan->file.reader.has_roots;
    VALUE dominators = rb_ary_new(), paths = rb_ary_new();

    for (size_t index = 0; has_roots && index < found->dominator_count; index++)
        rb_ary_push(dominators, dominator_hash(scan, &found->dominators[index]));
    for (size_t index = 0; has_roots && index < found->path_count; index++)
        rb_ary_push(paths, path_hash(scan, &found->paths[index]));
    memscope_hash_add(hash, {"retained", memscope_class_row_list(found->retained, found->retained_count, names)},
                      {"dominators", dominators}, {"paths", paths},
                      {"roots", memscope_root_row_list(found->roots, has_roots ? found->root_count : 0, names)},
                      {"garbage", memscope_class_row_list(found->garbage_classes,
                                                          tells_garbage(scan) ? found->garbage_class_count : 0, names)},
                      {"sites", sites_of(scan)});
}

static VALUE strings_hash(const struct graph_scan *scan) {
    const struct memscope_heap_answer *found = &scan->answer;

    return memscope_hash_add(
        memscope_string_sums_hash(&found->strings),
        {"duplicates", memscope_duplicates_list(found->duplicates, found->duplicates_count, &found->names)});
}

static VALUE totals_hash(const struct graph_scan *scan) {
    bool known = NIL_P(scan->refusal), forked = scan->call.in_child;
    uint64_t pause_us = scan->call.child.pause_ns / 1000;
    struct memscope_graph_totals totals = known ? scan->answer.totals : memscope_graph_totals_unknown;

    if (known && !scan->of_file)
        totals.walked_in = memscope_text_of(forked ? "child" : "process");
    if (known && forked)
        totals.pause_ms = (double)pause_us / 1000;
    else
        totals.child_bytes = MEMSCOPE_UNKNOWN;
    if (!tells_garbage(scan))
        totals.garbage_count = totals.garbage_slot_bytes = totals.garbage_bytes = MEMSCOPE_UNKNOWN;
    return memscope_hash_add(memscope_graph_totals_hash(&totals),
                             {"strings", known && scan->question.strings ? strings_hash(scan) : Qnil});
}

static VALUE reasons_hash(const struct graph_scan *scan) {
    static const char *const keys[] = {"reachable_count", "garbage_count", "retained"};
    VALUE reasons = rb_hash_new();

    if (!NIL_P(scan->refusal))
        memscope_hash_set(reasons, "reachable_count", scan->refusal);
    else
        memscope_set_unasked_reason(reasons, "reachable_bytes", &scan->answer.held);
    if (scan->answer.saturated_count > 0)
        memscope_set_reason_of(reasons, "reachable_bytes", "objects_saturated", ULL2NUM(scan->answer.saturated_count));
    if (scan->of_file && NIL_P(scan->refusal)) {
        memscope_set_reason(reasons, "paths",
                            scan->file.reader.named_count > 0 ? "dump_with_some_names" : "dump_without_names");
        for (size_t index = 0; index < sizeof keys / sizeof keys[0]; index++)
            memscope_dump_file_set_reasons(&scan->file, reasons, keys[index]);
        if (scan->file.reader.graph.slot_bytes == NULL)
            memscope_set_reason(reasons, "reachable_slot_bytes", "dump_without_slots");
    } else if (!scan->of_file && NIL_P(scan->refusal) && !scan->constants_named) {
        memscope_set_reason(reasons, "paths", "constants_unnamed");
    }
    return reasons;
}

static void answer_of_file(void *argument) {
    struct graph_scan *scan = argument;

    memscope_array_keep_in(&scan->file.kept);
    memscope_heap_answer_of_dump(&scan->question, &scan->file.reader.dump, &scan->room, &scan->answer);
    memscope_array_keep_in(NULL);
    if (scan->answer.status == MEMSCOPE_OK)
        scan->answer.status = memscope_dump_sites_open(&scan->sites, &scan->file.reader, scan->question.top);
}

static VALUE read_file(struct graph_scan *scan) {
    scan->call.start_ns = memscope_now_ns();
    memscope_dump_file_read(&scan->file);
    if (scan->file.status == MEMSCOPE_OK && memscope_shared_room_open(&scan->room) != MEMSCOPE_OK)
        scan->file.status = MEMSCOPE_NO_MEMORY;
    scan->call.without_gvl_ns = memscope_now_ns() - scan->call.start_ns;
    if (scan->file.status == MEMSCOPE_OK) {
        scan->call.without_gvl_ns += memscope_without_gvl(answer_of_file, scan);
        scan->file.status = scan->answer.status;
    }
    return scan->file.status == MEMSCOPE_OK
               ? Qnil
               : memscope_reason_of("dump_unread", memscope_status_reason(scan->file.status));
}

static VALUE read_graph(VALUE argument) {
    struct graph_scan *scan = (struct graph_scan *)argument;
    VALUE hash;

    scan->refusal = scan->of_file ? read_file(scan) : answer_of_process(scan);
    hash = totals_hash(scan);
    set_lists(hash, scan);
    return memscope_heap_call_finish(&scan->call, hash, reasons_hash(scan), "T3",
                                     scan->room.used + (size_t)scan->answer.totals.child_bytes);
}

static VALUE close_graph(VALUE argument) {
    struct graph_scan *scan = (struct graph_scan *)argument;

    memscope_heap_call_end((VALUE)&scan->call);
    memscope_shared_room_close(&scan->room);
    memscope_dump_sites_close(&scan->sites);
    memscope_dump_file_close(&scan->file);
    return Qnil;
}

/*
 * kind and target:
 *
 * - :object and an object
 * - :class and a Class or Module
 * - :name and a String without NUL
 * - :sampled and a String of Native.object_profile_with_objects, which is overwritten
 * - :addresses and a String of live objects' addresses, so that no path to them begins in the caller's stack
 * - nil and nil
 *
 * deadline_ms is the child's.
 */
VALUE native_heap_graph(VALUE self, VALUE top, VALUE kind, VALUE target, VALUE strings, VALUE in_process,
                        VALUE deadline_ms) {
    struct graph_scan scan = {.call = {.bounded = !RTEST(in_process), .rate = &ns_of_1000_slots},
                              .question = {.top = NUM2UINT(top), .strings = RTEST(strings)},
                              .deadline_ms = NUM2UINT(deadline_ms),
                              .globals = Qnil,
                              .sampled = Qnil,
                              .refusal = Qnil};
    VALUE result;

    if (kind == memscope_symbol("sampled")) {
        rb_str_modify(target);
        scan.sampled = target;
    } else if (kind == memscope_symbol("addresses")) {
        scan.question.objects = (const VALUE *)(const void *)RSTRING_PTR(target);
        scan.question.object_count = (size_t)RSTRING_LEN(target) / sizeof(VALUE);
    } else if (kind == memscope_symbol("object"))
        scan.question.object = target;
    else if (kind == memscope_symbol("class"))
        scan.question.class = target;
    else if (!NIL_P(kind))
        scan.question.class_name = StringValueCStr(target);
    result = rb_ensure(read_graph, (VALUE)&scan, close_graph, (VALUE)&scan);
    RB_GC_GUARD(target);
    return result;
}

/*
 * Like native_heap_graph, for a dump. file: its descriptor. name: the class of the paths' targets, or nil for paths to
 * suspects.
 */
VALUE native_heap_graph_of_dump(VALUE self, VALUE file, VALUE top, VALUE name) {
    struct graph_scan scan = {
        .question = {.top = NUM2UINT(top)}, .of_file = true, .globals = Qnil, .sampled = Qnil, .refusal = Qnil};
    VALUE result;

    if (!NIL_P(name))
        scan.question.class_name = StringValueCStr(name);
    memscope_dump_file_open(&scan.file, NUM2INT(file));
    result = rb_ensure(read_graph, (VALUE)&scan, close_graph, (VALUE)&scan);
    RB_GC_GUARD(name);
    return result;
}
