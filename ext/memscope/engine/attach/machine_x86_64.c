#include "attach/machine.h"

#if defined(__x86_64__)

#include "attach/remote_memory.h"
#include "attach/tracing.h"

#include <elf.h>
#include <errno.h>
#include <string.h>
#include <sys/ptrace.h>
#include <ucontext.h>

/* The kernel's results of interrupted system calls, which it restarts (include/linux/errno.h). */
enum { RESTARTSYS = 512, RESTARTNOINTR = 513, RESTARTNOHAND = 514, RESTART_BLOCK = 516 };

/* A function may use this many bytes below its stack pointer without moving it. */
#define RED_ZONE UINT64_C(128)
/* Trap and direction flags. */
#define FLAGS_CLEARED UINT64_C(0x500)

long memscope_code_find_system_call(const unsigned char *code, size_t size) {
    for (size_t at = 0; at + MEMSCOPE_CALL_BYTES <= size; at++)
        if (code[at] == 0x0f && code[at + 1] == 0x05)
            return (long)at;
    return -1;
}

long memscope_code_find_restorer(const unsigned char *code, size_t size) {
    static const unsigned char restorer[] = {0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05}; /* mov $15,%rax; syscall */
    const unsigned char *found = memmem(code, size, restorer, sizeof restorer);

    return found == NULL ? -1 : (long)(found - code);
}

/* ---- thread-local variables ------------------------------------------------------------------------------------ */

#define MAX_RELOCATIONS 1000000
#define READER_BYTES 64

/* The number of the object's own module, which the linker has written where a relocation wants it. */
static bool find_module_number(const struct memscope_remote_module *module, uint64_t *number) {
    uint64_t count = module->relocation_bytes / sizeof(Elf64_Rela);
    Elf64_Rela relocation;

    for (uint64_t index = 0; index < count && index < MAX_RELOCATIONS; index++) {
        Elf64_Sym symbol = {.st_shndx = SHN_UNDEF};
        uint32_t which;

        if (!memscope_remote_read(module->pid, module->relocations + index * sizeof relocation, &relocation,
                                  sizeof relocation))
            return false;
        if (ELF64_R_TYPE(relocation.r_info) != R_X86_64_DTPMOD64)
            continue;
        which = (uint32_t)ELF64_R_SYM(relocation.r_info);
        if (which != 0 &&
            (!memscope_remote_read(module->pid, module->symbols + which * sizeof symbol, &symbol, sizeof symbol) ||
             symbol.st_shndx == SHN_UNDEF))
            continue;
        return memscope_remote_read(module->pid, module->bias + relocation.r_offset, number, sizeof *number);
    }
    return false;
}

/* data16 lea index(%rip),%rdi: the pair of module and offset is the argument of __tls_get_addr. */
static bool find_in_code(const struct memscope_remote_module *module, uint64_t reader,
                         struct memscope_thread_local *found) {
    static const unsigned char lea[] = {0x66, 0x48, 0x8d, 0x3d};
    uint64_t pair[2];
    unsigned char code[READER_BYTES];
    const unsigned char *at;
    int32_t distance;

    if (!memscope_remote_read(module->pid, reader, code, sizeof code) ||
        (at = memmem(code, sizeof code - sizeof lea - sizeof distance, lea, sizeof lea)) == NULL)
        return false;
    memcpy(&distance, at + sizeof lea, sizeof distance);
    reader += (uint64_t)(at - code) + sizeof lea + sizeof distance + (uint64_t)(int64_t)distance;
    if (!memscope_remote_read(module->pid, reader, pair, sizeof pair))
        return false;
    *found = (struct memscope_thread_local){.module = pair[0], .offset = pair[1]};
    return pair[0] != 0;
}

bool memscope_thread_local_find(const struct memscope_remote_module *module, bool is_executable, const char *name,
                                uint64_t reader, struct memscope_thread_local *found) {
    Elf64_Sym symbol;

    *found = (struct memscope_thread_local){.module = is_executable};
    if (!memscope_remote_module_find(module, name, &symbol))
        return find_in_code(module, reader, found);
    found->offset = symbol.st_value;
    return is_executable || find_module_number(module, &found->module);
}

/* ---- registers ------------------------------------------------------------------------------------------------- */

bool memscope_registers_read(pid_t thread, struct memscope_registers *registers) {
    return memscope_trace(PTRACE_GETREGS, thread, 0, (uintptr_t)&registers->user);
}

long memscope_registers_system_call(const struct memscope_registers *registers) {
    return (long)registers->user.orig_rax;
}

