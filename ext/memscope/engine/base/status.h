/*
 * The one status enum that every reader of the engine returns.
 *
 * The engine never raises, aborts or prints: it fills plain structs and returns a status, which the binding turns into
 * a reason (for a reading) or an exception (for an action).
 */
#pragma once

/* STATUS(name, id) */
#define MEMSCOPE_STATUSES(STATUS)                                                                                      \
    STATUS(OK, ok)                                                                                                     \
    STATUS(UNSUPPORTED, unsupported) /* this platform, kernel or allocator has no such thing */                        \
    STATUS(DENIED, denied)       /* it exists, and the kernel refuses it to this process (EACCES, EPERM, seccomp) */   \
    STATUS(NOT_FOUND, not_found) /* the file, key or symbol is not there */                                            \
    STATUS(MALFORMED, malformed) /* it was read and does not have the documented form */                               \
    STATUS(NO_MEMORY, no_memory) /* no memory could be mapped, or no room is left in a scratch */                      \
    STATUS(TRUNCATED, truncated) /* it is larger than the room given */                                                \
    STATUS(IO, io)               /* any other errno of a read */                                                       \
    STATUS(EXHAUSTED, exhausted) /* a limit on the number of processes is reached */                                   \
    STATUS(NO_FILE, no_file)     /* no descriptor is free (EMFILE, ENFILE) */                                          \
    STATUS(SHARED, shared)       /* a child of memscope shared all pages during the reading (kernel/own_children.h) */

#define STATUS(name, id) MEMSCOPE_##name,
enum memscope_status { MEMSCOPE_STATUSES(STATUS) };
#undef STATUS

/* The id of a status, such as "denied". lib/memscope/value/reasons.words has a sentence for each. Any context. */
const char *memscope_status_id(enum memscope_status status);

/* The status for an errno of open, read, ioctl or mmap. Any context. */
enum memscope_status memscope_status_of_errno(int error);
