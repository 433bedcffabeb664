/*
 * The allocator that serves malloc, the proof, and its settings.
 *
 * Symbols prove nothing: a loaded jemalloc may serve nobody, or be a library's private copy. An allocator is named only
 * after a block that malloc returned has shown its owner, and musl only after malloc was found in musl's C library.
 */
#pragma once

#include "base/record.h"
#include "base/status.h"
#include "base/text.h"

#define MEMSCOPE_ALLOCATOR_PATH 4096
#define MEMSCOPE_ALLOCATOR_PROOF (2 * MEMSCOPE_ALLOCATOR_PATH + 512)

enum memscope_allocator_name {
    MEMSCOPE_ALLOCATOR_UNKNOWN,
    MEMSCOPE_ALLOCATOR_GLIBC,
    MEMSCOPE_ALLOCATOR_JEMALLOC,
    MEMSCOPE_ALLOCATOR_MIMALLOC,
    MEMSCOPE_ALLOCATOR_TCMALLOC,
    MEMSCOPE_ALLOCATOR_MUSL,
};

struct memscope_allocator {
    enum memscope_allocator_name name;
    bool proved;
    char version[128];                    /* as upstream reports it, "" if it reports none */
    char path[MEMSCOPE_ALLOCATOR_PATH];   /* the object whose code serves malloc, "" if unknown */
    char proof[MEMSCOPE_ALLOCATOR_PROOF]; /* the evidence or, for an unknown allocator, the reason */
};

/*
 * Proves which allocator serves malloc and saves the allocator's environment variables before the program can change
 * them. Call when the extension is loaded. Later calls do nothing. Allocates and frees at most one block for each
 * allocator that it tests for. Forked children inherit the result, since the allocator cannot change in a process.
 */
void memscope_allocator_load(void);

/* The result of memscope_allocator_load, constant from then on. Any context. */
const struct memscope_allocator *memscope_allocator_current(void);

/* "jemalloc", … "unknown". */
const char *memscope_allocator_name_text(enum memscope_allocator_name name);

/* mi_version()'s number in dots: 209 is 2.0.9, 30600 is 3.6.0. A number of four digits stays as it is. */
void memscope_allocator_mimalloc_version(int number, char *text, size_t capacity);

typedef const char *(*memscope_tc_version)(int *major, int *minor, const char **patch);

/* The version that gperftools' tc_version reports, e.g. "2.10". */
void memscope_allocator_tcmalloc_version(memscope_tc_version say, char *text, size_t capacity);

/* An allocator in the process that does not serve malloc. */
struct memscope_other_allocator {
    const void *function;     /* its mallctl, mi_version or tc_version */
    uint64_t allocated_bytes; /* given out, except to jemalloc itself and to thread caches. Needs config.stats */
    enum memscope_allocator_name name;
    bool in_program;   /* the path is the executable's */
    char prefix[64];   /* of its functions' names: "" or "_rjem_" */
    char version[128]; /* "" if unknown */
    char path[MEMSCOPE_ALLOCATOR_PATH];
};

#define MEMSCOPE_OTHER_ALLOCATORS 16

/*
 * Returns a string constant: the reason why this allocator does not serve malloc and, if known, its use by a library.
 */
const char *memscope_other_allocator_reason(const struct memscope_other_allocator *other);

/*
 * Lists the other allocators in load order, and returns their number, at most MEMSCOPE_OTHER_ALLOCATORS. Walks the
 * loaded objects again only if some were loaded or unloaded since the last call. Reads the allocated_bytes of each
 * jemalloc: 6 µs plus 6.5 µs for each of its arenas. *others belongs to the engine and is valid until the next call.
 * Calls must not overlap (the binding holds the GVL), and may allocate.
 */
size_t memscope_allocator_others(const struct memscope_other_allocator **others);

/*
 * Bytes that jemalloc or glibc counts as given out, without jemalloc's own blocks and the blocks in its thread caches.
 * Returns false if there is no such count, and for other allocators. Under glibc, walks the free lists of all arenas,
 * which takes milliseconds. No GVL needed.
 */
bool memscope_allocator_live_bytes(uint64_t *bytes);

enum memscope_setting_type {
    MEMSCOPE_SETTING_NOT_KNOWN,
    MEMSCOPE_SETTING_BOOLEAN,
    MEMSCOPE_SETTING_UNSIGNED,
    MEMSCOPE_SETTING_SIGNED,
    MEMSCOPE_SETTING_TEXT,
};

/* One setting of the allocator that serves malloc. */
struct memscope_setting {
    struct memscope_text name;
    enum memscope_setting_type type;
    union {
        bool boolean;
        uint64_t number;
        int64_t signed_number;
        const char *text;
    } value;                    /* the effective value */
    const char *source;         /* the source of the effective value: "GLIBC_TUNABLES", …, "default" */
    struct memscope_text given; /* the text in the strongest source that sets it */
    const char *ignored;        /* reason why `given` did not take effect, or NULL */
    const char *reason;         /* reason why the value is unknown, or NULL */
};

/* The setting and its texts are valid only during the visit. A visitor may leave by longjmp, since no lock is held. */
typedef void (*memscope_setting_visitor)(const struct memscope_setting *setting, void *context);

/*
 * Visits every setting of the allocator that serves malloc, without a system call. Under jemalloc, the settings are the
 * options that jemalloc reports, one mallctl each, without their sources. memscope_allocator_confs visits the texts
 * that set the options. mimalloc and tcmalloc report none (lib/memscope/process/malloc_variables.rb has them from the
 * environment). Allocates nothing. Returns a string constant, a caveat about all the settings, or NULL if there is
 * none.
 */
const char *memscope_allocator_settings(memscope_setting_visitor visit, void *context);

/*
 * Visits the settings that a program can change at run time and that the allocator reports, with their current values
 * (jemalloc's decay times are arena 0's). Takes jemalloc's ctl lock. No GVL needed.
 */
void memscope_allocator_current_settings(memscope_setting_visitor visit, void *context);

/* Called with a source of options and its text, which is NULL if that source gives none. */
typedef void (*memscope_conf_visitor)(const char *source, const char *text, void *context);

/*
 * Visits the sources of jemalloc's options in the order in which jemalloc reads them, in which a later source wins.
 * Returns the name of the environment variable among them. Visits nothing and returns NULL if another allocator serves
 * malloc.
 */
const char *memscope_allocator_confs(memscope_conf_visitor visit, void *context);

typedef void (*memscope_path_visitor)(const char *path, void *context);

/*
 * Visits the loaded objects ("" for the executable) that import glibc's mallopt, and so may have changed settings
 * unseen. Holds the dynamic linker's lock during the visits, so the visitor must not allocate.
 */
void memscope_allocator_mallopt_callers(memscope_path_visitor visit, void *context);

/*
 * Bytes that a thread has allocated and freed through malloc since it began, rounded up to size classes: the addresses
 * of jemalloc's counters, valid while the thread lives.
 */
struct memscope_thread_bytes {
    const uint64_t *allocated, *freed;
};

/*
 * Finds the counters of the calling thread. Returns MEMSCOPE_UNSUPPORTED unless a jemalloc serves malloc, and
 * MEMSCOPE_NOT_FOUND for a jemalloc without these counters (5.2.1 and earlier without config.stats). Allocates nothing
 * after the first mallctl of the process.
 */
enum memscope_status memscope_thread_bytes_find(struct memscope_thread_bytes *bytes);
