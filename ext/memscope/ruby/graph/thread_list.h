/*
 * The program's threads: their names, the lines that made them, and their fiber-local and thread-local variables.
 *
 * A key may be made from data ("hub_#{id}"), so only keys that are Symbols in the program's code have a name.
 */
#pragma once

#include <ruby.h>

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
 * Learns this Ruby's layout of code. Call it with the GVL, before the process is forked. Only the first call takes
 * time.
 */
void memscope_thread_list_learn(void);

/*
 * Lists the live threads, each with the fiber-locals of its current fiber. Calls methods of Thread, so it may run the
 * program's code and other threads, and a signal may end it. Swallows a StandardError. The list has no addresses yet.
 * Caller holds the GVL.
 */
void memscope_thread_list_take(struct memscope_thread_list *list);

/*
 * Takes the addresses of the listed objects, which hold until a garbage collection begins, and drops the list's
 * references to them. Calls no method, and allocates nothing. Caller holds the GVL.
 */
void memscope_thread_list_settle(struct memscope_thread_list *list);

/* 1 + the thread's index, or 0 if the object is not a listed thread. */
uint32_t memscope_thread_listed(const struct memscope_thread_list *list, VALUE thread);

/*
 * Looks for the keys in the code of the heap: 0.2 µs for each method or block. Must be called once before
 * memscope_thread_local_of. Works in a forked child.
 */
void memscope_thread_locals_find_keys(const struct memscope_thread_list *list,
                                      const struct memscope_heap_references *references);

/* The variable with this value, preferably with a key in code, or NULL. */
const struct memscope_thread_local *memscope_thread_local_of(const struct memscope_thread_list *list, VALUE value);
