/* Native.terminate: sends SIGTERM to a worker. Native.hold_process and process_status: how a worker ended. */
#include "bindings/reasons.h"

#include "init.h"
#include "kernel/termination.h"

/*
 * Native.terminate(pid, ticks) -> :pidfd or :pid, by which SIGTERM was sent, or the reason why it was not. Keeps the
 * GVL, so that no Ruby thread can reap the process.
 */
VALUE native_terminate(VALUE self, VALUE pid, VALUE ticks) {
    bool by_pidfd;
    enum memscope_status status = memscope_process_terminate(NUM2PIDT(pid), NUM2ULL(ticks), &by_pidfd);

    if (status != MEMSCOPE_OK)
        return memscope_unread("the worker", status);
    return memscope_symbol(by_pidfd ? "pidfd" : "pid");
}

/*
 * Native.hold_process(pid, ticks) -> a descriptor, or nil. A forked child has none of them. process_status(descriptor)
 * -> nil while the process runs. Then it closes the descriptor: -> the status as of waitpid, -1 if it is not known.
 */
VALUE native_hold_process(VALUE self, VALUE pid, VALUE ticks) {
    int descriptor = memscope_process_hold(NUM2PIDT(pid), NUM2ULL(ticks));

    return descriptor < 0 ? Qnil : INT2NUM(descriptor);
}

VALUE native_process_status(VALUE self, VALUE descriptor) {
    int status;

    return memscope_process_ended(NUM2INT(descriptor), &status) ? INT2NUM(status) : Qnil;
}
