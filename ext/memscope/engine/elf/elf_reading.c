#include "elf/elf_reading.h"

#include <string.h>

#if defined(__LP64__) && (defined(__x86_64__) || defined(__aarch64__))

#include <elf.h>

#ifdef __x86_64__
#define MACHINE EM_X86_64
#else
#define MACHINE EM_AARCH64
#endif

#define SYMBOL_LIMIT ((uint64_t)8 << 20)
#define NAMES_LIMIT ((uint64_t)64 << 20)
#define NOTE_LIMIT 64          /* notes in a segment or section */
#define DYNAMIC_LIMIT 1024     /* entries of PT_DYNAMIC */
#define HASH_CHAIN_LIMIT 65536 /* symbols of one hash bucket */
#define BATCH 128              /* structures per read, on the stack: at most 3 KiB */

static bool read_at(const struct memscope_elf_source *source, uint64_t position, void *into, size_t size) {
    return source->read(source->context, position, into, size);
}

/* --- Files */

/*
 * Reads a list of `count` structures, each of `size` bytes, at `position`. *list is NULL unless the status is
 * MEMSCOPE_OK.
 */
static enum memscope_status read_list(const struct memscope_elf_source *source, uint64_t position, size_t count,
                                      size_t size, struct memscope_scratch *scratch, const void **list) {
    size_t used = scratch->used;
    void *taken = memscope_scratch_take(scratch, count * size);

    *list = NULL;
    if (taken == NULL)
        return MEMSCOPE_NO_MEMORY;
    if (!read_at(source, position, taken, count * size)) {
        scratch->used = used;
        return MEMSCOPE_MALFORMED;
    }
    *list = taken;
    return MEMSCOPE_OK;
}

static enum memscope_status check_header(const Elf64_Ehdr *header) {
    if (memcmp(header->e_ident, ELFMAG, SELFMAG) != 0)
        return MEMSCOPE_MALFORMED;
    if (header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_ident[EI_DATA] != ELFDATA2LSB ||
        header->e_machine != MACHINE || (header->e_type != ET_DYN && header->e_type != ET_EXEC))
        return MEMSCOPE_UNSUPPORTED;
    if (header->e_phnum != 0 && header->e_phentsize != sizeof(Elf64_Phdr))
        return MEMSCOPE_MALFORMED;
    if (header->e_shnum != 0 && header->e_shentsize != sizeof(Elf64_Shdr))
        return MEMSCOPE_MALFORMED;
    return MEMSCOPE_OK;
}

enum memscope_status memscope_elf_read_file(const struct memscope_elf_source *source, struct memscope_scratch *scratch,
                                            struct memscope_elf_file *file) {
    enum memscope_status status;
    Elf64_Ehdr header;
    const void *headers, *sections;

    *file = (struct memscope_elf_file){.source = *source};
    if (!read_at(source, 0, &header, sizeof header))
        return MEMSCOPE_MALFORMED;
    status = check_header(&header);
    if (status != MEMSCOPE_OK)
        return status;
    status = read_list(source, header.e_phoff, header.e_phnum, sizeof(Elf64_Phdr), scratch, &headers);
    if (status == MEMSCOPE_OK)
        status = read_list(source, header.e_shoff, header.e_shnum, sizeof(Elf64_Shdr), scratch, &sections);
    if (status != MEMSCOPE_OK)
        return status;
    file->headers = headers;
    file->header_count = header.e_phnum;
    file->sections = sections;
    file->section_count = header.e_shnum;
    return MEMSCOPE_OK;
}

bool memscope_elf_same_layout(const struct memscope_elf_file *file, const struct memscope_shared_object *object,
                              bool same_build_id) {
    const Elf64_Phdr *headers = file->headers, *loaded = object->headers;

    if (!same_build_id)
        return file->header_count == object->header_count &&
               memcmp(headers, loaded, file->header_count * sizeof *headers) == 0;
    for (size_t index = 0; index < object->header_count; index++) {
        size_t other = 0;

        if (loaded[index].p_type != PT_LOAD || !(loaded[index].p_flags & PF_X))
            continue;
        while (other < file->header_count &&
               (headers[other].p_type != PT_LOAD || headers[other].p_vaddr != loaded[index].p_vaddr))
            other++;
        if (other == file->header_count)
            return false;
    }
    return true;
}

/* --- Build-ids */

