/*
 * Native.file_capabilities: whether a program has file capabilities, which File::Stat does not tell.
 */
#include "values.h"

#include "init.h"
#include "kernel/program.h"

/* Whether the file has any; nil where the system does not say. */
static VALUE native_file_capabilities(VALUE self, VALUE path) {
    bool found;

    path = rb_get_path(path);
    if (memscope_program_capabilities(StringValueCStr(path), &found) != MEMSCOPE_OK)
        return Qnil;
    return found ? Qtrue : Qfalse;
}

void Init_memscope_program(void) {
    rb_define_singleton_method(rb_mMemscopeNative, "file_capabilities", native_file_capabilities, 1);
}
