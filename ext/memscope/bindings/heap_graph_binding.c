#include "bindings/heap_graph_binding.h"
#include "bindings/child_wait.h"
#include "bindings/dump_file.h"
#include "bindings/held_memory_reason.h"

#include "dump/dump_sites.h"
#include "init.h"
#include "ruby/graph/named_references.h"
#include "ruby/ractors.h"
#include "ruby/sample/object_sampler.h"

#include <string.h>

/*
 * Bytes that a child and its answer take for a thousand slots: initially a measured value, then what the last child
 * reported.
 */
static memscope_slot_rate bytes_of_1000_slots = 110000;

struct graph_scan {
    struct memscope_heap_listing listing;
    struct memscope_heap_question question;
    struct memscope_answer_room room;
    struct memscope_answer_child child;
    struct memscope_heap_answer answer;
    struct memscope_dump_file file;
    struct memscope_dump_sites sites;
    bool of_file; /* of a dump instead of this process */
    bool in_process, finished_gc, gc_was_disabled, gc_is_disabled, constants_named;
    unsigned deadline_ms;
    uint64_t child_ns; /* a prediction */
    struct memscope_fork_room memory;
    VALUE globals;      /* the String that question.globals are in */
    VALUE kept_globals; /* an Array of their values, until their addresses are taken */
    VALUE sampled;      /* a String of struct memscope_sampled_object; nil unless paths to them were asked for */
    VALUE refusal;      /* the reason why there is no answer; nil if there is an answer */
    uint64_t start_ns, without_gvl_ns;
};

/* ---- global variables ------------------------------------------------------------------------------------------ */

static VALUE value_of_global(VALUE name) {
    return rb_gv_get(RSTRING_PTR(name));
}

static VALUE nothing(VALUE argument, VALUE error) {
    return Qnil;
}

/* $! and the like: Ruby's own, of the running frame or thread. Those with a letter, as in $k, are a program's. */
static bool is_special(VALUE name) {
    return (RSTRING_LEN(name) < 3 && !rb_isalpha(RSTRING_PTR(name)[1])) || strcmp(RSTRING_PTR(name), "$FILENAME") == 0;
}

/*
 * Only Ruby itself can list global variables, and not in a child. Reading a variable of Ruby or of a C extension may
 * run code, which a signal may end; $FILENAME, which opens the next file of ARGF, is not read.
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
        value = rb_rescue2(value_of_global, name, nothing, Qnil, rb_eStandardError, (VALUE)0);
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

/* ---- in a child ------------------------------------------------------------------------------------------------ */

static void enable_gc(struct graph_scan *scan) {
    if (scan->gc_is_disabled && !scan->gc_was_disabled)
        rb_gc_enable();
    scan->gc_is_disabled = false;
}

static void answer_in_child(struct graph_scan *scan) {
    enum memscope_forked_progress progress;
    enum memscope_status status;

    scan->child =
        (struct memscope_answer_child){.question = &scan->question, .listing = &scan->listing, .room = &scan->room};
    status = memscope_answer_child_start(&scan->child, scan->deadline_ms);
    enable_gc(scan);
    if (status != MEMSCOPE_OK) {
        scan->refusal = memscope_reason_child_refused(status);
        return;
    }
    progress =
        memscope_child_wait(&scan->child.process, &scan->child.found, sizeof scan->child.found, &scan->without_gvl_ns);
    if (progress == MEMSCOPE_FORKED_ANSWERED) {
        scan->answer = scan->child.found;
        memscope_heap_answer_took(&scan->listing, &scan->answer);
    } else {
        scan->refusal = progress == MEMSCOPE_FORKED_TOO_SLOW
                            ? memscope_reason_of("child_over_deadline", rb_float_new((double)scan->deadline_ms / 1000))
                            : memscope_reason_unanswered(progress);
    }
}

/* ---- before ---------------------------------------------------------------------------------------------------- */

static void read_memory(void *argument) {
    struct graph_scan *scan = argument;

    memscope_fork_room_read(scan->child_ns, &scan->memory);
}

/* Predicts from GC.stat's number of slots: pages are not listed yet, so that the GVL may be released. */
static bool has_memory(struct graph_scan *scan) {
    uint64_t slots = memscope_heap_slots();

    if (scan->in_process)
        return true;
    scan->child_ns = memscope_heap_answer_predicted_ns(slots);
    scan->without_gvl_ns += memscope_without_gvl(read_memory, scan);
    scan->memory.needed_bytes += memscope_slot_rate_predict(&bytes_of_1000_slots, slots);
    scan->refusal = memscope_reason_without_room(&scan->memory);
    return NIL_P(scan->refusal);
}