bool memscope_registers_blocked(const struct memscope_registers *registers) {
    long result = -(long)registers->user.rax;

    return memscope_registers_system_call(registers) >= 0 &&
           (result == RESTARTSYS || result == RESTARTNOINTR || result == RESTARTNOHAND || result == RESTART_BLOCK);
}

bool memscope_registers_hide_restart(const struct memscope_registers *registers) {
    (void)registers;
    return false;
}

bool memscope_registers_lost_by_call(const struct memscope_registers *registers, struct memscope_registers *with) {
    (void)registers;
    (void)with;
    return false;
}

uint64_t memscope_registers_thread_pointer(const struct memscope_registers *registers) {
    return registers->user.fs_base;
}

uint64_t memscope_registers_argument(const struct memscope_registers *registers, int index) {
    const struct user_regs_struct *user = &registers->user;
    const uint64_t arguments[] = {user->rdi, user->rsi, user->rdx, user->r10, user->r8, user->r9};

    return arguments[index];
}

uint64_t memscope_registers_returned(const struct memscope_registers *registers) {
    return registers->user.orig_rax;
}

void memscope_registers_set_system_call(struct memscope_registers *registers, uint64_t instruction, long number,
                                        const uint64_t arguments[6]) {
    struct user_regs_struct *user = &registers->user;

    user->rip = instruction;
    user->rax = (uint64_t)number;
    user->orig_rax = UINT64_MAX;
    user->rdi = arguments[0];
    user->rsi = arguments[1];
    user->rdx = arguments[2];
    user->r10 = arguments[3];
    user->r8 = arguments[4];
    user->r9 = arguments[5];
}

void memscope_registers_set_healed_function(struct memscope_registers *registers, uint64_t function,
                                            const uint64_t arguments[3]) {
    struct user_regs_struct *user = &registers->user;

    user->rip = function;
    user->rax = 0;
    user->orig_rax = UINT64_MAX;
    user->rdi = arguments[0];
    user->rsi = arguments[1];
    user->rdx = arguments[2];
    user->eflags &= ~FLAGS_CLEARED;
}

bool memscope_registers_set_function(pid_t pid, struct memscope_registers *registers, uint64_t function,
                                     const uint64_t arguments[3], uint64_t back) {
    struct user_regs_struct *user = &registers->user;

    user->rsp = ((user->rsp - 2 * RED_ZONE) & ~UINT64_C(15)) - sizeof back;
    memscope_registers_set_healed_function(registers, function, arguments);
    return memscope_remote_write(pid, user->rsp, &back, sizeof back);
}

bool memscope_registers_skip_call(pid_t thread, struct memscope_registers *registers) {
    registers->user.orig_rax = UINT64_MAX;
    return memscope_registers_write(thread, registers);
}

void memscope_registers_interrupt_call(struct memscope_registers *registers) {
    if (memscope_registers_blocked(registers))
        registers->user.rax = (uint64_t)-EINTR;
    registers->user.orig_rax = UINT64_MAX;
}

/* ---- the healing frame ----------------------------------------------------------------------------------------- */

/* A frame as the kernel writes it (arch/x86/kernel/signal.c): the return address, ucontext, siginfo; the FPU above. */
#define MAX_FPU 12288
#define FRAME_BYTES 448 /* return address, ucontext of the kernel's size, siginfo of 128 bytes */
#define CHILD_STACK_BYTES 256
#define FPU_ALIGNMENT 64
/* In the FPU's legacy region: XCR0 as ptrace has it, and the 48 bytes that the kernel's software uses. */
#define SOFTWARE_BYTES_AT 464
#define MAGIC1 UINT32_C(0x46505853)
#define MAGIC2 UINT32_C(0x46505845)
/* Not a valid combination: the thread keeps its alternate stack (do_sigaltstack refuses it). */
#define NO_ALTERNATE_STACK 0x70
/* UC_FP_XSTATE | UC_SIGCONTEXT_SS | UC_STRICT_RESTORE_SS. */
#define CONTEXT_FLAGS 7

