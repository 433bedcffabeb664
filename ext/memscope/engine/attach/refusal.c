#include "attach/refusal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool memscope_refuse(struct memscope_refusal *refusal, const char *name) {
    return memscope_refuse_for(refusal, name, "%s", "");
}

bool memscope_refuse_for(struct memscope_refusal *refusal, const char *name, const char *arguments, ...) {
    va_list list;
    int length;

    if (refusal->text[0] != '\0')
        return false;
    length = snprintf(refusal->text, sizeof refusal->text, "%s\n%d\n", name, (int)refusal->pid);
    va_start(list, arguments);
    /* clang-tidy 14 does not see va_start. NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized) */
    vsnprintf(refusal->text + length, sizeof refusal->text - (size_t)length, arguments, list);
    va_end(list);
    for (char *cursor = refusal->text; *cursor != '\0'; cursor++)
        if (((unsigned char)*cursor < ' ' && *cursor != '\n') || *cursor == 0x7f)
            *cursor = '?';
    return false;
}
