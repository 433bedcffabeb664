/*
 * Native.file_capabilities and .dynamic_linker: what File::Stat does not tell about a program's file.
 */
#include "values.h"

#include "init.h"
#include "kernel/program.h"

/* Native.file_capabilities(path) -> whether the file has capabilities; nil if the system does not say. */
static VALUE native_file_capabilities(VALUE self, VALUE path) {
    bool found;

    path = rb_get_path(path);
    if (memscope_program_capabilities(StringValueCStr(path), &found) != MEMSCOPE_OK)
        return Qnil;
    return found ? Qtrue : Qfalse;
}

/*
 * Native.dynamic_linker(path) -> the dynamic linker's path; nil for a static executable; the status, as a Symbol, if
 * the file cannot be read or is damaged.
 */
static VALUE native_dynamic_linker(VALUE self, VALUE path) {
    char linker[MEMSCOPE_DYNAMIC_LINKER_SIZE];
    enum memscope_status status;

    path = rb_get_path(path);
    status = memscope_program_dynamic_linker(StringValueCStr(path), linker);
    return status == MEMSCOPE_OK ? memscope_text_or_nil(linker) : memscope_symbol(memscope_status_id(status));
}

void Init_memscope_program(void) {
    rb_define_singleton_method(rb_mMemscopeNative, "file_capabilities", native_file_capabilities, 1);
    rb_define_singleton_method(rb_mMemscopeNative, "dynamic_linker", native_dynamic_linker, 1);
}
