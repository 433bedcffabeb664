/*
 * Import slots: the words of loaded objects that the dynamic linker fills with addresses of other objects' functions.
 */
#include "memscope_test.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#if defined(__x86_64__)
static const unsigned long call = R_X86_64_JUMP_SLOT, table = R_X86_64_GLOB_DAT, data = R_X86_64_64;
#elif defined(__aarch64__)
static const unsigned long call = R_AARCH64_JUMP_SLOT, table = R_AARCH64_GLOB_DAT, data = R_AARCH64_ABS64;
#else
static const unsigned long call = ~0ul, table = ~0ul, data = ~0ul;
#endif

static uintptr_t value_of(const ElfW(Dyn) * entry, ElfW(Sxword) tag) {
    while (entry->d_tag != DT_NULL && entry->d_tag != tag)
        entry++;
    return entry->d_tag == tag ? entry->d_un.d_ptr : 0;
}

static VALUE path_at(uintptr_t address) {
    Dl_info info;

    return dladdr((void *)address, &info) && info.dli_fname ? rb_str_new_cstr(info.dli_fname) : Qnil;
}

static void add_slots(VALUE slots, uintptr_t bias, const ElfW(Dyn) * dynamic, uintptr_t list, size_t bytes) {
    const ElfW(Sym) *symbols = (const ElfW(Sym) *)value_of(dynamic, DT_SYMTAB);
    const char *names = (const char *)value_of(dynamic, DT_STRTAB);
    const ElfW(Rela) *relocation = (const ElfW(Rela) *)list;

    for (; list && (uintptr_t)relocation < list + bytes; relocation++) {
        unsigned long type = ELF64_R_TYPE(relocation->r_info);
        uintptr_t slot = bias + relocation->r_offset, value = *(const uintptr_t *)slot;

        if (type == call || type == table || type == data)
            rb_hash_aset(slots, ULL2NUM(slot),
                         rb_ary_new_from_args(4,
                                              rb_str_new_cstr(names + symbols[ELF64_R_SYM(relocation->r_info)].st_name),
                                              ULL2NUM(value), path_at(slot), path_at(value)));
    }
}

/* Skips the vDSO, in whose dynamic section the linker does not relocate the addresses. */
static int visit(struct dl_phdr_info *info, size_t size, void *slots) {
    for (unsigned index = 0; index < info->dlpi_phnum; index++) {
        const ElfW(Dyn) *dynamic = (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[index].p_vaddr);

        if (info->dlpi_phdr[index].p_type != PT_DYNAMIC || value_of(dynamic, DT_SYMTAB) < info->dlpi_addr)
            continue;
        add_slots((VALUE)slots, info->dlpi_addr, dynamic, value_of(dynamic, DT_JMPREL), value_of(dynamic, DT_PLTRELSZ));
        add_slots((VALUE)slots, info->dlpi_addr, dynamic, value_of(dynamic, DT_RELA), value_of(dynamic, DT_RELASZ));
    }
    return 0;
}

/* Host.import_slots -> {address of the slot => [name, value, path of its object, path of the object at the value]}. */
static VALUE host_import_slots(VALUE self) {
    VALUE slots = rb_hash_new();

    dl_iterate_phdr(visit, (void *)slots);
    return slots;
}

static atomic_bool looks_up;

static void *look_up(void *unused) {
    while (atomic_load(&looks_up))
        (void)dlsym(RTLD_DEFAULT, "malloc");
    return NULL;
}

/* Host.load_beside_lookups(path) -> nil: calls dlopen while another native thread calls dlsym in a loop. */
static VALUE host_load_beside_lookups(VALUE self, VALUE path) {
    pthread_t thread;
    void *handle;

    atomic_store(&looks_up, true);
    if (pthread_create(&thread, NULL, look_up, NULL) != 0)
        rb_sys_fail("pthread_create");
    handle = dlopen(StringValueCStr(path), RTLD_NOW);
    atomic_store(&looks_up, false);
    pthread_join(thread, NULL);
    if (!handle)
        rb_raise(rb_eLoadError, "%s", dlerror());
    return Qnil;
}

/* Host.look_up_behind -> nil: starts a native thread that calls dlsym in a loop, forever. */
static VALUE host_look_up_behind(VALUE self) {
    pthread_t thread;

    atomic_store(&looks_up, true);
    if (pthread_create(&thread, NULL, look_up, NULL) != 0)
        rb_sys_fail("pthread_create");
    pthread_detach(thread);
    return Qnil;
}

static _Atomic(pid_t) waiting; /* id of the thread that is about to call dlsym, or has called it */

static void *look_up_once(void *unused) {
    (void)unused;
    atomic_store(&waiting, gettid());
    (void)dlsym(RTLD_DEFAULT, "malloc");
    return NULL;
}

/* Whether a thread sleeps. */
static bool sleeps(pid_t thread) {
    char path[64], state = 0;
    FILE *file;

    (void)snprintf(path, sizeof path, "/proc/self/task/%d/stat", thread);
    file = fopen(path, "r");
    if (file) {
        if (fscanf(file, "%*d (%*[^)]) %c", &state) != 1)
            state = 0;
        fclose(file);
    }
    return state == 'S';
}

/* Runs under the dynamic linker's lock. While a profile runs, the other thread waits for that lock in its own dlsym. */
static int look_up_visiting(struct dl_phdr_info *info, size_t size, void *thread) {
    (void)info, (void)size;
    if (pthread_create(thread, NULL, look_up_once, NULL) != 0)
        return -1;
    while (atomic_load(&waiting) == 0 || !sleeps(atomic_load(&waiting)))
        usleep(1000);
    (void)dlsym(RTLD_DEFAULT, "free");
    return 1;
}

/*
 * Host.look_up_in_a_visit -> nil: calls dlsym in a dl_iterate_phdr callback and in a second thread. To be called while
 * a profile runs: otherwise the second thread does not wait, and this one waits forever.
 */
static VALUE host_look_up_in_a_visit(VALUE self) {
    pthread_t thread;

    if (dl_iterate_phdr(look_up_visiting, &thread) != 1)
        rb_sys_fail("pthread_create");
    pthread_join(thread, NULL);
    return Qnil;
}

void init_slots(VALUE host) {
    rb_define_singleton_method(host, "look_up_in_a_visit", host_look_up_in_a_visit, 0);
    rb_define_singleton_method(host, "look_up_behind", host_look_up_behind, 0);
    rb_define_singleton_method(host, "load_beside_lookups", host_load_beside_lookups, 1);
    rb_define_singleton_method(host, "import_slots", host_import_slots, 0);
}
