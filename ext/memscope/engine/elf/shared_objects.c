#include "elf/shared_objects.h"

#include <elf.h>
#include <link.h>
#include <string.h>
#include <unistd.h>

typedef ElfW(Phdr) elf_header;
typedef ElfW(Dyn) elf_dynamic;
typedef ElfW(Sym) elf_symbol;
typedef ElfW(Addr) elf_address;
typedef ElfW(Half) elf_half;
typedef ElfW(Word) elf_word;

struct walk {
    memscope_shared_object_visitor visit;
    void *context;
};

static int visit_loaded(struct dl_phdr_info *info, size_t size, void *context) {
    const struct walk *walk = context;
    struct memscope_shared_object object = {
        .path = info->dlpi_name,
        .load_bias = info->dlpi_addr,
        .headers = info->dlpi_phdr,
        .header_count = info->dlpi_phnum,
    };

    (void)size;
    return walk->visit(&object, walk->context) ? 0 : 1;
}

void memscope_each_shared_object(memscope_shared_object_visitor visit, void *context) {
    struct walk walk = {visit, context};

    dl_iterate_phdr(visit_loaded, &walk);
}

static int read_generation(struct dl_phdr_info *info, size_t size, void *context) {
    uint64_t *generation = context;

    /* dlpi_adds and dlpi_subs exist since glibc 2.4 and musl 1.0. A smaller size means that they are absent. */
    if (size >= offsetof(struct dl_phdr_info, dlpi_subs) + sizeof info->dlpi_subs)
        *generation = info->dlpi_adds + info->dlpi_subs;
    return 1;
}

uint64_t memscope_shared_objects_generation(void) {
    uint64_t generation = 0;

    dl_iterate_phdr(read_generation, &generation);
    return generation;
}

/* The dynamic symbol table of one object, as its PT_DYNAMIC describes it. */
struct symbol_table {
    const elf_symbol *symbols;
    const char *names;
    size_t names_length;
    const uint32_t *gnu_hash;
    const elf_word *hash;
    const elf_half *versions;
};

const void *memscope_shared_object_segment(const struct memscope_shared_object *object, uintptr_t address,
                                           unsigned flags) {
    const elf_header *headers = object->headers;

    for (size_t header = 0; header < object->header_count; header++)
        if (headers[header].p_type == PT_LOAD && (headers[header].p_flags & flags) == flags &&
            address - (object->load_bias + headers[header].p_vaddr) < headers[header].p_memsz)
            return &headers[header];
    return NULL;
}

struct memscope_range memscope_shared_object_extent(const struct memscope_shared_object *object) {
    const elf_header *headers = object->headers;
    struct memscope_range extent = {UINTPTR_MAX, 0};

    for (size_t header = 0; header < object->header_count; header++) {
        uintptr_t start = object->load_bias + headers[header].p_vaddr, end = start + headers[header].p_memsz;

        if (headers[header].p_type != PT_LOAD)
            continue;
        extent.start = start < extent.start ? start : extent.start;
        extent.end = end > extent.end ? end : extent.end;
    }
    return extent;
}

/* glibc rewrites the addresses in the dynamic section to run-time ones. musl, and glibc for the vDSO, do not. */
const void *memscope_shared_object_dynamic_address(const struct memscope_shared_object *object, uintptr_t value) {
    if (memscope_shared_object_contains(object, value))
        return (const void *)value;
    if (memscope_shared_object_contains(object, object->load_bias + value))
        return (const void *)(object->load_bias + value);
    return NULL;
}

/* The value of the dynamic section's entry with this tag, or 0 if there is none. */
static uintptr_t dynamic_value(const struct memscope_shared_object *object, intptr_t tag) {
    const elf_header *headers = object->headers;
    size_t header = 0;

    while (header < object->header_count && headers[header].p_type != PT_DYNAMIC)
        header++;
    if (header == object->header_count)
        return 0;
    for (const elf_dynamic *entry = (const elf_dynamic *)(object->load_bias + headers[header].p_vaddr);
         entry->d_tag != DT_NULL; entry++)
        if (entry->d_tag == tag)
            return entry->d_un.d_val;
    return 0;
}

/* The same as an address at run time, or NULL if there is none. */
static const void *dynamic_pointer(const struct memscope_shared_object *object, intptr_t tag) {
    uintptr_t value = dynamic_value(object, tag);

    return value == 0 ? NULL : memscope_shared_object_dynamic_address(object, value);
}

