#include "ledger/images.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/copy.h"
#include "elf/shared_objects.h"

#include <link.h>

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

struct scan {
    struct memscope_scratch *scratch;
    struct memscope_images *images;
};

/* A copy has loaded this library, and its original may have mapped something else there. */
static bool is_absent(const struct memscope_shared_object *object) {
    return memscope_is_copy() && memscope_shared_object_contains(object, (uintptr_t)row_of);
}

/* Lists the image, and then its zeroed segments. */
static bool list_image(const struct memscope_shared_object *object, void *context) {
    const struct scan *scan = context;
    struct memscope_images *images = scan->images;
    struct memscope_range extent = memscope_shared_object_extent(object);
    const ElfW(Phdr) *headers = object->headers;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    struct memscope_image image = {.pages = {extent.start & -page, (extent.end + page - 1) & -page},
                                   .row = row_of(object, images->count == 0)};

    if (is_absent(object))
        return true;
    if (!memscope_scratch_add(scan->scratch, &images->count, &image, sizeof image))
        return false;
    image.zeroed = true;
    for (size_t index = 0; index < object->header_count; index++) {
        uintptr_t start = object->load_bias + headers[index].p_vaddr;

        image.pages.start = (start + headers[index].p_filesz + page - 1) & -page;
        image.pages.end = (start + headers[index].p_memsz + page - 1) & -page;
        if (headers[index].p_type == PT_LOAD && image.pages.end > image.pages.start &&
            !memscope_scratch_add(scan->scratch, &images->count, &image, sizeof image))
            return false;
    }
    return true;
}

static void take_symbol(const struct memscope_shared_object *object, const char *name, const void **symbol) {
    if (*symbol == NULL)
        *symbol = memscope_shared_object_symbol(object, name);
}

static bool take_symbols(const struct memscope_shared_object *object, void *context) {
    struct memscope_images *images = context;
    const ElfW(Phdr) *headers = object->headers;

    take_symbol(object, "_rtld_global", &images->threads.linker_state);
    take_symbol(object, "_thread_db_rtld_global__dl_stack_used", &images->threads.used_stacks);
    take_symbol(object, "_thread_db_rtld_global__dl_stack_user", &images->threads.user_stacks);
    take_symbol(object, "_thread_db_pthread_list", &images->threads.list_node);
    take_symbol(object, "_thread_db_sizeof_pthread", &images->threads.descriptor_size);
    if (memscope_shared_object_symbol(object, "gnu_get_libc_version") == NULL)
        return true;
    for (size_t index = 0; index < object->header_count; index++) {
        if (headers[index].p_type != PT_LOAD || !(headers[index].p_flags & PF_W))
            continue;
        images->c_library_data_start = object->load_bias + headers[index].p_vaddr;
        images->c_library_data_end = images->c_library_data_start + headers[index].p_memsz;
    }
    return true;
}

void memscope_images_read(struct memscope_scratch *scratch, struct memscope_images *images) {
    struct scan scan = {.scratch = scratch, .images = images};

    *images = (struct memscope_images){.list = memscope_scratch_take(scratch, 0)};
    if (images->list != NULL)
        memscope_each_shared_object(list_image, &scan);
    memscope_each_shared_object(take_symbols, images);
}

void memscope_images_claim_zeroed(const struct memscope_images *images, struct memscope_claims *claims) {
    for (const struct memscope_image *image = images->list; image < images->list + images->count; image++)
        if (image->zeroed)
            memscope_claims_add(claims, image->pages.start, image->pages.end, image->row, 1);
}

enum memscope_row memscope_images_row(const struct memscope_images *images, uintptr_t address) {
    for (size_t index = 0; index < images->count; index++)
        if (memscope_range_contains(images->list[index].pages, address))
            return (enum memscope_row)images->list[index].row;
    return MEMSCOPE_ROW_others;
}