/*
 * No garbage collection begins from here until the objects are walked, or the child is forked, and no other thread
 * runs: no method may be called in between.
 */
static void finish_gc(struct graph_scan *scan) {
    scan->without_gvl_ns += memscope_heap_await_gc();
    scan->finished_gc = memscope_heap_finish_gc();
    scan->gc_was_disabled = RTEST(rb_gc_disable());
    scan->gc_is_disabled = true;
}

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

static bool list_objects(struct graph_scan *scan) {
    if (memscope_other_ractors()) {
        scan->refusal = memscope_reason("references_unreadable");
        return false;
    }
    settle_globals(scan);
    memscope_thread_list_settle(&scan->question.threads);
    memscope_heap_list(&scan->listing, MEMSCOPE_SLOTS_UNCOUNTED);
    list_sampled(scan);
    if (scan->listing.refusal != NULL)
        scan->refusal = memscope_reason(scan->listing.refusal);
    return scan->listing.refusal == NULL;
}

static void learn(const struct graph_scan *scan) {
    if (scan->answer.child_bytes > scan->listing.slots)
        memscope_slot_rate_learn(&bytes_of_1000_slots, scan->listing.slots, scan->answer.child_bytes);
}

static void answer(struct graph_scan *scan) {
    scan->constants_named = memscope_named_references_learn();
    memscope_thread_list_learn();
    if (memscope_answer_room_open(&scan->room) != MEMSCOPE_OK) {
        scan->refusal = memscope_reason("no_memory");
        return;
    }
    if (!has_memory(scan))
        return;
    list_globals(scan);
    memscope_thread_list_take(&scan->question.threads);
    finish_gc(scan);
    if (!list_objects(scan))
        return;
    if (scan->in_process)
        memscope_heap_answer(&scan->question, &scan->listing, &scan->listing.scratch, &scan->room, &scan->answer);
    else
        answer_in_child(scan);
    enable_gc(scan);
    if (!NIL_P(scan->refusal))
        return;
    learn(scan);
    if (scan->answer.status == MEMSCOPE_UNSUPPORTED)
        scan->refusal = memscope_reason("references_unexported");
    else if (scan->answer.status != MEMSCOPE_OK)
        scan->refusal = memscope_reason_of("graph_unanswered", memscope_status_reason(scan->answer.status));
}

/* ---- the reading ----------------------------------------------------------------------------------------------- */

static VALUE text(struct memscope_text text) {
    return text.length == 0 ? Qnil : rb_utf8_str_new(text.start, (long)text.length);
}

/* Every object has a slot, so 0 stands for slots whose sizes a dump does not state. */
static VALUE slot_bytes(uint64_t bytes, uint64_t objects) {
    return bytes == 0 && objects > 0 ? Qnil : ULL2NUM(bytes);
}

static VALUE class_hash(const struct memscope_class_answer *row) {
    VALUE hash = rb_hash_new();

    memscope_hash_set(hash, "name", text(row->name));
    memscope_hash_set(hash, "count", ULL2NUM(row->count));
    memscope_hash_set(hash, "slot_bytes", slot_bytes(row->slot_bytes, row->count));
    memscope_hash_set(hash, "bytes", ULL2NUM(row->bytes));
    memscope_hash_set(hash, "retained_bytes", ULL2NUM(row->retained_bytes));
    return hash;
}

static VALUE garbage_hash(const struct memscope_class_answer *row) {
    VALUE hash = class_hash(row);

    rb_hash_delete(hash, memscope_symbol("retained_bytes"));
    return hash;
}

static VALUE step_hash(const struct memscope_step_answer *step) {
    static const char *const edges[] = {"internal", "class", "constant", "ivar",  "cvar",        "global",
                                        "local",    "index", "key",      "value", "thread_local"};
    VALUE hash = rb_hash_new();

    memscope_hash_set(hash, "name", text(step->name));
    memscope_hash_set(hash, "times", ULL2NUM(step->times));
    memscope_hash_set(hash, "edge", memscope_symbol(edges[step->edge]));
    memscope_hash_set(hash, "by",
                      step->edge == MEMSCOPE_EDGE_INDEX ? rb_obj_as_string(UINT2NUM(step->edge_number))
                                                        : text(step->edge_text));
    memscope_hash_set(hash, "made_at", text(step->place));
    memscope_hash_set(hash, "thread_name", text(step->thread));
    return hash;
}

