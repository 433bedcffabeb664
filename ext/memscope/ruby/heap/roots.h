/* The roots from which the mark phase begins. */
#pragma once

#include <ruby.h>

#include "ruby/heap/page_index.h"

/*
 * Calls back for each object that a root refers to, with the category of the root, a constant. Where Ruby leaves out
 * the table of finalizers (MEMSCOPE_ROOTS_LACK_FINALIZERS), each object that looks like one of its values is a root of
 * category "finalizers", garbage too. The caller's context is that of memscope_marking_make.
 */
void memscope_each_root(const struct memscope_page_index *pages,
                        void (*visit)(const char *category, VALUE object, void *data), void *data);

/* Returns true if an object looks like a value in Ruby's table of finalizers. */
bool memscope_may_be_finalizers(VALUE object);
