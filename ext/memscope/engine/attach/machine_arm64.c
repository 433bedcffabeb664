#include "attach/machine.h"

#if defined(__aarch64__)

#include "attach/remote_memory.h"
#include "attach/tracing.h"

#include <elf.h>
#include <errno.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <ucontext.h>

/* Not in the headers of older systems. */
#ifndef NT_ARM_SYSTEM_CALL
#define NT_ARM_SYSTEM_CALL 0x404
#endif
#define REGISTERS_OF_STREAMING 0x40b /* NT_ARM_SSVE */
#define GUARDED_CONTROL_STACK 0x410  /* NT_ARM_GCS */

#define SYSTEM_CALL UINT32_C(0xd4000001) /* svc #0 */
/* Between the stack of a called function and the thread's own. There is no red zone. */
#define GAP UINT64_C(256)
/* What the last branch was (BTYPE): after an indirect one, only a landing pad may come next. */
#define BRANCH_TYPE UINT64_C(0xc00)

long memscope_code_find_system_call(const unsigned char *code, size_t size) {
    static const uint32_t call = SYSTEM_CALL;

    for (size_t at = 0; at + sizeof call <= size; at += MEMSCOPE_CALL_BYTES)
        if (memcmp(code + at, &call, sizeof call) == 0)
            return (long)at;
    return -1;
}

/* The kernel's own, in the vDSO: no C library but musl has one. */
long memscope_code_find_restorer(const unsigned char *code, size_t size) {
    static const uint32_t restorer[] = {0xd2801168, SYSTEM_CALL}; /* mov x8, #139 */
    const unsigned char *found = memmem(code, size, restorer, sizeof restorer);

    return found == NULL ? -1 : (long)(found - code);
}

/* ---- thread-local variables ------------------------------------------------------------------------------------ */

#define READER_WORDS 16
/* An argument below is an offset from the thread pointer, any other a pointer: the object was loaded late. */
#define MAX_STATIC_OFFSET (UINT64_C(1) << 24)

static int64_t sign_extended(uint32_t bits, int count) {
    return (int64_t)((uint64_t)bits << (64 - count)) >> (64 - count);
}

/*
 * adrp x0, page; ldr xN, [x0, #offset]; add x0, x0, #offset; blr xN: the sequence that the ABI of TLS descriptors
 * prescribes. Returns the address of the descriptor: a function, and its argument.
 */
static uint64_t descriptor_in(const uint32_t *code, uint64_t place) {
    uint32_t pages = (code[0] >> 5 & 0x7ffff) << 2 | (code[0] >> 29 & 3);

    if ((code[0] & 0x9f00001f) != 0x90000000 || (code[1] & 0xffc003e0) != 0xf9400000 ||
        (code[2] & 0xffc003ff) != 0x91000000 || (code[3] & 0xfffffc1f) != 0xd63f0000)
        return 0;
    return (place & ~UINT64_C(4095)) + (uint64_t)(sign_extended(pages, 21) * 4096) + (code[2] >> 10 & 0xfff);
}

/* Since Ruby 3.3, the function calls another, by bl, that reads the variable (vm_core.h, vm.c). */
static uint64_t find_descriptor(pid_t pid, uint64_t function) {
    uint32_t code[READER_WORDS] = {0};

    for (int calls = 0; calls < 2; calls++) {
        uint64_t called = 0;

        if (!memscope_remote_read(pid, function, code, sizeof code))
            return 0;
        for (size_t at = 0; called == 0 && at + 4 <= READER_WORDS; at++) {
            uint64_t place = function + at * MEMSCOPE_CALL_BYTES, found = descriptor_in(code + at, place);

            if (found != 0)
                return found;
            if ((code[at] & 0xfc000000) == 0x94000000)
                called = place + (uint64_t)(sign_extended(code[at] & 0x3ffffff, 26) * MEMSCOPE_CALL_BYTES);
        }
        function = called;
    }
    return 0;
}

bool memscope_thread_local_find(const struct memscope_remote_module *module, bool is_executable, const char *name,
                                uint64_t reader, struct memscope_thread_local *found) {
    uint64_t descriptor, pair[2];
    Elf64_Sym symbol;

    if (is_executable && memscope_remote_module_find(module, name, &symbol)) {
        *found = (struct memscope_thread_local){.module = 1, .offset = symbol.st_value};
        return true;
    }
    descriptor = find_descriptor(module->pid, reader);
    if (descriptor == 0 || !memscope_remote_read(module->pid, descriptor, pair, sizeof pair) || pair[0] == 0)
        return false;
    if (pair[1] < MAX_STATIC_OFFSET) {
        *found = (struct memscope_thread_local){.module = 0, .offset = pair[1]};
        return true;
    }
    if (!memscope_remote_read(module->pid, pair[1], pair, sizeof pair))
        return false;
    *found = (struct memscope_thread_local){.module = pair[0], .offset = pair[1]};
    return pair[0] != 0;
}

