#include "attach/machine.h"

#if MEMSCOPE_CAN_ATTACH

#include "attach/tracing.h"

#include <elf.h>
#include <sys/ptrace.h>

bool memscope_registers_write(pid_t thread, const struct memscope_registers *registers) {
    return memscope_trace_put_set(thread, NT_PRSTATUS, &registers->user, sizeof registers->user);
}

uint64_t memscope_registers_place(const struct memscope_registers *registers) {
    return registers->user.MEMSCOPE_PLACE_REGISTER;
}

bool memscope_registers_at_call(const struct memscope_registers *registers, uint64_t instruction) {
    return memscope_registers_place(registers) == instruction + MEMSCOPE_CALL_BYTES;
}

long memscope_registers_result(const struct memscope_registers *registers) {
    return (long)registers->user.MEMSCOPE_RESULT_REGISTER;
}

bool memscope_registers_set_result(pid_t thread, struct memscope_registers *registers, long result) {
    registers->user.MEMSCOPE_RESULT_REGISTER = (uint64_t)result;
    return memscope_registers_write(thread, registers);
}

uint64_t memscope_restorer_system_call(const struct memscope_entry_points *entry) {
    return entry->restorer + MEMSCOPE_RESTORER_CALL_AT;
}

#endif
