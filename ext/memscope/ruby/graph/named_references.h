/*
 * The names by which an object refers to others: class, variables, constants, elements, keys and values, captured
 * locals.
 *
 * Reads objects and Ruby's tables only: allocates nothing, calls no method, takes no lock while only one Ractor is
 * alive. So it works in a forked child, and with the GVL held.
 */
#pragma once

#include <ruby.h>

#include "graph/heap_graph.h"
#include "ruby/class_names.h"

/*
 * Learns this Ruby's layout of constants. If it returns false, constants have no names. Call it with the GVL, before
 * the process is forked and before the first reference is named. Only the first call takes time, a tenth of a
 * millisecond, and creates objects.
 */
bool memscope_named_references_learn(void);

typedef void memscope_named_reference(VALUE to, memscope_edge_name name, void *data);

/*
 * Calls back for each reference of the object that has a name. `to` is never a special constant. A reference may come
 * more than once, by different names. The caller must ignore a reference that rb_objspace_reachable_objects_from does
 * not report: it is not the object's own (an element shared with another Array, a weak reference). Up to Ruby 3.4,
 * instance variables are references of the object itself. From 4.0 on, the instance variables of most objects belong to
 * an imemo_fields that the object refers to, and are reported for both.
 *
 * 20 to 60 ns for an object and 10 to 50 ns for each of its references.
 */
void memscope_each_named_reference(VALUE from, memscope_named_reference *callback, struct memscope_class_names *names,
                                   void *data);