/* ---- registers ------------------------------------------------------------------------------------------------- */

static bool get(pid_t thread, unsigned set, void *values, size_t size) {
    return memscope_trace_get_set(thread, set, values, &size);
}

/*
 * Before a thread stops in an interrupted call, the kernel has put its registers back to before the call, and has
 * forgotten its number (do_signal in arch/arm64/kernel/signal.c): the thread is about to make the call again.
 */
bool memscope_registers_read(pid_t thread, struct memscope_registers *registers) {
    struct user_sve_header vectors;
    uint32_t next = 0;

    if (!get(thread, NT_PRSTATUS, &registers->user, sizeof registers->user) ||
        !get(thread, NT_ARM_TLS, &registers->thread_pointer, sizeof registers->thread_pointer) ||
        !get(thread, NT_ARM_SYSTEM_CALL, &registers->system_call, sizeof registers->system_call))
        return false;
    registers->blocked = memscope_remote_read(thread, registers->user.pc, &next, sizeof next) && next == SYSTEM_CALL;
    if (registers->blocked)
        registers->system_call = (int32_t)registers->user.regs[8];
    registers->has_vectors =
        get(thread, NT_ARM_SVE, &vectors, sizeof vectors) && (vectors.flags & SVE_PT_REGS_MASK) == SVE_PT_REGS_SVE;
    return true;
}

long memscope_registers_system_call(const struct memscope_registers *registers) {
    return registers->system_call;
}

bool memscope_registers_blocked(const struct memscope_registers *registers) {
    return registers->blocked;
}

/* Of the calls that arm64 has, those that return ERESTART_RESTARTBLOCK (kernel/futex/, kernel/time/). */
bool memscope_registers_hide_restart(const struct memscope_registers *registers) {
    long number = registers->system_call;

    return registers->blocked && (number == SYS_nanosleep || number == SYS_clock_nanosleep ||
                                  (number == SYS_futex && registers->user.regs[3] != 0));
}

uint64_t memscope_registers_thread_pointer(const struct memscope_registers *registers) {
    return registers->thread_pointer;
}

uint64_t memscope_registers_argument(const struct memscope_registers *registers, int index) {
    return registers->user.regs[index];
}

uint64_t memscope_registers_returned(const struct memscope_registers *registers) {
    return registers->user.regs[0];
}

static void go_to(struct memscope_registers *registers, uint64_t place, const uint64_t *arguments, size_t count) {
    memcpy(registers->user.regs, arguments, count * sizeof *arguments);
    registers->user.pc = place;
    registers->user.pstate &= ~BRANCH_TYPE;
    registers->system_call = -1;
    registers->blocked = false;
}

void memscope_registers_set_system_call(struct memscope_registers *registers, uint64_t instruction, long number,
                                        const uint64_t arguments[6]) {
    go_to(registers, instruction, arguments, 6);
    registers->user.regs[8] = (uint64_t)number;
}

void memscope_registers_set_healed_function(struct memscope_registers *registers, uint64_t function,
                                            const uint64_t arguments[3]) {
    go_to(registers, function, arguments, 3);
}

bool memscope_registers_set_function(pid_t pid, struct memscope_registers *registers, uint64_t function,
                                     const uint64_t arguments[3], uint64_t back) {
    (void)pid;
    go_to(registers, function, arguments, 3);
    registers->user.sp = (registers->user.sp - GAP) & ~UINT64_C(15);
    registers->user.regs[30] = back;
    return true;
}

bool memscope_registers_skip_call(pid_t thread, struct memscope_registers *registers) {
    registers->system_call = -1;
    return memscope_trace_put_set(thread, NT_ARM_SYSTEM_CALL, &registers->system_call, sizeof registers->system_call);
}

void memscope_registers_interrupt_call(struct memscope_registers *registers) {
    if (registers->blocked) {
        registers->user.regs[0] = (uint64_t)-EINTR;
        registers->user.pc += MEMSCOPE_CALL_BYTES;
    }
    registers->blocked = false;
    registers->system_call = -1;
}

/* ---- the healing frame ----------------------------------------------------------------------------------------- */

/* A frame as the kernel writes it (arch/arm64/kernel/signal.c). The vectors are records in uc_mcontext.__reserved. */
struct frame {
    unsigned char information[128];
    ucontext_t context;
};
_Static_assert(sizeof(struct frame) == 4688, "the kernel's struct rt_sigframe");

