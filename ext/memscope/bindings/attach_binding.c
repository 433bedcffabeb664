/*
 * Native.open_copy: a private copy of another Ruby process, through the tracer that makes it.
 */
#include "bindings/reasons.h"

#include "attach/remote_file.h"
#include "attach/tracer.h"
#include "base/descriptors.h"
#include "init.h"

#include <fcntl.h>
#include <ruby/version.h>

/* The minor version that this extension was built for. */
#define STRING(number) #number
#define MINOR(major, minor) STRING(major) "." STRING(minor)
static const char own_ruby[] = MINOR(RUBY_API_VERSION_MAJOR, RUBY_API_VERSION_MINOR);

static VALUE start(const struct memscope_tracer_order *order) {
    int socket = -1;
    enum memscope_status status = memscope_tracer_start(order, &socket);

    return status == MEMSCOPE_OK ? INT2FIX(socket)
                                 : memscope_reason_of("child_refused", memscope_status_reason(status));
}

/*
 * Native.open_copy(pid, extension, pause_limit_ms, deadline_ms, forward, die_at, ruby) -> the Integer of a socket to
 * the tracer (attach/tracer.h), or the reason why there is none. `extension` is a path. `ruby` is the minor version
 * that it is for, nil for this one. `forward` and `die_at` are for tests, else false and 0.
 */
VALUE native_open_copy(VALUE self, VALUE pid, VALUE extension, VALUE pause_limit_ms, VALUE deadline_ms, VALUE forward,
                       VALUE die_at, VALUE ruby) {
    struct memscope_tracer_order order = {.pid = NUM2PIDT(pid),
                                          .pause_limit_ms = NUM2UINT(pause_limit_ms),
                                          .deadline_ms = NUM2UINT(deadline_ms),
                                          .forward = RTEST(forward),
                                          .die_at = NUM2UINT(die_at),
                                          .ruby = NIL_P(ruby) ? own_ruby : StringValueCStr(ruby)};
    VALUE answer;

    order.extension = memscope_descriptor_open(StringValueCStr(extension), O_RDONLY);
    if (order.extension < 0)
        rb_sys_fail_str(extension);
    answer = start(&order);
    memscope_descriptor_close(order.extension);
    return answer;
}

/* The text of a postponed job, which any Ractor may run, and more than once (attach/postponed_text.h). */
#define ONCE                                                                                                           \
    "::Ractor.current.equal?(::Ractor.main) && ::Thread.list.none? { |thread| thread.name == %+" PRIsVALUE " } && "    \
    "(%" PRIsVALUE ").name = %+" PRIsVALUE

/*
 * Native.evaluate_in(pid, text, thread, deadline_ms, die_at): likewise for a text of Ruby that creates a thread in the
 * live process, returns it, and does nothing else. `thread` is the name that this thread, and no other, is given. For
 * "", the process is only looked at.
 */
VALUE native_evaluate_in(VALUE self, VALUE pid, VALUE text, VALUE thread, VALUE deadline_ms, VALUE die_at) {
    VALUE job = RSTRING_LEN(text) == 0 ? text : rb_sprintf(ONCE, thread, text, thread), answer;
    const struct memscope_tracer_order order = {.pid = NUM2PIDT(pid),
                                                .text = StringValueCStr(job),
                                                .thread = StringValueCStr(thread),
                                                .extension = -1,
                                                .deadline_ms = NUM2UINT(deadline_ms),
                                                .die_at = NUM2UINT(die_at)};

    answer = start(&order);
    RB_GC_GUARD(job);
    return answer;
}

/* Native.sees?(pid, path): whether an absolute path without links leads to the same file in that process. */
VALUE native_sees(VALUE self, VALUE pid, VALUE path) {
    return memscope_remote_file_is_own(NUM2PIDT(pid), StringValueCStr(path)) ? Qtrue : Qfalse;
}
