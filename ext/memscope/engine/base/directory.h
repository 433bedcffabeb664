/* The entries of a directory of the kernel that are named by numbers: threads, descriptors. No allocation. */
#pragma once

#include <stdbool.h>

#include "base/status.h"

/* Visits each number until a visit returns false. */
enum memscope_status memscope_directory_numbers(const char *path, bool (*visit)(int number, void *context),
                                                void *context);
