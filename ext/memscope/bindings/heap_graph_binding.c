#include "init.h"

#include "ruby/heap_references.h"
#include "ruby/named_references.h"
#include "values.h"

struct check { struct memscope_heap_references references; VALUE list; };
static void see(VALUE to, memscope_edge_name name, void *data) {
    struct check *c = data; size_t n; const char *t;
    static const char *kinds[]={"internal","class","constant","ivar","cvar","global","local","index","key","value"};
    int k = name & 15; VALUE text = Qnil;
    if (k>=2&&k<=6 || k==9) { t = memscope_names_get(&c->references.graph.names, name>>4, &n); text = rb_str_new(t, n);} else text = UINT2NUM(name>>4);
    rb_ary_push(c->list, rb_ary_new_from_args(3, rb_str_new_cstr(kinds[k]), text, RB_BUILTIN_TYPE(to)==T_IMEMO||RBASIC_CLASS(to)==0?Qnil:to));
}
static VALUE named(VALUE self, VALUE from) {
    struct check c = {0}; c.list = rb_ary_new();
    memscope_names_open(&c.references.graph.names);
    memscope_class_names_open(&c.references.class_names, &c.references.graph.names);
    memscope_each_named_reference(from, see, &c.references.class_names, &c);
    memscope_heap_references_close(&c.references);
    return rb_ary_new_from_args(2, c.list, memscope_constants_are_named()?Qtrue:Qfalse);
}
void Init_memscope_heap_graph(void) {
    memscope_named_references_learn();
    rb_define_module_function(rb_mMemscopeNative, "named", named, 1);
}
