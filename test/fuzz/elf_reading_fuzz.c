/*
 * The input is read as an ELF file, and as the loaded image of an object. The seed is a small library with a build-id:
 * cc -shared -nostdlib -Wl,--build-id,-z,noseparate-code,-z,max-page-size=16.
 */
#include "elf/elf_reading.h"

#include <link.h>
#include <stdlib.h>
#include <string.h>

#define LOAD_BIAS 0x10000

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct input {
    const uint8_t *data;
    size_t size;
    uint64_t position; /* where data begins in the source */
};

static bool read_input(const void *context, uint64_t position, void *into, size_t size) {
    const struct input *input = context;

    if (position < input->position || position - input->position > input->size ||
        size > input->size - (position - input->position))
        return false;
    memcpy(into, input->data + (position - input->position), size);
    return true;
}

static void check(const struct memscope_functions *functions, const struct memscope_shared_object *object) {
    for (size_t index = 0; index < functions->count; index++) {
        const struct memscope_function *function = &functions->list[index];

        if (function->name[0] == '\0' || strlen(function->name) == 0)
            abort();
        if (index > 0 && function[-1].start >= function->start)
            abort();
        if (object &&
            (function->start >= function->end || memscope_functions_find(functions, function->start) != function ||
             !memscope_shared_object_contains(object, function->end - 1)))
            abort();
    }
    memscope_functions_find(functions, 0);
    memscope_functions_find(functions, UINTPTR_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const ElfW(Phdr) code = {.p_type = PT_LOAD, .p_flags = PF_R | PF_X, .p_memsz = 0x1000};
    const struct memscope_shared_object loaded = {"", LOAD_BIAS, &code, 1};
    const struct input as_file = {data, size, 0}, as_image = {data, size, LOAD_BIAS};
    const struct memscope_elf_source file_source = {read_input, &as_file}, image_source = {read_input, &as_image};
    static struct memscope_scratch scratch;
    struct memscope_shared_object image = {"", LOAD_BIAS, NULL, 0};
    struct memscope_functions functions;
    struct memscope_build_id build_id;
    struct memscope_elf_file file;

    if (scratch.base == NULL && memscope_scratch_open(&scratch) != MEMSCOPE_OK)
        abort();
    scratch.used = 0;
    if (memscope_elf_read_file(&file_source, &scratch, &file) != MEMSCOPE_OK)
        return 0;
    memscope_elf_file_build_id(&file, &build_id);
    memscope_elf_same_layout(&file, &loaded, true);
    memscope_elf_file_functions(&file, &loaded, &scratch, &functions);
    check(&functions, &loaded);
    image.headers = file.headers;
    image.header_count = file.header_count;
    memscope_elf_image_build_id(&image_source, &image, &build_id);
    memscope_elf_file_functions(&file, &image, &scratch, &functions);
    check(&functions, NULL);
    memscope_elf_image_functions(&image_source, &file, &image, &scratch, &functions);
    check(&functions, NULL);
    return 0;
}
