/*
 * memscope's extension. engine/ has no Ruby, bindings/ no mallctl or /proc. The engine reports errors as enum
 * memscope_status, which bindings/ turn into reasons. Nothing longjmps through the engine. docs/architecture.md lists
 * the rooms.
 */
#include "values.h"

#include "base/copy.h"
#include "init.h"

RUBY_FUNC_EXPORTED void Init_memscope(void);
RUBY_FUNC_EXPORTED int memscope_copy_begin(pid_t original);

static void define(void) {
    rb_mMemscope = rb_define_module("Memscope");
    rb_mMemscopeNative = rb_define_module_under(rb_mMemscope, "Native");
#define NATIVE(name, function, arguments)                                                                              \
    rb_define_singleton_method(rb_mMemscopeNative, name, native_##function, arguments);
#define INIT(name) Init_memscope_##name();
#include "natives.def"
}

void Init_memscope(void) {
    define();
}

/* Ruby loads extensions with RTLD_GLOBAL: where a copy has one already, that one's Init_memscope would be called. */
static VALUE initialise(VALUE unused) {
    if (!rb_mMemscopeNative)
        define();
    return Qnil;
}

/*
 * Called in a new copy by its tracer (engine/attach/), at a safe point of Ruby, before any other function: initialises
 * this library for readings of the copy's original. Returns 0, or anything else if it raised.
 */
int memscope_copy_begin(pid_t original) {
    int raised;

    memscope_copy_become(original);
    *rb_ruby_verbose_ptr() = Qnil; /* a warning could call a method of the host */
    rb_protect(initialise, Qnil, &raised);
    rb_set_errinfo(Qnil);
    return raised;
}