/* Not a valid combination: the thread keeps its alternate stack (do_sigaltstack refuses it). */
#define NO_ALTERNATE_STACK 0x70

/*
 * A frame does not restore streaming mode (SME), which a system call ends. A guarded control stack would lack the
 * return addresses of injected calls.
 */
static bool is_restorable(pid_t thread) {
    struct user_sve_header streaming;
    uint64_t guarded[3];

    if (get(thread, REGISTERS_OF_STREAMING, &streaming, sizeof streaming) &&
        (streaming.flags & SVE_PT_REGS_MASK) == SVE_PT_REGS_SVE)
        return false;
    return !get(thread, GUARDED_CONTROL_STACK, guarded, sizeof guarded) || (guarded[0] & 1) == 0;
}

/* The scalable vectors, without the status that the first record has. Returns false if they do not fit. */
static bool put_scalable(pid_t thread, unsigned char *record, size_t room) {
    unsigned char values[4096];
    struct user_sve_header header;
    struct sve_context context = {.head.magic = SVE_MAGIC};
    size_t size;

    if (!get(thread, NT_ARM_SVE, &header, sizeof header))
        return false;
    size = SVE_SIG_CONTEXT_SIZE(sve_vq_from_vl(header.vl));
    if (size > room || header.size > sizeof values || !get(thread, NT_ARM_SVE, values, sizeof values))
        return false;
    context.head.size = (uint32_t)(size + 15) & ~UINT32_C(15);
    context.vl = header.vl;
    memcpy(record, &context, sizeof context);
    memcpy(record + SVE_SIG_REGS_OFFSET, values + SVE_PT_REGS_OFFSET, size - SVE_SIG_REGS_OFFSET);
    return true;
}

/* After the records comes one of zeros. */
static bool put_vectors(pid_t thread, const struct memscope_registers *registers, mcontext_t *context) {
    unsigned char *records = (unsigned char *)context->__reserved;
    struct fpsimd_context first = {.head = {FPSIMD_MAGIC, sizeof first}};
    struct user_fpsimd_state values;
    size_t room = sizeof context->__reserved - sizeof first - sizeof first.head;

    if (!get(thread, NT_PRFPREG, &values, sizeof values))
        return false;
    first.fpsr = values.fpsr;
    first.fpcr = values.fpcr;
    memcpy(first.vregs, values.vregs, sizeof first.vregs);
    memcpy(records, &first, sizeof first);
    return !registers->has_vectors || put_scalable(thread, records + sizeof first, room);
}

static void put_general(const struct memscope_registers *registers, uint64_t blocked_signals, ucontext_t *context) {
    memcpy(context->uc_mcontext.regs, registers->user.regs, sizeof registers->user.regs);
    context->uc_mcontext.sp = registers->user.sp;
    context->uc_mcontext.pc = registers->user.pc;
    context->uc_mcontext.pstate = registers->user.pstate;
    context->uc_stack.ss_flags = NO_ALTERNATE_STACK;
    memcpy(&context->uc_sigmask, &blocked_signals, sizeof blocked_signals);
}

static uint64_t frames_below(const struct memscope_registers *registers) {
    return (registers->user.sp - 2 * sizeof(struct frame)) & ~UINT64_C(15);
}

/* Scalable vectors (SVE): the kernel discards them at the entry of a call (arch/arm64/kernel/syscall.c). */
bool memscope_registers_lost_by_call(const struct memscope_registers *registers, struct memscope_registers *with) {
    *with = *registers;
    with->user.sp = frames_below(registers) + sizeof(struct frame);
    return registers->has_vectors;
}

/* The child has a frame of its own, since both return to the restorer: it goes on in _exit. */
bool memscope_healing_frame(pid_t thread, const struct memscope_entry_points *entry, uint64_t blocked_signals,
                            const struct memscope_registers *registers, struct memscope_registers *with,
                            uint64_t *child_stack) {
    struct frame frames[2] = {0}; /* the child's, then the thread's */
    struct memscope_registers leaving = *registers;

    if (!is_restorable(thread) || !put_vectors(thread, registers, &frames[1].context.uc_mcontext))
        return false;
    memcpy(frames[0].context.uc_mcontext.__reserved, frames[1].context.uc_mcontext.__reserved,
           sizeof frames[1].context.uc_mcontext.__reserved);
    go_to(&leaving, entry->exit_function, (const uint64_t[]){0}, 1);
    put_general(&leaving, UINT64_MAX, &frames[0].context);
    put_general(registers, blocked_signals, &frames[1].context);
    *child_stack = frames_below(registers);
    (void)memscope_registers_lost_by_call(registers, with);
    with->user.regs[30] = entry->restorer;
    return memscope_remote_write(thread, *child_stack, frames, sizeof frames);
}

#endif