static uint64_t align_up(uint64_t value, uint64_t alignment) {
    return (value + alignment - 1) / alignment * alignment;
}

static bool find_build_id(const struct memscope_elf_source *source, uint64_t position, uint64_t size,
                          uint64_t alignment, struct memscope_build_id *build_id) {
    uint64_t offset = 0, padding = alignment == 8 ? 8 : 4; /* in old objects, other values mean 4 */

    for (unsigned note = 0; note < NOTE_LIMIT && offset < size && size - offset > sizeof(Elf64_Nhdr); note++) {
        uint64_t description;
        Elf64_Nhdr header;
        char name[4] = "";

        if (!read_at(source, position + offset, &header, sizeof header))
            return false;
        if (header.n_namesz == sizeof name)
            (void)read_at(source, position + offset + sizeof header, name, sizeof name);
        description = align_up(offset + sizeof header + header.n_namesz, padding);
        if (header.n_type == NT_GNU_BUILD_ID && memcmp(name, ELF_NOTE_GNU, sizeof name) == 0) {
            if (header.n_descsz == 0 || header.n_descsz > sizeof build_id->bytes ||
                !read_at(source, position + description, build_id->bytes, header.n_descsz))
                return false;
            build_id->size = header.n_descsz;
            return true;
        }
        offset = align_up(description + header.n_descsz, padding);
    }
    return false;
}

/* Searches the sections first, since in a separate debug file they are right, whatever the program headers contain. */
enum memscope_status memscope_elf_file_build_id(const struct memscope_elf_file *file,
                                                struct memscope_build_id *build_id) {
    const Elf64_Phdr *headers = file->headers;
    const Elf64_Shdr *sections = file->sections;

    build_id->size = 0;
    for (size_t index = 0; index < file->section_count; index++)
        if (sections[index].sh_type == SHT_NOTE &&
            find_build_id(&file->source, sections[index].sh_offset, sections[index].sh_size,
                          sections[index].sh_addralign, build_id))
            return MEMSCOPE_OK;
    for (size_t index = 0; index < file->header_count; index++)
        if (headers[index].p_type == PT_NOTE &&
            find_build_id(&file->source, headers[index].p_offset, headers[index].p_filesz, headers[index].p_align,
                          build_id))
            return MEMSCOPE_OK;
    return MEMSCOPE_NOT_FOUND;
}

enum memscope_status memscope_elf_image_build_id(const struct memscope_elf_source *source,
                                                 const struct memscope_shared_object *object,
                                                 struct memscope_build_id *build_id) {
    const Elf64_Phdr *headers = object->headers;

    build_id->size = 0;
    for (size_t index = 0; index < object->header_count; index++)
        if (headers[index].p_type == PT_NOTE &&
            find_build_id(source, object->load_bias + headers[index].p_vaddr, headers[index].p_filesz,
                          headers[index].p_align, build_id))
            return MEMSCOPE_OK;
    return MEMSCOPE_NOT_FOUND;
}

/* --- Symbol tables */

struct table {
    struct memscope_elf_source source;
    uint64_t symbols; /* position of the Elf64_Sym[count] */
    uint64_t count;
    uint64_t names; /* position of the string table */
    uint64_t names_size;
    const Elf64_Shdr *sections; /* indexed by st_shndx, unknown if section_count is 0 */
    size_t section_count;
    const struct memscope_shared_object *object; /* as loaded */
};

/* The maximum end of an unsized function: the end of its section, or else of its segment. */
static uintptr_t latest_end(const struct table *table, const Elf64_Sym *symbol, uintptr_t segment_end) {
    uintptr_t start = table->object->load_bias + symbol->st_value;
    const Elf64_Shdr *section;
    uint64_t offset;

    if (symbol->st_shndx >= table->section_count)
        return segment_end;
    section = &table->sections[symbol->st_shndx];
    offset = symbol->st_value - section->sh_addr;
    if (offset >= section->sh_size || section->sh_size - offset > segment_end - start)
        return segment_end;
    return start + (section->sh_size - offset);
}

