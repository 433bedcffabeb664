#include "attach/remote_module.h"

#include "attach/remote_memory.h"

#include <ctype.h>
#include <string.h>

#define MAX_SEGMENTS 64
#define MAX_DYNAMIC 512
/* Symbols with the same hash bucket. In a table that was built as usual, a handful. */
#define MAX_CHAIN 4096
#define MAX_NAME 64
#define MAX_SYMBOLS UINT64_C(200000)
#define SYMBOLS_OF_A_READ 64

static bool read_header(pid_t pid, uint64_t start, Elf64_Ehdr *header) {
    return memscope_remote_read(pid, start, header, sizeof *header) && memcmp(header->e_ident, ELFMAG, SELFMAG) == 0 &&
           header->e_ident[EI_CLASS] == ELFCLASS64 && header->e_ident[EI_DATA] == ELFDATA2LSB &&
           header->e_phentsize == sizeof(Elf64_Phdr) && header->e_phnum <= MAX_SEGMENTS;
}

/* Returns the address of the dynamic section, or 0, and sets the bias. */
static uint64_t read_segments(struct memscope_remote_module *module, uint64_t start, const Elf64_Ehdr *header) {
    Elf64_Phdr segments[MAX_SEGMENTS];
    uint64_t lowest = UINT64_MAX, dynamic = 0;

    if (!memscope_remote_read(module->pid, start + header->e_phoff, segments, header->e_phnum * sizeof *segments))
        return 0;
    for (size_t index = 0; index < header->e_phnum; index++) {
        const Elf64_Phdr *segment = &segments[index];

        if (segment->p_type == PT_LOAD && segment->p_vaddr < lowest)
            lowest = segment->p_vaddr & ~UINT64_C(4095);
        if (segment->p_type == PT_DYNAMIC)
            dynamic = segment->p_vaddr;
    }
    module->bias = start - lowest;
    return dynamic == 0 || lowest == UINT64_MAX ? 0 : module->bias + dynamic;
}

/* glibc relocates the pointers of the dynamic section, musl does not. */
static uint64_t relocated(const struct memscope_remote_module *module, uint64_t address) {
    return address < module->bias ? address + module->bias : address;
}

static void read_dynamic(struct memscope_remote_module *module, uint64_t dynamic) {
    Elf64_Dyn entry;

    for (int index = 0; index < MAX_DYNAMIC; index++, dynamic += sizeof entry) {
        if (!memscope_remote_read(module->pid, dynamic, &entry, sizeof entry) || entry.d_tag == DT_NULL)
            return;
        switch (entry.d_tag) {
        case DT_SYMTAB:
            module->symbols = relocated(module, entry.d_un.d_ptr);
            break;
        case DT_STRTAB:
            module->names = relocated(module, entry.d_un.d_ptr);
            break;
        case DT_GNU_HASH:
            module->gnu_hash = relocated(module, entry.d_un.d_ptr);
            break;
        case DT_RELA:
            module->relocations = relocated(module, entry.d_un.d_ptr);
            break;
        case DT_RELASZ:
            module->relocation_bytes = entry.d_un.d_val;
            break;
        default:
            break;
        }
    }
}

bool memscope_remote_module_read(pid_t pid, uint64_t start, struct memscope_remote_module *module) {
    Elf64_Ehdr header;
    uint64_t dynamic;

    *module = (struct memscope_remote_module){.pid = pid};
    if (!read_header(pid, start, &header) || (dynamic = read_segments(module, start, &header)) == 0)
        return false;
    module->machine = header.e_machine;
    read_dynamic(module, dynamic);
    return module->symbols != 0 && module->names != 0 && module->gnu_hash != 0;
}

static uint32_t gnu_hash_of(const char *name) {
    uint32_t hash = 5381;

    for (; *name != '\0'; name++)
        hash = hash * 33 + (unsigned char)*name;
    return hash;
}

static bool is_named(const struct memscope_remote_module *module, const Elf64_Sym *symbol, const char *name) {
    char text[MAX_NAME];
    size_t size = strlen(name) + 1;

    return size <= sizeof text && memscope_remote_read(module->pid, module->names + symbol->st_name, text, size) &&
           memcmp(text, name, size) == 0;
}

bool memscope_remote_module_find(const struct memscope_remote_module *module, const char *name, Elf64_Sym *symbol) {
    struct {
        uint32_t buckets, first_symbol, bloom_words, bloom_shift;
    } head;
    uint32_t hash = gnu_hash_of(name), index, other = 0;
    uint64_t buckets, chain;

    if (!memscope_remote_read(module->pid, module->gnu_hash, &head, sizeof head) || head.buckets == 0)
        return false;
    buckets = module->gnu_hash + sizeof head + head.bloom_words * UINT64_C(8);
    chain = buckets + head.buckets * UINT64_C(4);
    if (!memscope_remote_read(module->pid, buckets + UINT64_C(4) * (hash % head.buckets), &index, sizeof index) ||
        index < head.first_symbol)
        return false;
    for (int step = 0; step < MAX_CHAIN && (other & 1) == 0; step++, index++) {
        if (!memscope_remote_read(module->pid, chain + UINT64_C(4) * (index - head.first_symbol), &other, sizeof other))
            return false;
        if ((other | 1) == (hash | 1) &&
            memscope_remote_read(module->pid, module->symbols + index * sizeof *symbol, symbol, sizeof *symbol) &&
            is_named(module, symbol, name) && symbol->st_shndx != SHN_UNDEF)
            return true;
    }
    return false;
}

uint64_t memscope_remote_module_address(const struct memscope_remote_module *module, const char *name) {
    Elf64_Sym symbol;

    return memscope_remote_module_find(module, name, &symbol) ? module->bias + symbol.st_value : 0;
}

/* Linkers put the names right behind the symbols. */
static uint64_t count_symbols(const struct memscope_remote_module *module) {
    uint64_t count = module->names > module->symbols ? (module->names - module->symbols) / sizeof(Elf64_Sym) : 0;

    return count < MAX_SYMBOLS ? count : MAX_SYMBOLS;
}

bool memscope_remote_module_function_at(const struct memscope_remote_module *module, uint64_t address, char *name,
                                        size_t capacity) {
    Elf64_Sym symbols[SYMBOLS_OF_A_READ];

    for (uint64_t left = count_symbols(module), from = module->symbols; left > 0; from += sizeof symbols) {
        size_t count = left < SYMBOLS_OF_A_READ ? (size_t)left : SYMBOLS_OF_A_READ;

        if (!memscope_remote_read(module->pid, from, symbols, count * sizeof *symbols))
            return false;
        for (size_t index = 0; index < count; index++) {
            const Elf64_Sym *symbol = &symbols[index];

            if (ELF64_ST_TYPE(symbol->st_info) == STT_FUNC && symbol->st_shndx != SHN_UNDEF &&
                address - module->bias - symbol->st_value < symbol->st_size &&
                memscope_remote_text(module->pid, module->names + symbol->st_name, name, capacity)) {
                for (; *name != '\0'; name++)
                    *name = isgraph((unsigned char)*name) ? *name : '?';
                return true;
            }
        }
        left -= count;
    }
    return false;
}
