/*
 * Which allocator serves malloc, the proof of it, and how it is set.
 *
 * Symbols prove nothing: a jemalloc may be loaded and serve nobody, or be a library's private copy. An allocator is
 * named only after a block of this process's malloc has shown whose it is.
 */
#ifndef MEMSCOPE_ALLOCATOR_H
#define MEMSCOPE_ALLOCATOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

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
    char version[128];                    /* as upstream says it; "" where it does not */
    char path[MEMSCOPE_ALLOCATOR_PATH];   /* the object whose code serves malloc; "" where not known */
    char proof[MEMSCOPE_ALLOCATOR_PROOF]; /* what was seen; for an unknown allocator, what was not */
};

/*
 * Proves who serves malloc and keeps the allocator's settings as the environment has them now, before the program can
 * change it. Called once, when the extension is loaded; later calls do nothing. Allocates and frees two blocks.
 * Forked children inherit the answer: what serves malloc cannot change in a process.
 */
void memscope_allocator_load(void);

/* The answer of memscope_allocator_load, constant from then on. Any context. */
const struct memscope_allocator *memscope_allocator_current(void);

/* "jemalloc", … "unknown". */
const char *memscope_allocator_name_text(enum memscope_allocator_name name);

/* mi_version()'s number in dots: 209 is 2.0.9, 30600 is 3.6.0. A number of four digits stays as it is. */
void memscope_allocator_mimalloc_version(int number, char *text, size_t capacity);

typedef const char *(*memscope_tc_version)(int *major, int *minor, const char **patch);

/* What a gperftools tc_version says, e.g. "2.10". */
void memscope_allocator_tcmalloc_version(memscope_tc_version say, char *text, size_t capacity);

/* An allocator in the process that does not serve malloc. */
struct memscope_other_allocator {
    enum memscope_allocator_name name;
    char prefix[64]; /* of its functions' names: "" or "_rjem_" */
    char path[MEMSCOPE_ALLOCATOR_PATH];
    char version[128]; /* "" where not known */
    const char *reason;
};

#define MEMSCOPE_OTHER_ALLOCATORS 16

/*
 * The others, in the order of loading, walked again only when objects have been loaded or unloaded since. *others is
 * the engine's and good until the next call. Returns how many, MEMSCOPE_OTHER_ALLOCATORS at most.
 * Callers take turns (the binding holds the GVL); it may allocate.
 */
size_t memscope_allocator_others(const struct memscope_other_allocator **others);

/* Text that ends at length, not at a NUL. start is NULL for none. */
struct memscope_text {
    const char *start;
    size_t length;
};

/* The text of a NUL-terminated string; none for NULL. */
static inline struct memscope_text memscope_text_of(const char *string) {
    struct memscope_text text = {string, 0};

    while (string && string[text.length])
        text.length++;
    return text;
}

/* Whether the text is exactly this string. */
static inline bool memscope_text_is(struct memscope_text text, const char *string) {
    size_t index = 0;

    while (index < text.length && string[index] && text.start[index] == string[index])
        index++;
    return index == text.length && string[index] == '\0';
}

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
    } value;                    /* the effective one */
    const char *source;         /* where the effective value came from: "MALLOC_CONF", …, "default" */
    struct memscope_text given; /* what the strongest source that names it says */
    const char *ignored;        /* why given did not take effect, or NULL */
    const char *reason;         /* why the value is not known, or NULL */
};

/* The setting and all it points to are good during the visit only. May leave by longjmp: nothing is held. */
typedef void (*memscope_setting_visitor)(const struct memscope_setting *setting, void *context);

/*
 * Visits every setting of the allocator that serves malloc: one mallctl each under jemalloc, no system call under the
 * others. Allocates nothing. Returns what holds for all of them, a constant phrase, or NULL.
 */
const char *memscope_allocator_settings(memscope_setting_visitor visit, void *context);

/*
 * Visits those settings that a program can change while it runs and the allocator then tells, with their values of now
 * (jemalloc's decay times are those of arena 0). Takes jemalloc's ctl lock; no GVL needed.
 */
void memscope_allocator_current_settings(memscope_setting_visitor visit, void *context);

/* A text of options, and where it stands. text is NULL where it is not given. */
typedef void (*memscope_conf_visitor)(const char *source, const char *text, void *context);

/*
 * Visits the places that jemalloc takes its options from, in its order: a later one wins. Returns the name of the
 * environment variable among them. Visits nothing and returns NULL where another allocator serves malloc.
 */
const char *memscope_allocator_confs(memscope_conf_visitor visit, void *context);

typedef void (*memscope_path_visitor)(const char *path, void *context);

/*
 * Visits the objects of the process, "" for the executable, that call glibc's mallopt by name and can have changed
 * settings unseen. Under the dynamic linker's lock: the visitor must not allocate.
 */
void memscope_allocator_mallopt_callers(memscope_path_visitor visit, void *context);

#endif
