#include "memscope_test.h"

RUBY_FUNC_EXPORTED void Init_memscope_test(void);

void Init_memscope_test(void) {
    VALUE host = rb_define_module("Host");

    init_memory(host);
    init_stacks(host);
    init_kernel(host);
    init_descriptions(host);
    init_slots(host);
    init_copies(host);
    init_vectors(host);
    init_leaks();
}
