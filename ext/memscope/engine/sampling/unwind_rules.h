/*
 * Rules for the step from a frame to the frame of its caller, from the call frame information in the object's .eh_frame
 * (DWARF 5, section 6.4; Linux Standard Base, .eh_frame_hdr). Covers the plain rules that compilers write for C. A rule
 * can be cached and applied again in a few instructions, whereas an unwinder works it out anew at each frame.
 *
 * For x86-64 only. Takes no lock and allocates nothing: may run inside malloc.
 */
#pragma once

#include "base/range.h"
#include "elf/object_lookup.h"

enum memscope_unwind_kind {
    MEMSCOPE_UNWIND_UNDESCRIBED, /* no FDE covers the address */
    MEMSCOPE_UNWIND_OTHER,       /* needs a full unwinder: an expression, a signal frame */
    MEMSCOPE_UNWIND_OUTERMOST,   /* no caller */
    MEMSCOPE_UNWIND_BY_RSP,
    MEMSCOPE_UNWIND_BY_RBP
};

/*
 * The caller's stack pointer (the CFA) is `cfa` bytes above the register that `kind` names. The 8 bytes below the CFA
 * hold the return address. The caller's rbp is saved at CFA + `rbp`, or still in the register if `rbp` is 0.
 */
struct memscope_unwind_rule {
    enum memscope_unwind_kind kind;
    int32_t cfa, rbp;
    uintptr_t function;  /* start of the function, 0 if unknown */
    int32_t description; /* offset in bytes of the FDE from the object's unwind index, 0 if none */
};

/* The rule for a frame with this return address, in this object, which must have an unwind index. */
struct memscope_unwind_rule memscope_unwind_rule_of(const struct memscope_loaded_object *object, uintptr_t address);

/*
 * The rule that the FDE at `description` has for the instruction that ends `distance` bytes after the function's start.
 * Leaves the fields `function` and `description` 0. Reads nothing outside `readable`, whatever the bytes.
 */
struct memscope_unwind_rule memscope_unwind_rule_parse(const uint8_t *description, struct memscope_range readable,
                                                       uint64_t distance);