VALUE memscope_path_hash(const struct memscope_path_answer *path) {
    VALUE hash = rb_hash_new(), steps = rb_ary_new();

    for (size_t index = 0; index < path->step_count; index++)
        rb_ary_push(steps, step_hash(&path->steps[index]));
    memscope_hash_set(hash, "count", ULL2NUM(path->count));
    memscope_hash_set(hash, "retained_bytes", ULL2NUM(path->retained_bytes));
    memscope_hash_set(hash, "accumulated_bytes",
                      path->accumulated_bytes == 0 ? Qnil : ULL2NUM(path->accumulated_bytes));
    memscope_hash_set(hash, "held_class", text(path->held.name));
    memscope_hash_set(hash, "held_count", path->held.name.length == 0 ? Qnil : ULL2NUM(path->held.count));
    memscope_hash_set(hash, "held_made_at", text(path->held.place));
    memscope_hash_set(hash, "steps", steps);
    memscope_hash_set(hash, "steps_left_out", SIZET2NUM(path->steps_left_out));
    return hash;
}

static VALUE dominator_hash(const struct memscope_dominator_answer *dominator) {
    VALUE hash = rb_hash_new();

    memscope_hash_set(hash, "name", text(dominator->name));
    memscope_hash_set(hash, "bytes", ULL2NUM(dominator->bytes));
    memscope_hash_set(hash, "retained_bytes", ULL2NUM(dominator->retained_bytes));
    memscope_hash_set(hash, "dominated_count", ULL2NUM(dominator->dominated_count));
    memscope_hash_set(hash, "held_class", text(dominator->held.name));
    memscope_hash_set(hash, "held_count", dominator->held.name.length == 0 ? Qnil : ULL2NUM(dominator->held.count));
    memscope_hash_set(hash, "held_made_at", text(dominator->held.place));
    memscope_hash_set(hash, "path", dominator->path == NULL ? Qnil : memscope_path_hash(dominator->path));
    return hash;
}

static VALUE root_hash(const struct memscope_root_answer *root) {
    VALUE hash = rb_hash_new();

    memscope_hash_set(hash, "name", text(root->name));
    memscope_hash_set(hash, "count", ULL2NUM(root->count));
    memscope_hash_set(hash, "retained_bytes", ULL2NUM(root->retained_bytes));
    return hash;
}

static VALUE duplicates_hash(const struct memscope_duplicates_answer *row) {
    VALUE hash = rb_hash_new();

    memscope_hash_set(hash, "name", text(row->name));
    memscope_hash_set(hash, "length", ULL2NUM(row->length));
    memscope_hash_set(hash, "count", ULL2NUM(row->count));
    memscope_hash_set(hash, "saved_bytes", ULL2NUM(row->saved_bytes));
    return hash;
}

/* An Array of what `convert` makes of each answer; [] if there is none. */
#define LIST(answers, count, convert, list)                                                                            \
    do {                                                                                                               \
        (list) = rb_ary_new();                                                                                         \
        for (size_t at = 0; at < (count); at++)                                                                        \
            rb_ary_push((list), convert(&(answers)[at]));                                                              \
    } while (0)

/* The lines that allocated most, garbage included; nil if they are unknown. */
static VALUE sites_of(const struct graph_scan *scan) {
    const struct memscope_top_rows *largest = &scan->sites.largest;
    VALUE list = rb_ary_new();

    for (size_t index = 0; index < largest->count; index++) {
        uint32_t name = largest->items[index].number;
        VALUE hash = rb_hash_new();
        struct memscope_text site;

        site.start = memscope_names_get(&scan->file.graph.names, name, &site.length);
        memscope_hash_set(hash, "name", text(site));
        memscope_hash_set(hash, "count", ULL2NUM(scan->sites.rows[name].count));
        memscope_hash_set(hash, "bytes", ULL2NUM(scan->sites.rows[name].bytes));
        rb_ary_push(list, hash);
    }
    return largest->count > 0 ? list : Qnil;
}

static bool tells_garbage(const struct graph_scan *scan) {
    return !scan->of_file || memscope_dump_file_tells_garbage(&scan->file);
}

/* Without roots, all that a dump says of retention is false; where garbage is unknown, so are its classes. */
static void set_lists(VALUE hash, const struct graph_scan *scan) {
    const struct memscope_heap_answer *found = &scan->answer;
    bool has_roots = !scan->of_file || memscope_objspace_has_roots(&scan->file.reader);
    VALUE list;

    LIST(found->retained, found->retained_count, class_hash, list);
    memscope_hash_set(hash, "retained", list);
    LIST(found->dominators, has_roots ? found->dominator_count : 0, dominator_hash, list);
    memscope_hash_set(hash, "dominators", list);
    LIST(found->paths, has_roots ? found->path_count : 0, memscope_path_hash, list);
    memscope_hash_set(hash, "paths", list);
    LIST(found->roots, has_roots ? found->root_count : 0, root_hash, list);
    memscope_hash_set(hash, "roots", list);
    LIST(found->garbage_classes, tells_garbage(scan) ? found->garbage_class_count : 0, garbage_hash, list);
    memscope_hash_set(hash, "garbage", list);
    memscope_hash_set(hash, "sites", sites_of(scan));
}