/* The FPU's registers, from the form that ptrace has to that of a signal frame. Returns the size, or 0. */
static size_t read_fpu(pid_t thread, unsigned char *fpu) {
    size_t size = MAX_FPU - FPU_ALIGNMENT; /* room for the second magic number */
    uint64_t enabled;
    uint32_t magic1 = MAGIC1, magic2 = MAGIC2, extended, state;

    if (!memscope_trace_get_set(thread, NT_X86_XSTATE, fpu, &size))
        return 0;
    extended = (uint32_t)(size + sizeof magic2);
    state = (uint32_t)size;
    memcpy(&enabled, fpu + SOFTWARE_BYTES_AT, sizeof enabled);
    memset(fpu + SOFTWARE_BYTES_AT, 0, 48);
    memcpy(fpu + SOFTWARE_BYTES_AT, &magic1, sizeof magic1);
    memcpy(fpu + SOFTWARE_BYTES_AT + 4, &extended, sizeof extended);
    memcpy(fpu + SOFTWARE_BYTES_AT + 8, &enabled, sizeof enabled);
    memcpy(fpu + SOFTWARE_BYTES_AT + 16, &state, sizeof state);
    memcpy(fpu + size, &magic2, sizeof magic2);
    return size + sizeof magic2;
}

static void fill_general(long long *general, const struct user_regs_struct *user) {
    general[REG_R8] = (long long)user->r8;
    general[REG_R9] = (long long)user->r9;
    general[REG_R10] = (long long)user->r10;
    general[REG_R11] = (long long)user->r11;
    general[REG_R12] = (long long)user->r12;
    general[REG_R13] = (long long)user->r13;
    general[REG_R14] = (long long)user->r14;
    general[REG_R15] = (long long)user->r15;
    general[REG_RDI] = (long long)user->rdi;
    general[REG_RSI] = (long long)user->rsi;
    general[REG_RBP] = (long long)user->rbp;
    general[REG_RBX] = (long long)user->rbx;
    general[REG_RDX] = (long long)user->rdx;
    general[REG_RAX] = (long long)user->rax;
    general[REG_RCX] = (long long)user->rcx;
    general[REG_RSP] = (long long)user->rsp;
    general[REG_RIP] = (long long)user->rip;
    general[REG_EFL] = (long long)user->eflags;
    general[REG_CSGSFS] = (long long)(user->cs | user->ss << 48);
}

/* The end of a handler does not restart a system call by itself. */
static void restart_call(long long *general, const struct memscope_registers *registers) {
    if (!memscope_registers_blocked(registers))
        return;
    if (-(long)registers->user.rax == RESTART_BLOCK) {
        general[REG_RAX] = -EINTR;
        return;
    }
    general[REG_RIP] -= MEMSCOPE_CALL_BYTES;
    general[REG_RAX] = (long long)registers->user.orig_rax;
}

bool memscope_healing_frame(pid_t thread, const struct memscope_entry_points *entry, uint64_t blocked_signals,
                            const struct memscope_registers *registers, struct memscope_registers *with,
                            uint64_t *child_stack) {
    unsigned char fpu[MAX_FPU] = {0}, image[MAX_FPU + FRAME_BYTES + CHILD_STACK_BYTES + 2 * FPU_ALIGNMENT] = {0};
    size_t fpu_bytes = read_fpu(thread, fpu);
    ucontext_t context = {.uc_flags = CONTEXT_FLAGS, .uc_stack.ss_flags = NO_ALTERNATE_STACK};
    uint64_t fpu_at = (registers->user.rsp - RED_ZONE - fpu_bytes) & ~(uint64_t)(FPU_ALIGNMENT - 1);
    uint64_t frame = ((fpu_at - FRAME_BYTES) & ~UINT64_C(15)) - sizeof entry->restorer;

    if (fpu_bytes == 0)
        return false;
    *child_stack = frame - CHILD_STACK_BYTES;
    fill_general(context.uc_mcontext.gregs, &registers->user);
    restart_call(context.uc_mcontext.gregs, registers);
    context.uc_mcontext.fpregs = (void *)(uintptr_t)fpu_at;
    memcpy(&context.uc_sigmask, &blocked_signals, sizeof blocked_signals);
    memcpy(image, &entry->exit_function, sizeof entry->exit_function);
    memcpy(image + CHILD_STACK_BYTES, &entry->restorer, sizeof entry->restorer);
    /* The kernel's ucontext ends after eight bytes of signals. */
    memcpy(image + CHILD_STACK_BYTES + sizeof entry->restorer, &context,
           offsetof(ucontext_t, uc_sigmask) + sizeof blocked_signals);
    memcpy(image + (fpu_at - *child_stack), fpu, fpu_bytes);
    *with = *registers;
    with->user.rsp = frame;
    return memscope_remote_write(thread, *child_stack, image, (size_t)(fpu_at - *child_stack) + fpu_bytes);
}

#endif