/* Returns false unless symbol is a named function in this object's own code. `names` has table->names_size bytes. */
static bool describe(const struct table *table, const Elf64_Sym *symbol, const char *names,
                     struct memscope_function *function) {
    unsigned type = ELF64_ST_TYPE(symbol->st_info), binding = ELF64_ST_BIND(symbol->st_info);
    uintptr_t start = table->object->load_bias + symbol->st_value, end;
    const Elf64_Phdr *segment;

    if ((type != STT_FUNC && type != STT_GNU_IFUNC) || symbol->st_shndx == SHN_UNDEF ||
        symbol->st_shndx >= SHN_LORESERVE)
        return false;
    if (symbol->st_name >= table->names_size || names[symbol->st_name] == '\0')
        return false;
    segment = memscope_shared_object_segment(table->object, start, PF_X);
    if (segment == NULL)
        return false;
    end = table->object->load_bias + segment->p_vaddr + segment->p_memsz;
    if (symbol->st_size == 0)
        end = latest_end(table, symbol, end);
    else if (symbol->st_size < end - start)
        end = start + symbol->st_size;
    *function = (struct memscope_function){
        .start = start,
        .end = end,
        .name = names + symbol->st_name,
        .sized = symbol->st_size != 0,
        .exported = binding != STB_LOCAL,
        .strong = binding != STB_WEAK,
    };
    return true;
}

static enum memscope_status list_functions(const struct table *table, const char *names,
                                           struct memscope_scratch *scratch, struct memscope_functions *functions) {
    Elf64_Sym symbols[BATCH];

    functions->list = memscope_scratch_take(scratch, 0);
    for (uint64_t first = 0; first < table->count; first += BATCH) {
        size_t count = table->count - first < BATCH ? (size_t)(table->count - first) : BATCH;

        if (!read_at(&table->source, table->symbols + first * sizeof *symbols, symbols, count * sizeof *symbols))
            return MEMSCOPE_MALFORMED;
        for (size_t index = 0; index < count; index++) {
            struct memscope_function function;

            if (describe(table, &symbols[index], names, &function) &&
                !memscope_scratch_add(scratch, &functions->count, &function, sizeof function))
                return MEMSCOPE_NO_MEMORY;
        }
    }
    return memscope_functions_sort(functions, scratch) ? MEMSCOPE_OK : MEMSCOPE_NO_MEMORY;
}

static enum memscope_status read_table(const struct table *table, struct memscope_scratch *scratch,
                                       struct memscope_functions *functions) {
    size_t used = scratch->used;
    enum memscope_status status = MEMSCOPE_MALFORMED;
    char *names;

    if (table->count > SYMBOL_LIMIT || table->names_size > NAMES_LIMIT)
        return MEMSCOPE_TRUNCATED;
    names = memscope_scratch_take(scratch, (size_t)table->names_size + 1);
    if (names == NULL)
        return MEMSCOPE_NO_MEMORY;
    if (read_at(&table->source, table->names, names, (size_t)table->names_size)) {
        names[table->names_size] = '\0';
        status = list_functions(table, names, scratch, functions);
    }
    if (status != MEMSCOPE_OK) {
        scratch->used = used;
        *functions = (struct memscope_functions){0};
    }
    return status;
}

enum memscope_status memscope_elf_file_functions(const struct memscope_elf_file *file,
                                                 const struct memscope_shared_object *object,
                                                 struct memscope_scratch *scratch,
                                                 struct memscope_functions *functions) {
    const Elf64_Shdr *sections = file->sections;
    struct table table = {
        .source = file->source, .sections = sections, .section_count = file->section_count, .object = object};

    *functions = (struct memscope_functions){0};
    for (size_t index = 0; index < file->section_count; index++) {
        uint32_t names = sections[index].sh_link;

        if (sections[index].sh_type != SHT_SYMTAB)
            continue;
        if (names >= file->section_count || sections[names].sh_type != SHT_STRTAB ||
            sections[index].sh_entsize != sizeof(Elf64_Sym))
            return MEMSCOPE_MALFORMED;
        table.symbols = sections[index].sh_offset;
        table.count = sections[index].sh_size / sizeof(Elf64_Sym);
        table.names = sections[names].sh_offset;
        table.names_size = sections[names].sh_size;
        return read_table(&table, scratch, functions);
    }
    return MEMSCOPE_NOT_FOUND;
}

/* --- Loaded images */

/* The PT_DYNAMIC entries that are needed, 0 for an absent one. */
struct dynamic {
    uint64_t symbols, names, names_size, gnu_hash, hash;
};

