/*
 * The Ruby in another process, as found in its memory while it runs: nothing is stopped.
 */
#pragma once

#include "attach/machine.h"
#include "attach/refusal.h"
#include "attach/remote_module.h"

/* Addresses. */
struct memscope_ruby_functions {
#define FUNCTION(field, name) uint64_t field;
#include "attach/ruby_functions.def"
};

struct memscope_ruby_target {
    pid_t pid;
    uint64_t started; /* ticks since the machine booted */
    int process;      /* a pidfd, which no other process with this pid can have; -1 if the kernel has none */
    size_t mappings;  /* how many */
    struct memscope_remote_module ruby, libc;
    char libc_name[32]; /* of its file, "none" if it has not been found */
    bool is_glibc;
    char version[16]; /* "3.4.1" */
    struct memscope_ruby_functions functions;
    struct memscope_entry_points entry;
    struct memscope_thread_local context; /* of Ruby's execution context (ec) */
};

/* Takes 1 to 30 ms. Returns false with a refusal. The pidfd stays open in any case. */
bool memscope_ruby_target_find(pid_t pid, struct memscope_ruby_target *target, struct memscope_refusal *refusal);

/* False once the process has ended, or another one has its pid. */
bool memscope_ruby_target_lives(const struct memscope_ruby_target *target);
