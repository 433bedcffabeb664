/* The methods of Memscope::Native, and what some bindings do under the GVL when the extension is loaded. */
#pragma once

#include <ruby.h>

#define MEMSCOPE_ARGUMENTS_0 VALUE self
#define MEMSCOPE_ARGUMENTS_1 MEMSCOPE_ARGUMENTS_0, VALUE first
#define MEMSCOPE_ARGUMENTS_2 MEMSCOPE_ARGUMENTS_1, VALUE second
#define MEMSCOPE_ARGUMENTS_3 MEMSCOPE_ARGUMENTS_2, VALUE third
#define MEMSCOPE_ARGUMENTS_4 MEMSCOPE_ARGUMENTS_3, VALUE fourth
#define MEMSCOPE_ARGUMENTS_5 MEMSCOPE_ARGUMENTS_4, VALUE fifth
#define MEMSCOPE_ARGUMENTS_6 MEMSCOPE_ARGUMENTS_5, VALUE sixth
#define MEMSCOPE_ARGUMENTS_7 MEMSCOPE_ARGUMENTS_6, VALUE seventh
#define NATIVE(name, function, arguments) VALUE native_##function(MEMSCOPE_ARGUMENTS_##arguments);
#define INIT(name) void Init_memscope_##name(void);
#include "natives.def"
