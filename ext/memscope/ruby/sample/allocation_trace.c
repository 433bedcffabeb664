#include "values.h"

#include "ruby/sample/allocation_trace.h"

#include "base/scratch.h"
#include "ruby/class_names.h"
#include "ruby/held_memory.h"
#include "ruby/ractors.h"
#include "ruby/ruby_private.h"
#include "ruby/sample/event_hooks.h"

#include <ruby/vm.h>
#include <stdatomic.h>

static struct trace {
    bool running;
    bool counting;
    bool read;    /* the log has survivors, which are not examined again */
    VALUE thread; /* nil for all of the main Ractor */
    struct memscope_allocation_counts counts;
    struct memscope_names names; /* of paths and classes */
    _Atomic(uint64_t) others;    /* from 4.0 on, other Ractors add to it in parallel */
    uint64_t collections;        /* GC.count at the last end of a mark phase */
    uint64_t missed;             /* GCs that no hook saw */
    uint64_t unsized, gc_ns;
    struct memscope_held_walk walk;
    struct memscope_held_memory held;
} * trace; /* mapped when a trace first starts, and kept */

static bool runs(void) {
    return trace != NULL && trace->running;
}

/* ---- allocations ------------------------------------------------------------------------------------------------- */

static struct memscope_allocation_key key_of(struct memscope_naming naming) {
    return (struct memscope_allocation_key){
        .class = naming.class, .type = (uint16_t)naming.type, .kind = (uint16_t)naming.kind};
}

/* Copies the names, since nothing keeps path or class alive. Works within a GC too. */
static void name_group(struct memscope_allocation_group *group) {
    const struct memscope_allocation_key *key = &group->key;
    char text[MEMSCOPE_CLASS_TEXT];
    size_t length = memscope_write_naming(text, (struct memscope_naming){(VALUE)key->class, key->type, key->kind});

    group->class_name = memscope_names_add(&trace->names, text, length);
    if (key->path != 0)
        group->path_name =
            memscope_names_add(&trace->names, RSTRING_PTR((VALUE)key->path), (size_t)RSTRING_LEN((VALUE)key->path));
}

static bool is_counted_here(void) {
    return NIL_P(trace->thread) ? memscope_in_main_ractor() : rb_thread_current() == trace->thread;
}

/* The NEWOBJ hook: the object is not complete, and nothing may be allocated. */
static void on_allocation(VALUE data, rb_trace_arg_t *event) {
    struct memscope_allocation_key key;
    VALUE object, path;

    if (!trace->counting)
        return;
    if (!is_counted_here()) {
        atomic_fetch_add_explicit(&trace->others, 1, memory_order_relaxed);
        return;
    }
    object = rb_tracearg_object(event);
    path = rb_tracearg_path(event);
    key = key_of(memscope_naming_of(object));
    key.path = RB_SPECIAL_CONST_P(path) ? 0 : path;
    key.line = key.path == 0 ? 0 : (uint32_t)FIX2INT(rb_tracearg_lineno(event));
    memscope_allocations_add(&trace->counts, key, object, (uint32_t)MEMSCOPE_SLOT_BYTES(object));
}

/* ---- garbage collections ----------------------------------------------------------------------------------------- */

/* Reads the slot size anew: since Ruby 3.2, compaction may have embedded the malloc memory in a larger slot. */
static uint64_t bytes_of(VALUE object) {
    size_t slot = MEMSCOPE_SLOT_BYTES(object);

    return slot + memscope_held_bytes_of(&trace->walk, object, slot);
}

/* Does not call the dsize functions of C extensions, which may expect to run outside of a GC. */
static uint64_t bytes_of_dead(const struct memscope_allocation *allocation) {
    VALUE object = (VALUE)allocation->address;

    if (RB_BUILTIN_TYPE(object) != RUBY_T_DATA)
        return bytes_of(object);
    trace->unsized++;
    return MEMSCOPE_SLOT_BYTES(object);
}

/* A hidden object had no class when it was allocated, and may have been given one since. */
static struct memscope_allocation_key what_it_is(VALUE object, const struct memscope_allocation_group *group) {
    return group->key.class == 0 && !group->detached ? key_of(memscope_naming_of(object)) : group->key;
}

static struct memscope_allocation_fate judge_marked(const struct memscope_allocation *allocation,
                                                    const struct memscope_allocation_group *group) {
    struct memscope_allocation_fate fate = {.alive = memscope_object_is_marked((VALUE)allocation->address)};
    VALUE object = (VALUE)allocation->address;

    if (!fate.alive) {
        fate.bytes = bytes_of_dead(allocation);
        fate.is = what_it_is(object, group);
    }
    return fate;
}

static struct memscope_allocation_fate judge_survivor(const struct memscope_allocation *allocation,
                                                      const struct memscope_allocation_group *group) {
    VALUE object = (VALUE)allocation->address;

    return (struct memscope_allocation_fate){.alive = true, .bytes = bytes_of(object), .is = what_it_is(object, group)};
}

