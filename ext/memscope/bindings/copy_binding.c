/*
 * memscope_copy_evaluate, which the tracer of a copy (engine/attach/) calls in it, and Native.copied(expression), which
 * evaluates likewise in any process, for tests.
 */
#include "bindings/copied_value.h"

#include "base/copy.h"
#include "init.h"

#include <string.h>

static struct memscope_copied_text text;

static void begin_text(void) {
    text.length = 0;
    text.cut = false;
}

static VALUE evaluate(VALUE expression) {
    VALUE value = rb_eval_string((const char *)expression);

    begin_text(); /* here, since the expression may have called Native.copied */
    memscope_copied_put_value(&text, value);
    RB_GC_GUARD(value);
    return Qnil;
}

/* Calls no method. A message that is not a String yet, as that of a NameError, is left out. */
static VALUE put_error(VALUE error) {
    const char *class_name = rb_obj_is_kind_of(error, rb_eException) ? rb_obj_classname(error) : "no exception";
    VALUE message = rb_attr_get(error, rb_intern("mesg"));

    memscope_copied_put(&text, class_name, strlen(class_name));
    if (!RB_TYPE_P(message, T_STRING))
        return Qnil;
    memscope_copied_put(&text, ": ", 2);
    memscope_copied_put(&text, RSTRING_PTR(message), (size_t)RSTRING_LEN(message));
    RB_GC_GUARD(message);
    return Qnil;
}

RUBY_FUNC_EXPORTED void memscope_copy_evaluate(const char *expression, struct memscope_copy_answer *answer);

/*
 * Evaluates an expression. The answer is its value as JSON (copied_value.h) or, if it raised, the exception's class and
 * message. Its bytes are there until the next call. Never raises, nor jumps otherwise.
 */
void memscope_copy_evaluate(const char *expression, struct memscope_copy_answer *answer) {
    static const char too_large[] = "the value is too large";
    int jumped, jumped_again;

    begin_text();
    rb_protect(evaluate, (VALUE)expression, &jumped);
    if (jumped) {
        begin_text();
        rb_protect(put_error, rb_errinfo(), &jumped_again);
        rb_set_errinfo(Qnil);
    } else if (text.cut) {
        jumped = 1;
        begin_text();
        memscope_copied_put(&text, too_large, sizeof too_large - 1);
    }
    *answer = (struct memscope_copy_answer){(uintptr_t)text.bytes, text.length, jumped != 0};
}

/* Native.copied(expression) -> the JSON of its value. Raises a RuntimeError with what the tracer would be told. */
VALUE native_copied(VALUE self, VALUE expression) {
    struct memscope_copy_answer answer;
    VALUE bytes;

    memscope_copy_evaluate(StringValueCStr(expression), &answer);
    bytes = rb_utf8_str_new(text.bytes, (long)answer.length);
    if (answer.raised)
        rb_exc_raise(rb_exc_new_str(rb_eRuntimeError, bytes));
    return bytes;
}
