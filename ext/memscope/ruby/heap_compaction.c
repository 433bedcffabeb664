#include "values.h"

#include "init.h"
#include "ruby/ruby_private.h"

static VALUE compact(VALUE unused) {
    (void)unused;
    return rb_funcall(rb_mGC, rb_intern("compact"), 0);
}

/*
 * Before 3.3, GC.compact looks at one word above the top of every thread's stack of values as at an object's address
 * (vm.c 3.1.2, rb_vm_each_stack_value in line 2571, called by check_stack_for_moved; ruby/ruby#7081). What is there, a
 * frame that has returned left behind, or whoever had the memory before. Where the page of that object has been given
 * back to the kernel meanwhile, the process crashes.
 *
 * These words are free: a trap handler in such a thread would have its frame there. So what looks like an address there
 * is overwritten when the objects have been marked. From then until Ruby looks, no Ruby code and no other thread runs.
 */
#if MEMSCOPE_COMPACTION_READS_FREE_WORDS

#include <ruby/debug.h>

static struct memscope_ruby_thread *this_thread(void) {
    return RTYPEDDATA_DATA(rb_thread_current());
}

/* NULL where the thread has no stack (yet, or any more), or none as known: Ruby looks at none in the former case. */
static VALUE *free_word(const struct memscope_ruby_thread *thread) {
    const struct memscope_ruby_context *context = thread->context;
    uintptr_t start, top, word;

    if (!context || !context->stack)
        return NULL;
    start = (uintptr_t)context->stack;
    top = (uintptr_t)context->top;
    if (top % sizeof(VALUE) != 0 || top <= start || top >= (uintptr_t)(context->stack + context->words))
        return NULL;
    word = (uintptr_t)context->top->free;
    return word % sizeof(VALUE) == 0 && word >= start && word < top ? context->top->free : NULL;
}

static ID asked, by_method;

/*
 * In the middle of a GC, with the GVL: no object may be made. One that nobody called for may come in the middle of an
 * instruction that has words above the top in use already (vm_insnhelper.c 3.1.2, vm_expandarray), where a finalizer
 * runs. The list's head is of no Ractor.
 */
static void clear_above_stacks(VALUE tracepoint, void *unused) {
    const struct memscope_ruby_thread *this = this_thread(), *thread = this;

    (void)tracepoint, (void)unused;
    if (rb_gc_latest_gc_info(ID2SYM(asked)) != ID2SYM(by_method))
        return;
    do {
        VALUE *word = thread->ractor == this->ractor && thread->vm == this->vm ? free_word(thread) : NULL;

        if (word && !RB_SPECIAL_CONST_P(*word))
            *word = Qnil;
        thread = thread->next;
    } while (thread != this);
}

static bool is_as_known(void) {
    const struct memscope_ruby_thread *this = this_thread();

    return this->object == rb_thread_current() && this->next->previous == this && this->previous->next == this &&
           free_word(this) != NULL;
}

static VALUE marked; /* a TracePoint */
static unsigned compacting;

static VALUE end_care(VALUE unused) {
    (void)unused;
    if (--compacting == 0)
        rb_tracepoint_disable(marked);
    return Qnil;
}

/* Enabled no longer than needed: with any hook of its own the GC makes each object in a slower way. */
static VALUE compact_with_care(void) {
    if (!marked) {
        asked = rb_intern("gc_by");
        by_method = rb_intern("method");
        (void)rb_gc_latest_gc_info(ID2SYM(asked)); /* makes its Symbols when it is first called */
        marked = rb_tracepoint_new(0, RUBY_INTERNAL_EVENT_GC_END_MARK, clear_above_stacks, NULL);
        rb_gc_register_mark_object(marked);
    }
    if (compacting++ == 0)
        rb_tracepoint_enable(marked);
    return rb_ensure(compact, Qnil, end_care, Qnil);
}

#else

static bool is_as_known(void) {
    return true;
}

static VALUE compact_with_care(void) {
    return compact(Qnil);
}

#endif

/* Native.can_compact? -> false: this Ruby's threads are not as known, and GC.compact may crash it. */
static VALUE native_can_compact(VALUE self) {
    return is_as_known() ? Qtrue : Qfalse;
}

/* Native.compact: GC.compact, where it can be. Not beside other Ractors before 3.3: theirs are other rings. */
static VALUE native_compact(VALUE self) {
    return compact_with_care();
}

void Init_memscope_heap_compaction(void) {
    rb_define_module_function(rb_mMemscopeNative, "can_compact?", native_can_compact, 0);
    rb_define_module_function(rb_mMemscopeNative, "compact", native_compact, 0);
}
