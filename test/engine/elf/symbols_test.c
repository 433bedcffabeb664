/* Exercises symbols.c on this program, its libraries and the vDSO, and functions.c on made-up lists. */
#include "../expect.h"
#include "elf/elf_reading.h"
#include "elf/functions.h"
#include "elf/shared_objects.h"
#include "elf/symbols.h"

#include <string.h>

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

static void add(struct memscope_scratch *scratch, struct memscope_functions *functions,
                struct memscope_function function) {
    struct memscope_function *added = memscope_scratch_extend(scratch, sizeof *added);

    EXPECT(added != NULL);
    *added = function;
    functions->count++;
}

static const char *name_at(const struct memscope_functions *functions, uintptr_t address) {
    const struct memscope_function *function = memscope_functions_find(functions, address);

    return function == NULL ? "" : function->name;
}

static void test_covers(void) {
    struct memscope_scratch scratch;
    struct memscope_functions functions = {0};

    EXPECT(memscope_scratch_open(&scratch) == MEMSCOPE_OK);
    functions.list = memscope_scratch_take(&scratch, 0);
    EXPECT(memscope_functions_sort(&functions, &scratch) && memscope_functions_find(&functions, 1) == NULL);
    add(&scratch, &functions, (struct memscope_function){300, 900, "unsized", false, true, true});
    add(&scratch, &functions, (struct memscope_function){400, 410, "next", true, true, true});
    add(&scratch, &functions, (struct memscope_function){100, 200, "outer", true, true, true});
    add(&scratch, &functions, (struct memscope_function){120, 130, "inner", true, true, true});
    EXPECT(memscope_functions_sort(&functions, &scratch) && functions.count == 4);
    EXPECT(strcmp(name_at(&functions, 99), "") == 0 && strcmp(name_at(&functions, 100), "outer") == 0);
    EXPECT(strcmp(name_at(&functions, 129), "inner") == 0 && strcmp(name_at(&functions, 130), "outer") == 0);
    EXPECT(strcmp(name_at(&functions, 200), "") == 0 && strcmp(name_at(&functions, 399), "unsized") == 0);
    EXPECT(strcmp(name_at(&functions, 400), "next") == 0 && strcmp(name_at(&functions, 410), "") == 0);
    memscope_scratch_close(&scratch);
}

static void test_prefers(void) {
    static const struct memscope_function ascending[] = {
        {100, 150, "_local", true, false, true},     {100, 110, "local", true, false, true},
        {100, 110, "_weak", true, true, false},      {100, 110, "__strong", true, true, true},
        {100, 110, "_strong", true, true, true},     {100, 110, "weak_name", true, true, false},
        {100, 110, "weak_alias", true, true, false}, {100, 110, "strong_name", true, true, true},
        {100, 110, "strong_b", true, true, true},    {100, 110, "strong_a", false, true, true}};
    struct memscope_scratch scratch;

    EXPECT(memscope_scratch_open(&scratch) == MEMSCOPE_OK);
    for (size_t count = 2; count <= sizeof ascending / sizeof *ascending; count++) {
        struct memscope_functions functions = {memscope_scratch_take(&scratch, 0), 0};

        for (size_t index = 0; index < count; index++)
            add(&scratch, &functions, ascending[index]);
        EXPECT(memscope_functions_sort(&functions, &scratch) && functions.count == 1);
        if (strcmp(ascending[count - 1].name, "weak_alias") != 0)
            EXPECT(functions.list->name == ascending[count - 1].name);
        EXPECT(functions.list->sized && functions.list->end == 150);
    }
    memscope_scratch_close(&scratch);
}

#if defined(__x86_64__) || defined(__aarch64__)

/* Neither inlined nor exported: only .symtab lists it. */
static __attribute__((noinline)) int known_to_symtab_only(int number) {
    __asm__ volatile("" : "+r"(number));
    return number + 1;
}

static void test_own_static_function(struct memscope_symbols *symbols) {
    uintptr_t address = (uintptr_t)known_to_symtab_only;
    struct memscope_symbol found;
    char path[4096] = "";

    EXPECT(known_to_symtab_only(1) == 2);
    EXPECT(memscope_symbols_find(symbols, address + 1, &found) == MEMSCOPE_OK);
    EXPECT(found.name != NULL && strcmp(found.name, "known_to_symtab_only") == 0 && found.offset == 1);
    EXPECT(found.complete && found.file == MEMSCOPE_OK);
    EXPECT(readlink("/proc/self/exe", path, sizeof path - 1) > 0 && strcmp(found.object, path) == 0);
}

static void test_nowhere(struct memscope_symbols *symbols) {
    uintptr_t nowhere[] = {0, 1, (uintptr_t)symbols, (uintptr_t)symbols->scratch.base, UINTPTR_MAX};
    struct memscope_symbol found;

    for (size_t index = 0; index < sizeof nowhere / sizeof *nowhere; index++) {
        EXPECT(memscope_symbols_find(symbols, nowhere[index], &found) == MEMSCOPE_NOT_FOUND);
        EXPECT(found.name == NULL && found.object == NULL);
    }
}

static bool read_own_file(const void *context, uint64_t position, void *into, size_t size) {
    return fseek((FILE *)context, (long)position, SEEK_SET) == 0 && fread(into, 1, size, (FILE *)context) == size;
}

