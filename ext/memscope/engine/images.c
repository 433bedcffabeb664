#include "images.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "shared_objects.h"

#ifdef __linux__
#include <link.h>
#endif

struct reading {
    struct memscope_scratch *scratch;
    struct memscope_claims *claims;
    struct memscope_images *images;
};

#ifdef __linux__

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');

    return slash == NULL ? path : slash + 1;
}

static bool is_extension(const struct memscope_shared_object *object) {
    const char *base = base_name(object->path);
    char symbol[128];

    if (strlen(base) + sizeof "Init_" > sizeof symbol)
        return false;
    snprintf(symbol, sizeof symbol, "Init_%.*s", (int)strcspn(base, "."), base);
    return memscope_shared_object_symbol(object, symbol) != NULL;
}

static bool is_c_library(const char *path) {
    static const char *const prefixes[] = {
        "libc.so",  "libc-2.",       "libc.musl", "ld-linux", "ld-musl", "ld-2.",        "libm.so",    "libm-2.",
        "libdl.so", "libpthread.so", "librt.so",  "ld64.so",  "libnss_", "libresolv.so", "libutil.so", "libanl.so"};
    const char *base = base_name(path);

    for (size_t index = 0; index < sizeof prefixes / sizeof prefixes[0]; index++)
        if (strncmp(base, prefixes[index], strlen(prefixes[index])) == 0)
            return true;
    return false;
}

static enum memscope_row row_of(const struct memscope_shared_object *object, bool first) {
    if (first || memscope_shared_object_symbol(object, "ruby_init") != NULL)
        return MEMSCOPE_ROW_ruby;
    if (is_extension(object))
        return MEMSCOPE_ROW_extensions;
    return is_c_library(object->path) ? MEMSCOPE_ROW_c_library : MEMSCOPE_ROW_others;
}

static bool read_image(const struct memscope_shared_object *object, void *context) {
    struct reading *reading = context;
    const ElfW(Phdr) *headers = object->headers;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    struct memscope_image *image = memscope_scratch_extend(reading->scratch, sizeof *image);

    if (image == NULL)
        return false;
    *image = (struct memscope_image){UINTPTR_MAX, 0, row_of(object, reading->images->count == 0)};
    reading->images->count++;
    for (size_t index = 0; index < object->header_count; index++) {
        uintptr_t start = object->load_bias + headers[index].p_vaddr;
        uintptr_t file_end = (start + headers[index].p_filesz + page - 1) & -page;
        uintptr_t end = (start + headers[index].p_memsz + page - 1) & -page;

        if (headers[index].p_type != PT_LOAD)
            continue;
        if ((start & -page) < image->start)
            image->start = start & -page;
        if (end > image->end)
            image->end = end;
        if (end > file_end)
            memscope_claims_add(reading->claims, file_end, end, image->row, 1);
    }
    return true;
}

#endif

void memscope_images_read(struct memscope_scratch *scratch, struct memscope_claims *claims,
                          struct memscope_images *images) {
    struct reading reading = {scratch, claims, images};

    images->count = 0;
    images->list = memscope_scratch_take(scratch, 0);
#ifdef __linux__
    if (images->list != NULL)
        memscope_each_shared_object(read_image, &reading);
#else
    (void)reading;
#endif
}

enum memscope_row memscope_images_row(const struct memscope_images *images, uintptr_t address) {
    for (size_t index = 0; index < images->count; index++)
        if (address >= images->list[index].start && address < images->list[index].end)
            return (enum memscope_row)images->list[index].row;
    return MEMSCOPE_ROW_others;
}