static void set_part(VALUE hash, const char *const keys[3], const struct memscope_heap_part *part, bool known) {
    memscope_hash_set(hash, keys[0], known ? ULL2NUM(part->count) : Qnil);
    memscope_hash_set(hash, keys[1], known ? slot_bytes(part->slot_bytes, part->count) : Qnil);
    memscope_hash_set(hash, keys[2], known ? ULL2NUM(part->bytes) : Qnil);
}

static VALUE strings_hash(const struct memscope_heap_answer *found) {
    VALUE hash = rb_hash_new(), list;

    LIST(found->duplicates, found->duplicates_count, duplicates_hash, list);
    memscope_hash_set(hash, "count", ULL2NUM(found->strings.count));
    memscope_hash_set(hash, "bytes", ULL2NUM(found->strings.bytes));
    memscope_hash_set(hash, "duplicate_count", ULL2NUM(found->strings.duplicate_count));
    memscope_hash_set(hash, "saved_bytes", ULL2NUM(found->strings.saved_bytes));
    memscope_hash_set(hash, "duplicates", list);
    return hash;
}

static void set_totals(VALUE hash, const struct graph_scan *scan) {
    static const char *const reachable[] = {"reachable_count", "reachable_slot_bytes", "reachable_bytes"};
    static const char *const garbage[] = {"garbage_count", "garbage_slot_bytes", "garbage_bytes"};
    const struct memscope_heap_answer *found = &scan->answer;
    uint64_t pause_us = scan->child.process.pause_ns / 1000;
    bool known = NIL_P(scan->refusal), forked = scan->child.process.pause_ns > 0;

    set_part(hash, reachable, &found->reachable, known);
    set_part(hash, garbage, &found->garbage, known && tells_garbage(scan));
    memscope_hash_set(hash, "reference_count", known ? ULL2NUM(found->reference_count) : Qnil);
    memscope_hash_set(hash, "target_count", known ? ULL2NUM(found->target_count) : Qnil);
    memscope_hash_set(hash, "unreachable_target_count", known ? ULL2NUM(found->unreached_target_count) : Qnil);
    memscope_hash_set(hash, "path_count", known ? ULL2NUM(found->alike_count) : Qnil);
    memscope_hash_set(hash, "strings", known && scan->question.strings ? strings_hash(found) : Qnil);
    memscope_hash_set(hash, "walked_in",
                      known && !scan->of_file ? memscope_symbol(scan->in_process ? "process" : "child") : Qnil);
    memscope_hash_set(hash, "pause_ms", known && forked ? rb_float_new((double)pause_us / 1000) : Qnil);
    memscope_hash_set(hash, "child_bytes", known && forked ? ULL2NUM(found->child_bytes) : Qnil);
}

static VALUE names_of_cut_lists(unsigned cut) {
    static const char *const lists[MEMSCOPE_LIST_COUNT] = {
        [MEMSCOPE_LIST_RETAINED] = "retained",     [MEMSCOPE_LIST_GARBAGE] = "garbage",
        [MEMSCOPE_LIST_STRINGS] = "strings",       [MEMSCOPE_LIST_ROOTS] = "roots",
        [MEMSCOPE_LIST_DOMINATORS] = "dominators", [MEMSCOPE_LIST_PATHS] = "paths"};
    VALUE names = rb_ary_new();

    for (int list = 0; list < MEMSCOPE_LIST_COUNT; list++)
        if (cut >> list & 1)
            rb_ary_push(names, rb_utf8_str_new_cstr(lists[list]));
    return names;
}

