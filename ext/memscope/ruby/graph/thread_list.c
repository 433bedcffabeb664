#include "ruby/graph/thread_list.h"

#include "base/copy.h"
#include "base/mapped_array.h"
#include "base/merge_sort.h"
#include "base/own_memory.h"
#include "ruby/ruby_private.h"

#include <string.h>

/* ---- code ------------------------------------------------------------------------------------------------------ */

/* The first members of rb_iseq_t and of struct rb_iseq_constant_body (vm_core.h), checked against a known literal. */
struct code_body {
    int type;
    unsigned size;
    const VALUE *words;
};
struct code {
    VALUE flags, wrapper;
    const struct code_body *body;
};

/* More words than any method has. */
#define MAX_WORDS (1u << 24)

static bool code_is_known;

static void take_code(VALUE object, void *data) {
    if (MEMSCOPE_IS_CODE(object))
        *(VALUE *)data = object;
}

static bool read_literal(struct memscope_own_memory *memory, VALUE iseq, VALUE literal) {
    struct code code;
    struct code_body body;

    if (!memscope_own_memory_read(memory, iseq, &code, sizeof code) ||
        !memscope_own_memory_read(memory, (uintptr_t)code.body, &body, sizeof body) || body.size > 100)
        return false;
    for (unsigned at = 0; at < body.size; at++) {
        VALUE word;

        if (!memscope_own_memory_read(memory, (uintptr_t)(body.words + at), &word, sizeof word))
            return false;
        if (word == literal)
            return true;
    }
    return false;
}

void memscope_thread_list_learn(void) {
    static bool learnt;
    struct memscope_own_memory memory;
    VALUE proc, iseq = 0;

    if (learnt || memscope_own_memory_open(&memory) != MEMSCOPE_OK)
        return;
    learnt = true;
    proc = rb_eval_string("proc { :memscope_literal }");
    rb_objspace_reachable_objects_from(proc, take_code, &iseq);
    code_is_known = iseq != 0 && read_literal(&memory, iseq, ID2SYM(rb_intern("memscope_literal")));
    memscope_own_memory_close(&memory);
    RB_GC_GUARD(proc);
}

/* ---- listing --------------------------------------------------------------------------------------------------- */

struct method_call {
    VALUE receiver;
    const char *method;
    int count;
    VALUE argument;
};

static VALUE call(VALUE argument) {
    const struct method_call *made = (const struct method_call *)argument;

    return rb_funcallv(made->receiver, rb_intern(made->method), made->count, &made->argument);
}

/* In a copy, a method that is not Ruby's own is not called, since it might wait for another thread. */
static VALUE call_safely(struct method_call made) {
    if (memscope_is_copy() && !rb_method_basic_definition_p(CLASS_OF(made.receiver), rb_intern(made.method)))
        return Qnil;
    return memscope_attempt(call, (VALUE)&made);
}

static VALUE text_from(VALUE thread, const char *method) {
    VALUE text = call_safely((struct method_call){thread, method, 0, Qnil});

    return RB_TYPE_P(text, T_STRING) ? text : Qnil;
}

static void add_locals(struct memscope_thread_list *list, VALUE thread, const char *keys, const char *read) {
    VALUE names = call_safely((struct method_call){thread, keys, 0, Qnil});

    for (long index = 0; RB_TYPE_P(names, T_ARRAY) && index < RARRAY_LEN(names); index++) {
        VALUE key = RARRAY_AREF(names, index);
        VALUE value = call_safely((struct method_call){thread, read, 1, key});

        if (RB_SPECIAL_CONST_P(value) || !RB_SYMBOL_P(key))
            continue;
        rb_str_cat(list->locals, (const char *)&(struct memscope_thread_local){.in_code = false},
                   sizeof(struct memscope_thread_local));
        rb_ary_push(list->kept_locals, value);
        rb_ary_push(list->kept_locals, key);
    }
}

/* "#<Thread:0x0000 /srv/app/job.rb:12 sleep>", "#<Thread:0x0000@name /srv/app/job.rb:12 sleep>". */
static const char *find_place(VALUE text, VALUE name, size_t *bytes) {
    const char *begin = RSTRING_PTR(text), *last = memrchr(begin, ' ', (size_t)RSTRING_LEN(text));
    const char *first = memchr(begin, NIL_P(name) ? ' ' : '@', (size_t)RSTRING_LEN(text));

    if (first != NULL && !NIL_P(name))
        first += 1 + RSTRING_LEN(name);
    if (first == NULL || last == NULL || first >= last || *first != ' ')
        return NULL;
    *bytes = (size_t)(last - first - 1);
    return first + 1;
}

static void add_thread(struct memscope_thread_list *list, VALUE thread) {
    VALUE name = text_from(thread, "name"), text = text_from(thread, "to_s");
    struct memscope_listed_thread listed = {.name = (size_t)RSTRING_LEN(list->texts)};
    const char *place = NIL_P(text) ? NULL : find_place(text, name, &listed.place_bytes);

    if (!NIL_P(name)) {
        listed.name_bytes = (size_t)RSTRING_LEN(name);
        rb_str_cat(list->texts, RSTRING_PTR(name), RSTRING_LEN(name));
    }
    listed.place = (size_t)RSTRING_LEN(list->texts);
    if (place != NULL)
        rb_str_cat(list->texts, place, (long)listed.place_bytes);
    rb_str_cat(list->threads, (const char *)&listed, sizeof listed);
    rb_ary_push(list->kept_threads, thread);
    RB_GC_GUARD(text);
    RB_GC_GUARD(name);
}

