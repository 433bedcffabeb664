/*
 * The program's threads: their names, the lines that made them, and their fiber-local and thread-local variables.
 *
 * A key may be made from data ("hub_#{id}"), so only keys that are Symbols in the program's code have a name.
 */
#ifndef MEMSCOPE_THREAD_LIST_H
#define MEMSCOPE_THREAD_LIST_H

#include <ruby.h>
#include <stdbool.h>
#include <stddef.h>

#include "ruby/heap/heap_references.h"

struct memscope_listed_thread {
    VALUE thread;
    size_t name, name_bytes;   /* in texts */
    size_t place, place_bytes; /* "/srv/app/job.rb:12": where its block begins */
};

struct memscope_thread_local {
    VALUE value, key; /* the key is a Symbol */
    bool in_code;     /* set by memscope_thread_locals_find_keys */
};

struct memscope_thread_list {
    VALUE threads, locals, texts; /* Strings, which the caller must keep: arrays of the structs, and bytes */
    size_t thread_count, local_count;
    VALUE kept_threads, kept_locals; /* Arrays of objects, until their addresses are settled */
};

/*
 * Learns how this Ruby keeps its code. Must be called before the process is forked; only the first call takes time.
 * GVL held.
 */
void memscope_thread_list_learn(void);

/*
 * Lists the threads that are alive. Of a thread, the fiber that runs has its fiber-locals listed. Calls methods of
 * Thread, so it may run the program's code, other threads may run meanwhile, and a signal may end it; a StandardError
 * is swallowed. The list has no addresses yet. GVL held.
 */
void memscope_thread_list_take(struct memscope_thread_list *list);

/*
 * Takes the addresses of what was listed, which holds for as long as no garbage collection begins; nothing in the
 * process refers to these objects for the list's sake any more. Calls no method, and allocates nothing. GVL held.
 */
void memscope_thread_list_settle(struct memscope_thread_list *list);

/* 1 + the thread's index; 0 if the object is no listed thread. */
uint32_t memscope_thread_listed(const struct memscope_thread_list *list, VALUE thread);

/*
 * Looks for the keys in the code of the heap: 0.2 µs for each method or block. Must be called once before
 * memscope_thread_local_of. Works in a forked child.
 */
void memscope_thread_locals_find_keys(const struct memscope_thread_list *list,
                                      const struct memscope_heap_references *references);

/* The variable with this value; one whose key is in code, if there are several. NULL if there is none. */
const struct memscope_thread_local *memscope_thread_local_of(const struct memscope_thread_list *list, VALUE value);

#endif