static bool is_garbage(uint64_t address) {
    return !memscope_object_is_marked((VALUE)address);
}

static bool may_be_garbage(uint64_t address) {
    return true;
}

/* GCs that ended their mark phase unseen may have freed any logged object, path or class. */
static void miss(uint64_t missed) {
    trace->missed += missed;
    memscope_allocations_forget(&trace->counts);
    memscope_allocations_detach(&trace->counts, may_be_garbage);
}

/* At the end of a mark phase: the mark bits are final, and nothing has been swept yet. */
static void on_marked(VALUE data, rb_trace_arg_t *event) {
    uint64_t begun = memscope_clock_ns(CLOCK_THREAD_CPUTIME_ID), count = rb_gc_count();

    if (!trace->running || trace->read)
        return;
    if (count > trace->collections + 1)
        miss(count - trace->collections - 1);
    trace->collections = count;
    memscope_allocations_sweep(&trace->counts, judge_marked);
    memscope_allocations_detach(&trace->counts, is_garbage);
    trace->gc_ns += memscope_clock_ns(CLOCK_THREAD_CPUTIME_ID) - begun;
}

static void mark(void *unused) {
    if (runs())
        rb_gc_mark(trace->thread);
}

static uint64_t moved(uint64_t address) {
    return address == 0 ? 0 : rb_gc_location((VALUE)address);
}

/* Does not read objects that an unseen GC may have freed. */
static void compact(void *unused) {
    if (!runs())
        return;
    if (rb_gc_count() > trace->collections)
        miss(rb_gc_count() - trace->collections);
    trace->collections = rb_gc_count();
    memscope_allocations_move(&trace->counts, moved);
}

static void end_ruby(void *unused) {
    if (trace != NULL)
        trace->running = trace->counting = false;
}

/* No dsize function: its tables are mapped, not allocated by malloc. */
static const rb_data_type_t guard_type = {
    .wrap_struct_name = "Memscope::Native allocation trace",
    .function = {.dmark = mark, .dfree = end_ruby, .dcompact = compact},
};

/* ---- start and stop ---------------------------------------------------------------------------------------------- */

static void at_vm_exit(ruby_vm_t *unused) {
    end_ruby(NULL);
}

/* Does its work once per process. Returns the reason why it cannot, or NULL. */
static const char *prepare(void) {
    if (!MEMSCOPE_KNOWS_MARKED)
        return "marks_unknown";
    if (trace != NULL)
        return NULL;
    memscope_collections_prepare(); /* raises under a modular GC without the figures that it needs */
    trace = memscope_lasting_map(sizeof *trace);
    if (trace == NULL)
        return memscope_status_id(MEMSCOPE_NO_MEMORY);
    rb_gc_register_mark_object(TypedData_Wrap_Struct(rb_cObject, &guard_type, trace));
    ruby_vm_at_exit(at_vm_exit);
    return NULL;
}

const char *memscope_trace_start(bool all_threads) {
    const char *obstacle = prepare();

    if (obstacle != NULL)
        return obstacle;
    if (memscope_event_hooks_obstacle())
        return "ractor_ended_counting";
    *trace = (struct trace){.thread = all_threads ? Qnil : rb_thread_current(), .counts = {.name = name_group}};
    if (memscope_names_open(&trace->names) != MEMSCOPE_OK)
        return memscope_status_id(MEMSCOPE_NO_MEMORY);
    memscope_heap_held_open(&trace->walk, &trace->held);
    memscope_event_hook_add(on_marked, RUBY_INTERNAL_EVENT_GC_END_MARK);
    memscope_event_hook_add(on_allocation, RUBY_INTERNAL_EVENT_NEWOBJ);
    trace->collections = rb_gc_count();
    trace->running = true;
    return NULL;
}

void memscope_trace_count(bool counting) {
    if (runs())
        trace->counting = counting;
}

void memscope_trace_stop(void) {
    if (!runs())
        return;
    end_ruby(NULL);
    memscope_event_hook_remove(on_allocation);
    memscope_event_hook_remove(on_marked);
    memscope_allocations_close(&trace->counts);
    memscope_names_close(&trace->names);
}

bool memscope_trace_runs(void) {
    return runs() && memscope_event_hook_is_there(on_allocation);
}

struct memscope_trace_result memscope_trace_read(void) {
    struct memscope_trace_result result = {.counts = &trace->counts, .names = &trace->names, .held = &trace->held};

    if (rb_gc_count() > trace->collections)
        miss(rb_gc_count() - trace->collections);
    memscope_allocations_retain(&trace->counts, judge_survivor);
    trace->read = true;
    memscope_heap_held_close(&trace->walk);
    result.others = atomic_load(&trace->others);
    result.unsized = trace->unsized;
    result.gc_ns = trace->gc_ns;
    result.knows_retained = trace->missed == 0 && trace->counts.unkept == 0 && trace->counts.without == 0;
    return result;
}
