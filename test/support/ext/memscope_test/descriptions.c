/* What the allocators print about themselves, kept in static memory, which is in none of their figures. */
#include "memscope_test.h"

#include <malloc.h>
#include <stdio.h>
#include <string.h>

extern __attribute__((weak)) void malloc_stats_print(void (*write)(void *, const char *), void *context,
                                                     const char *options);

static char description[32 << 20];
static size_t length;

static void keep(const char *text, size_t size) {
    if (size >= sizeof description - length)
        rb_raise(rb_eRuntimeError, "a description of more than %zu bytes", sizeof description);
    memcpy(description + length, text, size);
    length += size;
}

static void keep_stats(void *context, const char *text) {
    keep(text, strlen(text));
}

static ssize_t keep_info(void *context, const char *text, size_t size) {
    keep(text, size);
    return (ssize_t)size;
}

/* Host.describe_malloc -> nil: keeps malloc_stats_print's JSON or malloc_info's XML. Makes no Ruby object. */
static VALUE host_describe_malloc(VALUE self) {
    char buffer[4096];
    FILE *stream;

    length = 0;
    if (malloc_stats_print) {
        malloc_stats_print(keep_stats, NULL, "J");
        return Qnil;
    }
    stream = fopencookie(NULL, "w", (cookie_io_functions_t){.write = keep_info});
    setvbuf(stream, buffer, _IOFBF, sizeof buffer);
    malloc_info(0, stream);
    fclose(stream);
    return Qnil;
}

/* Host.description -> String: the text that describe_malloc kept last. */
static VALUE host_description(VALUE self) {
    return rb_str_new(description, (long)length);
}

void init_descriptions(VALUE host) {
    rb_define_singleton_method(host, "describe_malloc", host_describe_malloc, 0);
    rb_define_singleton_method(host, "description", host_description, 0);
}
