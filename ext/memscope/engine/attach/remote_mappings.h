/* The mappings of another process. */
#pragma once

#include <sys/types.h>

#include "kernel/mappings.h"

/* Visits each mapping, ascending, until a visit returns false. Their names are gone afterwards. */
enum memscope_status memscope_remote_mappings(pid_t pid,
                                              bool (*visit)(const struct memscope_mapping *mapping, void *context),
                                              void *context);

/* The name of its file without directories, or that of a mapping without a file. */
const char *memscope_remote_mapping_file(const struct memscope_mapping *mapping);
