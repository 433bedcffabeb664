/*
 * From a frame to its caller's, by the call frame information in the object's .eh_frame (DWARF 5, section 6.4; Linux
 * Standard Base, .eh_frame_hdr): the plain rules that compilers write for C. Rules can be cached and applied again in a
 * few instructions, where an unwinder works them out anew at each frame.
 *
 * For x86-64 and its registers. Takes no lock and allocates nothing: may run inside malloc.
 */
#ifndef MEMSCOPE_UNWIND_RULES_H
#define MEMSCOPE_UNWIND_RULES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/range.h"
#include "elf/object_lookup.h"

enum memscope_unwind_kind {
    MEMSCOPE_UNWIND_UNDESCRIBED, /* no table describes the function */
    MEMSCOPE_UNWIND_OTHER,       /* an expression, a signal's frame: for a whole unwinder */
    MEMSCOPE_UNWIND_OUTERMOST,   /* there is no caller */
    MEMSCOPE_UNWIND_BY_RSP,
    MEMSCOPE_UNWIND_BY_RBP
};

/*
 * The caller's stack pointer (the CFA) is cfa bytes above the register that kind names. The 8 bytes below it hold the
 * return address, and the 8 bytes at rbp from it the caller's rbp; 0: still in the register.
 */
struct memscope_unwind_rule {
    enum memscope_unwind_kind kind;
    int32_t cfa, rbp;
    uintptr_t function;  /* where it starts; 0 for MEMSCOPE_UNWIND_UNDESCRIBED */
    int32_t description; /* what this was read from, in bytes from the object's unwind index; 0: nothing */
};

/* The rule for a frame of this object, which must have an unwind index, that a call returns to at address. */
struct memscope_unwind_rule memscope_unwind_rule_of(const struct memscope_loaded_object *object, uintptr_t address);

/*
 * The rule in a frame description (FDE) for the instructions before the given offset from its function's start, which
 * is not filled in. Reads nothing outside readable, whatever the bytes.
 */
struct memscope_unwind_rule memscope_unwind_rule_parse(const uint8_t *description, struct memscope_range readable,
                                                       uint64_t distance);

#endif
