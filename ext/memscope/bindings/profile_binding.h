/*
 * The malloc profile, shared by the binding that controls it and the one that reads it.
 */
#pragma once

#include "values.h"

enum memscope_profile_backend { MEMSCOPE_BACKEND_NONE, MEMSCOPE_BACKEND_JEMALLOC, MEMSCOPE_BACKEND_IMPORTS };

/* This process's memory at some moment. */
struct memscope_memory {
    uint64_t live_bytes, rss; /* MEMSCOPE_UNKNOWN if unreadable */
};

struct memscope_memory memscope_memory_now(void);

/*
 * The running profile, or the last one, whose samples stay until the next starts. Read and written only with the GVL,
 * which is its lock: neither start nor stop releases it. Forked children inherit the profile.
 */
extern struct memscope_profile {
    enum memscope_profile_backend backend;
    bool running;
    unsigned rate_log;
    uint64_t started_ns;                     /* since the epoch */
    struct memscope_memory at_start, at_end; /* at_end: once it has stopped */
} memscope_profile;
