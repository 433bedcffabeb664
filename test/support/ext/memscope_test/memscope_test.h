/*
 * A simulated host process: known amounts of memory in known places, threads that Ruby does not know, and system calls
 * refused as in a sandbox. Never part of the gem.
 *
 * Everything here except Leaks is a singleton method of the Ruby module Host, runs under the GVL, and raises
 * SystemCallError if the kernel refuses.
 */
#pragma once

#include <ruby.h>

static const size_t page_size = 4096; /* Linux's smallest; with larger pages, touching each several times is harmless */

void init_memory(VALUE host);
void init_stacks(VALUE host);
void init_kernel(VALUE host);
void init_descriptions(VALUE host);
void init_slots(VALUE host);
void init_copies(VALUE host);
void init_vectors(VALUE host);
void init_leaks(void); /* a module of its own: Leaks */