static bool find_symbol_table(const struct memscope_shared_object *object, struct symbol_table *table) {
    *table = (struct symbol_table){
        .symbols = dynamic_pointer(object, DT_SYMTAB),
        .names = dynamic_pointer(object, DT_STRTAB),
        .names_length = dynamic_value(object, DT_STRSZ),
        .gnu_hash = dynamic_pointer(object, DT_GNU_HASH),
        .hash = dynamic_pointer(object, DT_HASH),
        .versions = dynamic_pointer(object, DT_VERSYM),
    };
    return table->symbols && table->names && (table->gnu_hash || table->hash);
}

/*
 * The address of the symbol at `index`. Returns NULL unless the object itself defines the symbol and others can bind to
 * it, and always for indirect functions (their value is the resolver), thread-local variables (an offset), and versions
 * kept for old binaries only.
 */
static const void *exported_address(const struct memscope_shared_object *object, const struct symbol_table *table,
                                    uint32_t index) {
    const elf_half only_old_binaries = 0x8000;
    const elf_symbol *symbol = &table->symbols[index];
    unsigned binding = ELF64_ST_BIND(symbol->st_info), type = ELF64_ST_TYPE(symbol->st_info);

    if (symbol->st_shndx == SHN_UNDEF || (binding != STB_GLOBAL && binding != STB_WEAK && binding != STB_GNU_UNIQUE))
        return NULL;
    if (type != STT_FUNC && type != STT_OBJECT && type != STT_NOTYPE)
        return NULL;
    if (table->versions && (table->versions[index] & only_old_binaries))
        return NULL;
    return (const void *)(object->load_bias + symbol->st_value);
}

/* The parts of a DT_GNU_HASH section. */
struct gnu_hash {
    uint32_t bucket_count, first_symbol, filter_words, filter_shift;
    const elf_address *filter;
    const uint32_t *buckets;
    const uint32_t *chains; /* [0] belongs to first_symbol */
};

static struct gnu_hash gnu_hash_of(const uint32_t *section) {
    struct gnu_hash hash = {section[0], section[1], section[2], section[3], NULL, NULL, NULL};

    hash.filter = (const elf_address *)(section + 4);
    hash.buckets = (const uint32_t *)(hash.filter + hash.filter_words);
    hash.chains = hash.buckets + hash.bucket_count;
    return hash;
}

static const void *look_up_gnu(const struct memscope_shared_object *object, const struct symbol_table *table,
                               const char *name) {
    const unsigned word_bits = sizeof(elf_address) * 8;
    struct gnu_hash hash = gnu_hash_of(table->gnu_hash);
    uint32_t key = 5381, index;
    elf_address word;

    for (const char *character = name; *character; character++)
        key = key * 33 + (unsigned char)*character;
    if (hash.bucket_count == 0 || hash.filter_words == 0)
        return NULL;
    word = hash.filter[key / word_bits % hash.filter_words];
    if (!(word >> key % word_bits & word >> (key >> hash.filter_shift) % word_bits & 1))
        return NULL;
    index = hash.buckets[key % hash.bucket_count];
    if (index < hash.first_symbol)
        return NULL;
    for (;; index++) {
        uint32_t link = hash.chains[index - hash.first_symbol];

        if ((link | 1) == (key | 1) && strcmp(table->names + table->symbols[index].st_name, name) == 0) {
            const void *address = exported_address(object, table, index);

            if (address)
                return address;
        }
        if (link & 1)
            return NULL;
    }
}

/* In an object without DT_GNU_HASH. DT_HASH holds the number of symbols. */
static const void *look_up_sysv(const struct memscope_shared_object *object, const struct symbol_table *table,
                                const char *name) {
    for (uint32_t index = 1, count = table->hash[1]; index < count; index++) {
        bool same = strcmp(table->names + table->symbols[index].st_name, name) == 0;
        const void *address = same ? exported_address(object, table, index) : NULL;

        if (address)
            return address;
    }
    return NULL;
}

const void *memscope_shared_object_symbol(const struct memscope_shared_object *object, const char *name) {
    struct symbol_table table;

    if (!find_symbol_table(object, &table))
        return NULL;
    return table.gnu_hash ? look_up_gnu(object, &table, name) : look_up_sysv(object, &table, name);
}

bool memscope_shared_object_imports(const struct memscope_shared_object *object, const char *name) {
    struct symbol_table table;
    const char *cursor, *end;

    if (!find_symbol_table(object, &table))
        return false;
    cursor = table.names;
    end = table.names + table.names_length;
    while ((cursor = memmem(cursor, (size_t)(end - cursor), name, strlen(name) + 1))) {
        if (cursor > table.names && cursor[-1] == '\0')
            return !memscope_shared_object_symbol(object, name);
        cursor++;
    }
    return false;
}

struct suffix_search {
    const struct memscope_shared_object *object;
    struct symbol_table table;
    const char *suffix;
    size_t suffix_length;
    memscope_symbol_visitor visit;
    void *context;
};