static VALUE reasons_hash(const struct graph_scan *scan) {
    static const char *const keys[] = {"reachable_count", "garbage_count", "retained"};
    VALUE reasons = rb_hash_new();

    if (!NIL_P(scan->refusal))
        memscope_hash_set(reasons, "reachable_count", scan->refusal);
    else
        memscope_set_unasked_reason(reasons, "reachable_bytes", &scan->answer.held);
    if (scan->answer.cut != 0)
        memscope_hash_set(reasons, "lists",
                          memscope_reason_of("lists_cut", ULL2NUM(MEMSCOPE_ANSWER_ROOM_BYTES >> 20),
                                             names_of_cut_lists(scan->answer.cut)));
    if (scan->answer.saturated_count > 0)
        memscope_hash_set(reasons, "reachable_bytes",
                          memscope_reason_of("objects_saturated", ULL2NUM(scan->answer.saturated_count)));
    if (scan->of_file && NIL_P(scan->refusal)) {
        memscope_set_reason(reasons, "paths",
                            scan->file.reader.named_count > 0 ? "dump_with_some_names" : "dump_without_names");
        for (size_t index = 0; index < sizeof keys / sizeof keys[0]; index++)
            memscope_dump_file_set_reasons(&scan->file, reasons, keys[index]);
        if (scan->file.graph.slot_bytes == NULL)
            memscope_set_reason(reasons, "reachable_slot_bytes", "dump_without_slots");
    } else if (!scan->of_file && NIL_P(scan->refusal) && !scan->constants_named) {
        memscope_set_reason(reasons, "paths", "constants_unnamed");
    }
    return reasons;
}

static void answer_of_file(void *argument) {
    struct graph_scan *scan = argument;

    memscope_heap_answer_of_dump(&scan->question, &scan->file.dump, &scan->room, &scan->answer);
    if (scan->answer.status == MEMSCOPE_OK)
        scan->answer.status = memscope_dump_sites_open(&scan->sites, &scan->file.reader, scan->question.top);
}

static void read_file(struct graph_scan *scan) {
    memscope_dump_file_read(&scan->file);
    if (scan->file.status == MEMSCOPE_OK && memscope_answer_room_open(&scan->room) != MEMSCOPE_OK)
        scan->file.status = MEMSCOPE_NO_MEMORY;
    scan->without_gvl_ns = memscope_now_ns() - scan->start_ns;
    if (scan->file.status == MEMSCOPE_OK) {
        scan->without_gvl_ns += memscope_without_gvl(answer_of_file, scan);
        scan->file.status = scan->answer.status;
    }
    if (scan->file.status != MEMSCOPE_OK)
        scan->refusal = memscope_reason_of("dump_unread", memscope_status_reason(scan->file.status));
}

static VALUE read_graph(VALUE argument) {
    struct graph_scan *scan = (struct graph_scan *)argument;
    uint64_t wall_ns;
    VALUE hash;

    scan->start_ns = memscope_now_ns();
    if (scan->of_file)
        read_file(scan);
    else
        answer(scan);
    hash = rb_hash_new();
    set_lists(hash, scan);
    set_totals(hash, scan);
    memscope_hash_set(hash, "reasons", reasons_hash(scan));
    wall_ns = memscope_now_ns() - scan->start_ns;
    memscope_hash_set(hash, "cost",
                      memscope_cost("T3", wall_ns, wall_ns - scan->without_gvl_ns,
                                    scan->listing.scratch.used + scan->room.used + (size_t)scan->answer.child_bytes));
    return hash;
}

static VALUE close_graph(VALUE argument) {
    struct graph_scan *scan = (struct graph_scan *)argument;

    enable_gc(scan);
    memscope_answer_child_end(&scan->child);
    memscope_answer_room_close(&scan->room);
    memscope_dump_sites_close(&scan->sites);
    memscope_dump_file_close(&scan->file);
    memscope_heap_listing_close(&scan->listing);
    return Qnil;
}

/*
 * kind and target: :object and an object; :class and a Class or Module; :name and a String without NUL; :sampled and a
 * String of Native.object_profile_with_objects, which is overwritten; :addresses and a String of live objects'
 * addresses, so that no path to them begins in the caller's stack; nil and nil.
 * deadline_ms is the child's.
 */
static VALUE native_heap_graph(VALUE self, VALUE top, VALUE kind, VALUE target, VALUE strings, VALUE in_process,
                               VALUE deadline_ms) {
    struct graph_scan scan = {.question = {.top = NUM2UINT(top), .strings = RTEST(strings)},
                              .in_process = RTEST(in_process),
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
 * Like native_heap_graph, for a dump. file: its descriptor. name: the class to whose instances paths lead; nil: paths
 * to suspects.
 */
static VALUE native_heap_graph_of_dump(VALUE self, VALUE file, VALUE top, VALUE name) {
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

void Init_memscope_heap_graph(void) {
    rb_define_singleton_method(rb_mMemscopeNative, "heap_graph", native_heap_graph, 6);
    rb_define_singleton_method(rb_mMemscopeNative, "heap_graph_of_dump", native_heap_graph_of_dump, 3);
}
