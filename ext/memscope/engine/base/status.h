/*
 * The one status enum that every reader of the engine returns.
 *
 * The engine never raises, aborts or prints: it fills plain structs and returns a status, which the binding turns into
 * a reason (for a reading) or an exception (for an action).
 */
#pragma once

enum memscope_status {
    MEMSCOPE_OK = 0,
    MEMSCOPE_UNSUPPORTED, /* this platform, kernel or allocator has no such thing */
    MEMSCOPE_DENIED,      /* it exists, and the kernel refuses it to this process (EACCES, EPERM, seccomp) */
    MEMSCOPE_NOT_FOUND,   /* the file, key or symbol is not there */
    MEMSCOPE_MALFORMED,   /* it was read and does not have the documented form */
    MEMSCOPE_NO_MEMORY,   /* no memory could be mapped, or no room is left in a scratch */
    MEMSCOPE_TRUNCATED,   /* it is larger than the room given */
    MEMSCOPE_IO,          /* any other errno of a read */
    MEMSCOPE_EXHAUSTED,   /* a limit on the number of processes is reached */
    MEMSCOPE_NO_FILE,     /* no descriptor is free (EMFILE, ENFILE) */
    MEMSCOPE_SHARED,      /* a child of memscope shared all pages during the reading (kernel/own_children.h) */
};

/* The id of a status, such as "denied". lib/memscope/value/reasons.words has a sentence for each. Any context. */
const char *memscope_status_id(enum memscope_status status);

/* The status for an errno of open, read, ioctl or mmap. Any context. */
enum memscope_status memscope_status_of_errno(int error);
