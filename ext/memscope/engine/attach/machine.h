/*
 * All that depends on the architecture of a process to attach to: the registers of a stopped thread, machine code, and
 * thread-local variables. One file machine_….c for each. Threads are stopped at
 * PTRACE_EVENT_STOP, at a system call, or at birth. Elsewhere than on these, extconf.rb leaves out what needs them.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "attach/remote_module.h"
#include "attach/tracing.h"

#if defined(__x86_64__)
#include <sys/user.h>
struct memscope_registers {
    struct user_regs_struct user;
};
#define MEMSCOPE_PLACE_REGISTER rip
#define MEMSCOPE_RESULT_REGISTER rax
#define MEMSCOPE_CALL_BYTES 2 /* of a system call instruction */
#define MEMSCOPE_RESTORER_CALL_AT 7
#elif defined(__aarch64__)
#include <asm/ptrace.h>
struct memscope_registers {
    struct user_pt_regs user;
    uint64_t thread_pointer;
    int32_t system_call; /* NT_ARM_SYSTEM_CALL, or the call that is made again next */
    bool blocked, has_vectors;
};
#define MEMSCOPE_PLACE_REGISTER pc
#define MEMSCOPE_RESULT_REGISTER regs[0]
#define MEMSCOPE_CALL_BYTES 4 /* of any instruction */
#define MEMSCOPE_RESTORER_CALL_AT 4
#endif

/* Code of the target that injected calls use, as addresses. */
struct memscope_entry_points {
    uint64_t system_call;   /* the instruction, in a function of the C library that Ruby never calls, before a return */
    uint64_t marker;        /* leads to it: where called functions return to, and what Ruby calls as a function */
    uint64_t restorer;      /* the code that ends a signal handler: a system call, rt_sigreturn */
    uint64_t exit_function; /* _exit */
    bool filtered;          /* a seccomp filter of the target, but not of the tracer, might kill it for such a call */
};

/* The offset of the system call instruction in the code of a function, and of the restorer in a text, or -1. */
long memscope_code_find_system_call(const unsigned char *code, size_t size);
long memscope_code_find_restorer(const unsigned char *code, size_t size);

/*
 * The marker, of a function with a system call instruction. On x86-64 the instruction itself: before it, the function
 * overwrites what another has returned. On arm64 an indirect call must lead to the beginning of a function (BTI), and
 * the kernel overwrites what was returned if the register of the call's number has -1.
 */
#if defined(__x86_64__)
#define MEMSCOPE_MARKER(function, instruction) (instruction)
#else
#define MEMSCOPE_MARKER(function, instruction) (function)
#endif

/* The place of a thread-local variable in each thread. */
struct memscope_thread_local {
    uint64_t module; /* its number in the table of a thread (dtv), or 0: the offset is from the thread pointer */
    uint64_t offset;
};

/* Distance of the pointer to a thread's dtv from its thread pointer. */
#if defined(__x86_64__)
#define MEMSCOPE_DTV_OFFSET 8
#else
#define MEMSCOPE_DTV_OFFSET 0
#endif

/*
 * Finds a thread-local variable of an object by its symbol or, if that is hidden, by the code of a function which
 * begins with reading it.
 */
bool memscope_thread_local_find(const struct memscope_remote_module *module, bool is_executable, const char *name,
                                uint64_t reader, struct memscope_thread_local *found);

bool memscope_registers_read(pid_t thread, struct memscope_registers *registers);

static inline bool memscope_registers_write(pid_t thread, const struct memscope_registers *registers) {
    return memscope_trace_put_set(thread, NT_PRSTATUS, &registers->user, sizeof registers->user);
}

/* The next instruction. */
static inline uint64_t memscope_registers_place(const struct memscope_registers *registers) {
    return registers->user.MEMSCOPE_PLACE_REGISTER;
}

/* At a stop at entry: true if the thread is about to make a system call by this instruction. */
static inline bool memscope_registers_at_call(const struct memscope_registers *registers, uint64_t instruction) {
    return memscope_registers_place(registers) == instruction + MEMSCOPE_CALL_BYTES;
}

/* After a system call. */
static inline long memscope_registers_result(const struct memscope_registers *registers) {
    return (long)registers->user.MEMSCOPE_RESULT_REGISTER;
}

/* At the exit of a system call. */
static inline bool memscope_registers_set_result(pid_t thread, struct memscope_registers *registers, long result) {
    registers->user.MEMSCOPE_RESULT_REGISTER = (uint64_t)result;
    return memscope_registers_write(thread, registers);
}

/* The system call that the thread is in or, with `blocked`, that it will restart; -1 for none. */
long memscope_registers_system_call(const struct memscope_registers *registers);
bool memscope_registers_blocked(const struct memscope_registers *registers);

/* Only the kernel knows whether the restarted call will wait for the rest of its time or for all of it again. */
bool memscope_registers_hide_restart(const struct memscope_registers *registers);

/*
 * True if a system call loses some of the thread's registers. *with are those to make the call rt_sigreturn with, which
 * puts all back from the healing frame.
 */
bool memscope_registers_lost_by_call(const struct memscope_registers *registers, struct memscope_registers *with);

uint64_t memscope_registers_thread_pointer(const struct memscope_registers *registers);
uint64_t memscope_registers_argument(const struct memscope_registers *registers, int index);

/*
 * What a called function returned. The function returned to a system call instruction, at whose entry the thread is
 * stopped.
 */
uint64_t memscope_registers_returned(const struct memscope_registers *registers);

/* The thread makes a system call next. */
void memscope_registers_set_system_call(struct memscope_registers *registers, uint64_t instruction, long number,
                                        const uint64_t arguments[6]);

/*
 * The thread calls a function next, with a stack that ends 256 bytes below its own, and the return address `back`,
 * which is written to the process's memory where the architecture wants it there.
 */
bool memscope_registers_set_function(pid_t pid, struct memscope_registers *registers, uint64_t function,
                                     const uint64_t arguments[3], uint64_t back);

/*
 * The thread calls a function next, with the stack pointer and the return address of a healing frame, whose registers
 * these are: the function returns to the restorer.
 */
void memscope_registers_set_healed_function(struct memscope_registers *registers, uint64_t function,
                                            const uint64_t arguments[3]);

/* At a stop at entry: the system call is not made. */
bool memscope_registers_skip_call(pid_t thread, struct memscope_registers *registers);

/* An interrupted system call returns EINTR instead of being restarted, and none is restarted. */
void memscope_registers_interrupt_call(struct memscope_registers *registers);

/*
 * Writes a signal frame below the thread's stack, with its registers and blocked signals. If the tracer is killed while
 * the thread makes an injected system call, the kernel detaches it, and the return after the call leads to the frame,
 * which restores the thread as the end of a signal handler would. *with are the registers to inject the call with, and
 * *child_stack is the stack for a clone, from which the child returns to _exit. Returns false if there is no room for a
 * frame, or if it could not restore all registers.
 */
bool memscope_healing_frame(pid_t thread, const struct memscope_entry_points *entry, uint64_t blocked_signals,
                            const struct memscope_registers *registers, struct memscope_registers *with,
                            uint64_t *child_stack);