static void take_entry(const struct memscope_shared_object *object, const Elf64_Dyn *entry, struct dynamic *dynamic) {
    uint64_t address = (uintptr_t)memscope_shared_object_dynamic_address(object, entry->d_un.d_ptr);

    if (entry->d_tag == DT_STRSZ)
        dynamic->names_size = entry->d_un.d_val;
    else if (entry->d_tag == DT_SYMTAB)
        dynamic->symbols = address;
    else if (entry->d_tag == DT_STRTAB)
        dynamic->names = address;
    else if (entry->d_tag == DT_GNU_HASH)
        dynamic->gnu_hash = address;
    else if (entry->d_tag == DT_HASH)
        dynamic->hash = address;
}

static enum memscope_status read_dynamic(const struct memscope_elf_source *source,
                                         const struct memscope_shared_object *object, struct dynamic *dynamic) {
    const Elf64_Phdr *headers = object->headers;
    size_t index = 0;

    *dynamic = (struct dynamic){0};
    while (index < object->header_count && headers[index].p_type != PT_DYNAMIC)
        index++;
    if (index == object->header_count)
        return MEMSCOPE_NOT_FOUND;
    for (size_t entry = 0; entry < DYNAMIC_LIMIT; entry++) {
        Elf64_Dyn read;

        if (!read_at(source, object->load_bias + headers[index].p_vaddr + entry * sizeof read, &read, sizeof read))
            return MEMSCOPE_MALFORMED;
        if (read.d_tag == DT_NULL)
            break;
        take_entry(object, &read, dynamic);
    }
    return dynamic->symbols && dynamic->names ? MEMSCOPE_OK : MEMSCOPE_NOT_FOUND;
}

/* A DT_GNU_HASH section has no symbol count, only starts of chains. The last chain ends at its first odd word. */
static bool count_by_gnu_hash(const struct memscope_elf_source *source, uint64_t section, uint64_t *count) {
    uint32_t header[4], buckets[BATCH], last = 0, link = 0;
    uint64_t first_bucket, chains;

    if (!read_at(source, section, header, sizeof header) || header[0] > SYMBOL_LIMIT)
        return false;
    first_bucket = section + sizeof header + (uint64_t)header[2] * sizeof(Elf64_Addr);
    chains = first_bucket + (uint64_t)header[0] * sizeof *buckets;
    for (uint32_t first = 0; first < header[0]; first += BATCH) {
        size_t length = header[0] - first < BATCH ? header[0] - first : BATCH;

        if (!read_at(source, first_bucket + (uint64_t)first * sizeof *buckets, buckets, length * sizeof *buckets))
            return false;
        for (size_t index = 0; index < length; index++)
            if (buckets[index] > last)
                last = buckets[index];
    }
    *count = 0;
    if (last < header[1])
        return true; /* exports nothing */
    for (uint32_t length = 0; length < HASH_CHAIN_LIMIT && !(link & 1); length++, last++)
        if (!read_at(source, chains + (uint64_t)(last - header[1]) * sizeof link, &link, sizeof link))
            return false;
    *count = last;
    return link & 1;
}

static bool count_symbols(const struct memscope_elf_source *source, const struct dynamic *dynamic, uint64_t *count) {
    uint32_t header[2];

    if (dynamic->gnu_hash)
        return count_by_gnu_hash(source, dynamic->gnu_hash, count);
    if (!dynamic->hash || !read_at(source, dynamic->hash, header, sizeof header))
        return false;
    *count = header[1];
    return true;
}

enum memscope_status memscope_elf_image_functions(const struct memscope_elf_source *source,
                                                  const struct memscope_elf_file *file,
                                                  const struct memscope_shared_object *object,
                                                  struct memscope_scratch *scratch,
                                                  struct memscope_functions *functions) {
    struct table table = {
        .source = *source, .sections = file->sections, .section_count = file->section_count, .object = object};
    enum memscope_status status;
    struct dynamic dynamic;

    *functions = (struct memscope_functions){0};
    status = read_dynamic(source, object, &dynamic);
    if (status != MEMSCOPE_OK)
        return status;
    if (!count_symbols(source, &dynamic, &table.count))
        return MEMSCOPE_MALFORMED;
    table.symbols = dynamic.symbols;
    table.names = dynamic.names;
    table.names_size = dynamic.names_size;
    return read_table(&table, scratch, functions);
}

#endif
