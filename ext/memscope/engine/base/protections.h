/*
 * What keeps the malloc profile from harming its process, each by a name: so that a test can do without one of them,
 * and show what it is for. All are on in the gem.
 */
#ifndef MEMSCOPE_PROTECTIONS_H
#define MEMSCOPE_PROTECTIONS_H

#include <stdbool.h>

#ifdef MEMSCOPE_UNPROTECTED
/* Whether the name is other than the one that MEMSCOPE_WITHOUT holds, in the environment. */
bool memscope_protects(const char *name);
#define PROTECTS(name) memscope_protects(#name)
#else
#define PROTECTS(name) true
#endif

#endif
