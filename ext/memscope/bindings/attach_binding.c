/*
 * Native.open_copy: a private copy of another Ruby process, through the tracer that makes it.
 */
#include "bindings/reasons.h"

#include "attach/tracer.h"
#include "base/descriptors.h"
#include "init.h"

#include <fcntl.h>

/*
 * Native.open_copy(pid, extension, pause_limit_ms, deadline_ms, forward, die_at) -> the Integer of a socket to the
 * tracer (attach/tracer.h), or the reason why there is none. `extension` is the path of the extension for the target's
 * Ruby. The last two are for tests.
 */
static VALUE native_open_copy(VALUE self, VALUE pid, VALUE extension, VALUE pause_limit_ms, VALUE deadline_ms,
                              VALUE forward, VALUE die_at) {
    struct memscope_tracer_order order = {.pid = NUM2PIDT(pid),
                                          .pause_limit_ms = NUM2UINT(pause_limit_ms),
                                          .deadline_ms = NUM2UINT(deadline_ms),
                                          .forward = RTEST(forward),
                                          .die_at = NUM2UINT(die_at)};
    enum memscope_status status;
    int socket = -1;

    order.extension = memscope_descriptor_open(StringValueCStr(extension), O_RDONLY);
    if (order.extension < 0)
        rb_sys_fail_str(extension);
    status = memscope_tracer_start(&order, &socket);
    memscope_descriptor_close(order.extension);
    return status == MEMSCOPE_OK ? INT2FIX(socket)
                                 : memscope_reason_of("child_refused", memscope_status_reason(status));
}

/*
 * Native.evaluate_in(pid, text, thread, deadline_ms, die_at): likewise for a text of Ruby that creates a thread in the
 * live process, and does nothing else. `thread` is the name that this thread, and no other, gives itself.
 */
static VALUE native_evaluate_in(VALUE self, VALUE pid, VALUE text, VALUE thread, VALUE deadline_ms, VALUE die_at) {
    const struct memscope_tracer_order order = {.pid = NUM2PIDT(pid),
                                                .text = StringValueCStr(text),
                                                .thread = StringValueCStr(thread),
                                                .extension = -1,
                                                .deadline_ms = NUM2UINT(deadline_ms),
                                                .die_at = NUM2UINT(die_at)};
    int socket = -1;
    enum memscope_status status = memscope_tracer_start(&order, &socket);

    return status == MEMSCOPE_OK ? INT2FIX(socket)
                                 : memscope_reason_of("child_refused", memscope_status_reason(status));
}

void Init_memscope_attach(void) {
    rb_define_singleton_method(rb_mMemscopeNative, "open_copy", native_open_copy, 6);
    rb_define_singleton_method(rb_mMemscopeNative, "evaluate_in", native_evaluate_in, 5);
}
