/* Native.terminate: sends SIGTERM to a worker. */
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
