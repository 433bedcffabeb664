/*
 * How to get from a frame to its caller's, by the call frame information in the .eh_frame of its object (DWARF 5,
 * section 6.4; Linux Standard Base, .eh_frame_hdr): the plain rules that compilers write for C. What an unwinder works
 * out anew at each frame can be kept here, and applied again in a few instructions.
 *
 * For x86-64: the registers are its. Takes no lock and allocates nothing: may be called inside malloc.
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
 * The caller's stack pointer (the CFA) is cfa bytes above the register that kind names. The address that is returned to
 * is in the 8 bytes below it, and the caller's rbp in those at rbp bytes from it; 0: it is still in the register.
 */
struct memscope_unwind_rule {
    enum memscope_unwind_kind kind;
    int32_t cfa, rbp;
    uintptr_t function;  /* where it starts; 0 for MEMSCOPE_UNWIND_UNDESCRIBED */
    int32_t description; /* what this was read from, in bytes from the object's unwind index; 0: nothing */
};

/* The rule for a frame of this object, which has an unwind index, that a call returns to at address. */
struct memscope_unwind_rule memscope_unwind_rule_of(const struct memscope_loaded_object *object, uintptr_t address);

/*
 * The rule in a frame description (FDE) for the instructions before the one so many bytes behind the start of its
 * function, which is not filled in. Reads nothing out of readable, whatever the bytes are.
 */
struct memscope_unwind_rule memscope_unwind_rule_parse(const uint8_t *description, struct memscope_range readable,
                                                       uint64_t distance);

#endif