void memscope_thread_list_take(struct memscope_thread_list *list) {
    VALUE threads = call_safely((struct method_call){rb_cThread, "list", 0, Qnil});

    *list = (struct memscope_thread_list){
        .threads = rb_str_new(NULL, 0),
        .locals = rb_str_new(NULL, 0),
        .texts = rb_str_new(NULL, 0),
        .kept_threads = rb_ary_new(),
        .kept_locals = rb_ary_new(),
    };
    for (long index = 0; RB_TYPE_P(threads, T_ARRAY) && index < RARRAY_LEN(threads); index++) {
        VALUE thread = RARRAY_AREF(threads, index);

        add_thread(list, thread);
        add_locals(list, thread, "keys", "[]");
        add_locals(list, thread, "thread_variables", "thread_variable_get");
    }
}

void memscope_thread_list_settle(struct memscope_thread_list *list) {
    struct memscope_listed_thread *threads = (struct memscope_listed_thread *)(void *)RSTRING_PTR(list->threads);
    struct memscope_thread_local *locals = (struct memscope_thread_local *)(void *)RSTRING_PTR(list->locals);

    list->thread_count = (size_t)RARRAY_LEN(list->kept_threads);
    for (size_t index = 0; index < list->thread_count; index++)
        threads[index].thread = RARRAY_AREF(list->kept_threads, (long)index);
    list->local_count = (size_t)RARRAY_LEN(list->kept_locals) / 2;
    for (size_t index = 0; index < list->local_count; index++) {
        locals[index].value = RARRAY_AREF(list->kept_locals, 2 * (long)index);
        locals[index].key = RARRAY_AREF(list->kept_locals, 2 * (long)index + 1);
    }
    rb_ary_clear(list->kept_threads);
    rb_ary_clear(list->kept_locals);
}

/* ---- in the child ---------------------------------------------------------------------------------------------- */

static bool values_in_order(const void *left, const void *right) {
    return ((const struct memscope_thread_local *)left)->value <= ((const struct memscope_thread_local *)right)->value;
}

static bool keys_in_order(const void *left, const void *right) {
    return ((const struct memscope_thread_local *)left)->key <= ((const struct memscope_thread_local *)right)->key;
}

/* The first local whose value, or key, is `wanted` or more: locals are in that order. */
static size_t first_of(const struct memscope_thread_local *locals, size_t count, VALUE wanted, bool by_key) {
    size_t low = 0, high = count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if ((by_key ? locals[middle].key : locals[middle].value) < wanted)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void look_for_keys(struct memscope_thread_local *locals, size_t count, VALUE iseq) {
    const struct code_body *body = ((const struct code *)iseq)->body;

    if (body == NULL || body->words == NULL || body->size > MAX_WORDS)
        return;
    for (unsigned at = 0; at < body->size; at++) {
        VALUE word = body->words[at];

        if (!RB_STATIC_SYM_P(word))
            continue;
        for (size_t index = first_of(locals, count, word, true); index < count && locals[index].key == word; index++)
            locals[index].in_code = true;
    }
}

void memscope_thread_locals_find_keys(const struct memscope_thread_list *list,
                                      const struct memscope_heap_references *references) {
    struct memscope_thread_local *locals = (struct memscope_thread_local *)(void *)RSTRING_PTR(list->locals), *buffer;

    if (list->local_count == 0 || (buffer = memscope_array_map(list->local_count, sizeof *buffer)) == NULL)
        return;
    memscope_merge_sort((char *)locals, list->local_count, sizeof *locals, (char *)buffer, keys_in_order);
    for (uint32_t node = 0; code_is_known && node < references->graph.slot_count; node++)
        if (references->graph.type[node] == RUBY_T_IMEMO && MEMSCOPE_IS_CODE(memscope_object_of(references, node)))
            look_for_keys(locals, list->local_count, memscope_object_of(references, node));
    memscope_merge_sort((char *)locals, list->local_count, sizeof *locals, (char *)buffer, values_in_order);
    memscope_array_unmap(buffer);
}

const struct memscope_thread_local *memscope_thread_local_of(const struct memscope_thread_list *list, VALUE value) {
    const struct memscope_thread_local *locals = (const void *)RSTRING_PTR(list->locals);
    size_t first = first_of(locals, list->local_count, value, false), index = first;

    while (index < list->local_count && locals[index].value == value && !locals[index].in_code)
        index++;
    if (index == list->local_count || locals[index].value != value)
        index = first;
    return index < list->local_count && locals[index].value == value ? &locals[index] : NULL;
}

uint32_t memscope_thread_listed(const struct memscope_thread_list *list, VALUE thread) {
    const struct memscope_listed_thread *threads = (const void *)RSTRING_PTR(list->threads);

    for (size_t index = 0; index < list->thread_count; index++)
        if (threads[index].thread == thread)
            return (uint32_t)index + 1;
    return 0;
}