static void visit_if_matching(const struct suffix_search *search, uint32_t index) {
    const char *name = search->table.names + search->table.symbols[index].st_name;
    size_t length = strlen(name);
    const void *address;

    if (length < search->suffix_length || strcmp(name + length - search->suffix_length, search->suffix) != 0)
        return;
    address = exported_address(search->object, &search->table, index);
    if (address)
        search->visit(name, address, search->context);
}

static void search_gnu(const struct suffix_search *search) {
    struct gnu_hash hash = gnu_hash_of(search->table.gnu_hash);

    for (uint32_t bucket = 0; bucket < hash.bucket_count; bucket++) {
        uint32_t index = hash.buckets[bucket];

        if (index < hash.first_symbol)
            continue;
        do
            visit_if_matching(search, index);
        while (!(hash.chains[index++ - hash.first_symbol] & 1));
    }
}

void memscope_shared_object_symbols_ending(const struct memscope_shared_object *object, const char *suffix,
                                           memscope_symbol_visitor visit, void *context) {
    struct suffix_search search = {
        .object = object, .suffix = suffix, .suffix_length = strlen(suffix), .visit = visit, .context = context};

    if (!find_symbol_table(object, &search.table) ||
        !memmem(search.table.names, search.table.names_length, suffix, search.suffix_length + 1))
        return;
    if (search.table.gnu_hash) {
        search_gnu(&search);
        return;
    }
    for (uint32_t index = 1, count = search.table.hash[1]; index < count; index++)
        visit_if_matching(&search, index);
}

/* ---- import slots --------------------------------------------------------------------------------------------- */

#if defined(__x86_64__)
#define RELOCATION_CALL R_X86_64_JUMP_SLOT
#define RELOCATION_TABLE R_X86_64_GLOB_DAT
#define RELOCATION_DATA R_X86_64_64
#elif defined(__aarch64__)
#define RELOCATION_CALL R_AARCH64_JUMP_SLOT
#define RELOCATION_TABLE R_AARCH64_GLOB_DAT
#define RELOCATION_DATA R_AARCH64_ABS64
#endif

#ifdef RELOCATION_CALL

/* The pages that the linker makes read-only when it has filled them. */
static struct memscope_range read_only_pages(const struct memscope_shared_object *object) {
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const elf_header *headers = object->headers;

    for (size_t header = 0; header < object->header_count; header++) {
        uintptr_t start = object->load_bias + headers[header].p_vaddr;

        if (headers[header].p_type == PT_GNU_RELRO)
            return (struct memscope_range){start & -page, (start + headers[header].p_memsz) & -page};
    }
    return (struct memscope_range){0};
}

/* Visits the slots that a list of relocations fills. A text relocation fills none. */
static void visit_slots(const struct memscope_shared_object *object, const ElfW(Rela) * list, size_t bytes,
                        memscope_import_slot_visitor visit, void *context) {
    const elf_symbol *symbols = dynamic_pointer(object, DT_SYMTAB);
    const char *names = dynamic_pointer(object, DT_STRTAB);
    struct memscope_range read_only = read_only_pages(object);

    for (size_t index = 0; symbols && names && list && index < bytes / sizeof *list; index++) {
        const elf_symbol *symbol = &symbols[ELF64_R_SYM(list[index].r_info)];
        uintptr_t at = object->load_bias + list[index].r_offset;
        unsigned type = ELF64_R_TYPE(list[index].r_info);

        if ((type != RELOCATION_CALL && type != RELOCATION_TABLE && type != RELOCATION_DATA) ||
            list[index].r_addend != 0 || !memscope_shared_object_segment(object, at, PF_W))
            continue;
        visit(
            &(struct memscope_import_slot){
                .name = names + symbol->st_name,
                .slot = (void **)at,
                .call = type == RELOCATION_CALL,
                .own = symbol->st_shndx != SHN_UNDEF,
                .read_only = memscope_range_contains(read_only, at),
            },
            context);
    }
}

void memscope_shared_object_import_slots(const struct memscope_shared_object *object,
                                         memscope_import_slot_visitor visit, void *context) {
    visit_slots(object, dynamic_pointer(object, DT_JMPREL), dynamic_value(object, DT_PLTRELSZ), visit, context);
    visit_slots(object, dynamic_pointer(object, DT_RELA), dynamic_value(object, DT_RELASZ), visit, context);
}

#else

void memscope_shared_object_import_slots(const struct memscope_shared_object *object,
                                         memscope_import_slot_visitor visit, void *context) {
    (void)object, (void)visit, (void)context;
}

#endif