static bool read_headers_only(const void *context, uint64_t position, void *into, size_t size) {
    return position == 0 && read_own_file(context, position, into, size);
}

static void test_incomplete_and_without_room(void) {
    struct memscope_elf_source source = {read_own_file, fopen("/proc/self/exe", "rb")};
    struct memscope_scratch scratch;
    struct memscope_elf_file file;
    size_t reserved;

    EXPECT(source.context != NULL && memscope_scratch_open(&scratch) == MEMSCOPE_OK);
    EXPECT(memscope_elf_read_file(&source, &scratch, &file) == MEMSCOPE_OK && file.section_count > 0);
    reserved = scratch.reserved;
    scratch.reserved = scratch.used;
    EXPECT(memscope_elf_read_file(&source, &scratch, &file) == MEMSCOPE_NO_MEMORY && file.section_count == 0);
    scratch.reserved = reserved;
    source.read = read_headers_only;
    EXPECT(memscope_elf_read_file(&source, &scratch, &file) == MEMSCOPE_MALFORMED && file.section_count == 0);
    memscope_scratch_close(&scratch);
    fclose((FILE *)source.context);
}

struct code {
    uintptr_t inside; /* an address in the segment to find */
    uintptr_t start, end;
};

static bool find_code(const struct memscope_shared_object *object, void *context) {
    struct code *code = context;
    const ElfW(Phdr) *headers = object->headers;

    for (size_t index = 0; index < object->header_count; index++) {
        uintptr_t start = object->load_bias + headers[index].p_vaddr;

        if (headers[index].p_type != PT_LOAD || code->inside - start >= headers[index].p_memsz)
            continue;
        code->start = start;
        code->end = start + headers[index].p_memsz;
    }
    return code->start == 0;
}

/*
 * dladdr names variables too, and if the linker does not separate code and constants (aarch64), they are interleaved.
 */
static bool dladdr_of_function(void *address, Dl_info *info) {
#ifdef __GLIBC__
    const ElfW(Sym) * symbol;

    return dladdr1(address, info, (void **)&symbol, RTLD_DL_SYMENT) && symbol &&
           ELF64_ST_TYPE(symbol->st_info) != STT_OBJECT;
#else
    return dladdr(address, info) && info->dli_sname;
#endif
}

/*
 * Steps through the C library's code: where dladdr names a function, so does the engine, at the same or a later start.
 */
static void test_like_dladdr(struct memscope_symbols *symbols) {
    struct code code = {.inside = (uintptr_t)dlsym(RTLD_DEFAULT, "nl_langinfo")};
    struct memscope_symbol found;
    size_t same = 0;
    Dl_info info;

    memscope_each_shared_object(find_code, &code);
    EXPECT(code.start < code.end);
    for (uintptr_t address = code.start; address < code.end; address += 97) {
        EXPECT(memscope_symbols_find(symbols, address, &found) == MEMSCOPE_OK);
        if (!dladdr_of_function((void *)address, &info))
            continue;
        EXPECT(found.name != NULL && address - found.offset >= (uintptr_t)info.dli_saddr);
        EXPECT(strcmp(found.object, info.dli_fname) == 0);
        same += address - found.offset == (uintptr_t)info.dli_saddr;
    }
    EXPECT(same >= 1000);
}

static bool find_vdso(const struct memscope_shared_object *object, void *context) {
    uintptr_t *address = context;
    const void *function = memscope_shared_object_symbol(object, "__vdso_clock_gettime");

    if (function == NULL)
        function = memscope_shared_object_symbol(object, "__kernel_clock_gettime");
    if (function != NULL)
        *address = (uintptr_t)function;
    return function == NULL;
}

static void test_vdso(struct memscope_symbols *symbols) {
    struct memscope_symbol found;
    uintptr_t address = 0;

    memscope_each_shared_object(find_vdso, &address);
    if (address == 0)
        return;
    EXPECT(memscope_symbols_find(symbols, address + 1, &found) == MEMSCOPE_OK);
    EXPECT(found.name != NULL && strstr(found.name, "clock_gettime") != NULL && found.offset == 1);
    EXPECT(!found.complete && found.file == MEMSCOPE_NOT_FOUND && strchr(found.object, '/') == NULL);
}

int main(void) {
    struct memscope_symbols symbols;

    test_covers();
    test_prefers();
    test_incomplete_and_without_room();
    EXPECT(memscope_symbols_open(&symbols) == MEMSCOPE_OK);
    test_own_static_function(&symbols);
    test_nowhere(&symbols);
    test_like_dladdr(&symbols);
    test_vdso(&symbols);
    memscope_symbols_close(&symbols);
    memscope_symbols_close(&symbols);
    return 0;
}

#else

int main(void) {
    struct memscope_symbols symbols;
    struct memscope_symbol found;

    test_covers();
    test_prefers();
    EXPECT(memscope_symbols_open(&symbols) == MEMSCOPE_UNSUPPORTED);
    EXPECT(memscope_symbols_find(&symbols, (uintptr_t)main, &found) == MEMSCOPE_UNSUPPORTED && found.name == NULL);
    memscope_symbols_close(&symbols);
    return 0;
}

#endif
