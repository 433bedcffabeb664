#include "values.h"

#include "fork/fork_cost.h"
#include "ruby/census.h"
#include "ruby/heap_pins.h"
#include "ruby/ruby_private.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

/* The rest of the extension is compiled for its size. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O2")
#endif

#define DEADLINE_MS 10000
/* The most that a child answers with, in bytes of address space: more than a million rows. */
#define SHARED_BYTES ((size_t)64 << 20)
/* The longest name of a class that is kept: Module#set_temporary_name takes any length. */
#define LONGEST_NAME 512

/* ---- what it takes --------------------------------------------------------------------------------------------- */

/* Nanoseconds for a thousand slots: initially as measured on an idle machine, then as the last census took. */
static _Atomic(uint64_t) ns_of_1000_slots = 12000;
/* A census of fewer slots says little about the time for a thousand. */
#define TELLING_SLOTS 100000

static void learn(const struct memscope_census *census) {
    if (census->slots >= TELLING_SLOTS && census->spent_ns >= census->slots / 1000) /* a coarse clock may say 0 */
        atomic_store(&ns_of_1000_slots, census->spent_ns / (census->slots / 1000));
}

uint64_t memscope_census_predicted_ns(uint64_t slots) {
    return slots * atomic_load(&ns_of_1000_slots) / 1000;
}

static uint64_t thread_ns(void) {
    struct timespec time;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

/* ---- cells: the objects of one class and type ------------------------------------------------------------------ */

/* What each slot is counted in during the pass; all groupings by class, type and imemo are sums of cells. */
struct cell {
    uint64_t key; /* 0: free */
    struct memscope_census_sums sums;
    VALUE class; /* 0: hidden from Ruby code, so known by its type only */
    uint8_t type, kind;
    uint8_t owner; /* type of the objects of this class whose variables these hold; 0: they hold none */
};

struct cells {
    struct cell *table; /* open addressing, at most half full */
    size_t mask, count;
};

#define FIRST_CELLS 2048

#define RECENT 64

/* A cache of recent objects' cells, which is faster than the table. */
struct recent {
    uint64_t key; /* 0: nothing */
    struct cell *cell;
};

struct pass {
    struct memscope_scratch *scratch;
    struct memscope_census *census;
    struct cells cells;
    struct recent recent[RECENT];
    struct memscope_held_walk held;
    struct memscope_census_sums sizes[MEMSCOPE_SLOT_SIZES], old;
    size_t slot_bytes[MEMSCOPE_SLOT_SIZES], size_count;
};

static inline size_t place_of(const struct cells *cells, uint64_t key) {
    size_t place = (size_t)((key ^ key >> 32) * UINT64_C(0x9e3779b97f4a7c15) >> 32) & cells->mask;

    while (cells->table[place].key != 0 && cells->table[place].key != key)
        place = (place + 1) & cells->mask;
    return place;
}

static bool take_cells(struct pass *pass, size_t size) {
    struct cells old = pass->cells, *cells = &pass->cells;

    cells->table = memscope_scratch_take(pass->scratch, size * sizeof *cells->table);
    if (cells->table == NULL) {
        *cells = old;
        return false;
    }
    memset(cells->table, 0, size * sizeof *cells->table);
    cells->mask = size - 1;
    memset(pass->recent, 0, sizeof pass->recent);
    for (size_t place = 0; old.table != NULL && place <= old.mask; place++)
        if (old.table[place].key != 0)
            cells->table[place_of(cells, old.table[place].key)] = old.table[place];
    return true;
}

/* NULL if there is no memory. */
static struct cell *add_cell(struct pass *pass, const struct cell *found) {
    struct cell *cell;

    if (pass->cells.count * 2 >= pass->cells.mask && !take_cells(pass, (pass->cells.mask + 1) * 2))
        return NULL;
    cell = &pass->cells.table[place_of(&pass->cells, found->key)];
    if (cell->key == 0) {
        *cell = *found;
        pass->cells.count++;
    }
    return cell;
}

/* ---- which cell an object is in -------------------------------------------------------------------------------- */

/* The type in the highest five bits, above a class's address or an imemo's kind: addresses have at most 56 bits. */
#define KEY(type, rest) ((uint64_t)(type) << 59 | (uint64_t)(rest))
/* Takes the type's place in the key of a cell whose objects hold variables of others. */
#define OWNED RUBY_T_NONE

/* Objects that Ruby code cannot reach may keep anything in the word of the class. */
static inline bool has_class(int type) {
    const uint32_t others = UINT32_C(1) << RUBY_T_IMEMO | UINT32_C(1) << RUBY_T_ICLASS | UINT32_C(1) << RUBY_T_NODE |
                            UINT32_C(1) << RUBY_T_ZOMBIE | UINT32_C(1) << RUBY_T_MOVED;

    return (others >> type & 1) == 0;
}

static VALUE class_of(VALUE object, int type) {
    VALUE class = has_class(type) ? RBASIC(object)->klass : 0;

    return class == 0 ? 0 : rb_class_real(class);
}

/*
 * From Ruby 4.0 on, an imemo_fields has its owner, which it marks, in the word of the class (imemo.c,
 * rb_imemo_mark_and_move). Classes own some, too.
 */
static bool holds_variables(int kind) {
    return RUBY_API_VERSION_CODE >= 40000 && strcmp(MEMSCOPE_IMEMO_NAME(kind), "fields") == 0;
}

/* All imemos that hold variables are looked up by one key, which no cell has, so each of them comes here. */
static struct cell *add_imemo_cell(struct pass *pass, VALUE object, uint64_t key) {
    struct cell found = {.key = key, .type = RUBY_T_IMEMO, .kind = (uint8_t)MEMSCOPE_IMEMO_KIND(object)};
    VALUE owner = RBASIC(object)->klass;

    if (!holds_variables(found.kind))
        return add_cell(pass, &found);
    found.key = KEY(RUBY_T_IMEMO, found.kind + 16);
    if (!RB_SPECIAL_CONST_P(owner)) {
        found.owner = (uint8_t)RB_BUILTIN_TYPE(owner);
        found.class = class_of(owner, found.owner);
        found.key = KEY(OWNED, found.class != 0 ? found.class : found.owner);
    }
    return add_cell(pass, &found);
}

/* Singleton classes have no cell of their own: there may be one for each object. */
static __attribute__((noinline)) struct cell *new_cell(struct pass *pass, VALUE object, int type, uint64_t key) {
    struct cell found = {.type = (uint8_t)type};

    if (type == RUBY_T_IMEMO)
        return add_imemo_cell(pass, object, key);
    found.class = class_of(object, type);
    found.key = KEY(type, found.class);
    return add_cell(pass, &found);
}

static inline uint64_t key_of(VALUE object, int type) {
    if (has_class(type))
        return KEY(type, RBASIC(object)->klass);
    return KEY(type, type == RUBY_T_IMEMO ? MEMSCOPE_IMEMO_KIND(object) : 0);
}

static __attribute__((noinline)) struct cell *find_cell(struct pass *pass, VALUE object, int type, uint64_t key,
                                                        struct recent *recent) {
    struct cell *cell = &pass->cells.table[place_of(&pass->cells, key)];

    if (cell->key != key)
        return new_cell(pass, object, type, key);
    *recent = (struct recent){key, cell};
    return cell;
}

/* NULL if there is no memory. */
static inline struct cell *cell_of(struct pass *pass, VALUE object, int type) {
    uint64_t key = key_of(object, type);
    struct recent *recent = &pass->recent[(key >> 3 ^ key >> 9 ^ key >> 59) % RECENT];

    return recent->key == key ? recent->cell : find_cell(pass, object, type, key, recent);
}

/* ---- the pass -------------------------------------------------------------------------------------------------- */

static void add(struct memscope_census_sums *sums, const struct memscope_census_sums *more) {
    sums->count += more->count;
    sums->slot_bytes += more->slot_bytes;
    sums->memsize_bytes += more->memsize_bytes;
    sums->old_count += more->old_count;
}

static bool is_old(VALUE object) {
    return (RBASIC(object)->flags & RUBY_FL_PROMOTED) == RUBY_FL_PROMOTED;
}

/* A zombie or a forwarding address still occupies its slot, but holds nothing that it could tell. */
static bool is_object(int type) {
    return type != RUBY_T_ZOMBIE && type != RUBY_T_MOVED;
}

/* Objects, and bytes of memsize. */
struct tally {
    uint64_t count, bytes;
};

static size_t size_of(struct pass *pass, VALUE object, int type, size_t slot_bytes) {
    if (MEMSCOPE_HOLDS_ONLY_ITS_SLOT(object) || !is_object(type))
        return slot_bytes;
    return slot_bytes + memscope_held_bytes_of(&pass->held, object, slot_bytes);
}

static bool visit_page(struct pass *pass, const struct memscope_heap_page *page, struct tally *all, struct tally *old) {
    uintptr_t slot = page->start + page->slots_offset;

    for (uint32_t left = page->slot_count; left > 0; left--, slot += page->slot_bytes) {
        int type = RB_BUILTIN_TYPE((VALUE)slot);
        struct cell *cell;
        size_t size;

        if (type == RUBY_T_NONE)
            continue;
        cell = cell_of(pass, (VALUE)slot, type);
        if (cell == NULL)
            return false;
        size = size_of(pass, (VALUE)slot, type, page->slot_bytes);
        cell->sums.count++;
        cell->sums.slot_bytes += page->slot_bytes;
        cell->sums.memsize_bytes += size;
        all->count++;
        all->bytes += size;
        if (!is_object(type) || !is_old((VALUE)slot))
            continue;
        cell->sums.old_count++;
        old->count++;
        old->bytes += size;
    }
    return true;
}

static struct memscope_census_sums *sums_of_size(struct pass *pass, size_t slot_bytes) {
    size_t at = 0;

    while (at < pass->size_count && pass->slot_bytes[at] != slot_bytes)
        at++;
    if (at == MEMSCOPE_SLOT_SIZES) /* Ruby has at most a dozen */
        at--;
    else if (at == pass->size_count)
        pass->slot_bytes[pass->size_count++] = slot_bytes;
    return &pass->sizes[at];
}

static void add_page(struct pass *pass, size_t slot_bytes, const struct tally *all, const struct tally *old) {
    const struct memscope_census_sums sums = {all->count, all->count * slot_bytes, all->bytes, old->count};
    const struct memscope_census_sums of_old = {old->count, old->count * slot_bytes, old->bytes, old->count};

    add(&pass->census->total, &sums);
    add(&pass->old, &of_old);
    add(sums_of_size(pass, slot_bytes), &sums);
}

static bool visit_all(struct pass *pass, const struct memscope_heap_listing *listing) {
    for (size_t index = 0; index < listing->count; index++) {
        const struct memscope_heap_page *page = &listing->pages[index];
        struct tally all = {0}, old = {0};

        if (!visit_page(pass, page, &all, &old))
            return false;
        add_page(pass, page->slot_bytes, &all, &old);
        pass->census->slots += page->slot_count;
    }
    return true;
}

/* ---- rows by name ---------------------------------------------------------------------------------------------- */

/* Classes may share a name: those without one, and those that were defined anew. */
struct naming {
    struct memscope_census *census;
    struct memscope_scratch *scratch;
    uint32_t *table; /* row indices plus one, by name; 0 is free */
    size_t mask;
};

static uint32_t hash_of(const char *name, size_t bytes) {
    uint32_t hash = 2166136261u;

    for (size_t index = 0; index < bytes; index++)
        hash = (hash ^ (unsigned char)name[index]) * 16777619u;
    return hash ^ hash >> 15;
}

static bool is_named(const struct memscope_census *census, const struct memscope_census_row *row, const char *name,
                     size_t bytes) {
    return row->name_bytes == bytes && memcmp(census->names + row->name, name, bytes) == 0;
}

static bool name_row(struct naming *naming, struct memscope_census_row *row, const char *name, size_t bytes) {
    struct memscope_census *census = naming->census;
    char *text = memscope_scratch_extend(naming->scratch, bytes);

    if (text == NULL)
        return false;
    memcpy(text, name, bytes);
    row->name = (uint32_t)census->names_bytes;
    row->name_bytes = (uint32_t)bytes;
    census->names_bytes += bytes;
    return true;
}

/* The row of this name, which is added if there is none; NULL if there is no memory. */
static struct memscope_census_row *row_of(struct naming *naming, enum memscope_census_grouping grouping,
                                          const char *name, size_t bytes) {
    struct memscope_census *census = naming->census;
    size_t place = hash_of(name, bytes) & naming->mask;
    struct memscope_census_row *row;

    for (; naming->table[place] != 0; place = (place + 1) & naming->mask) {
        row = &census->rows[naming->table[place] - 1];
        if (row->grouping == (uint32_t)grouping && is_named(census, row, name, bytes))
            return row;
    }
    row = &census->rows[census->row_count];
    *row = (struct memscope_census_row){.grouping = grouping};
    if (!name_row(naming, row, name, bytes))
        return NULL;
    naming->table[place] = (uint32_t)++census->row_count;
    return row;
}

static bool add_to_row(struct naming *naming, enum memscope_census_grouping grouping, const char *name,
                       const struct memscope_census_sums *sums) {
    struct memscope_census_row *row = row_of(naming, grouping, name, strlen(name));

    if (row != NULL)
        add(&row->sums, sums);
    return row != NULL;
}

/* ---- names ----------------------------------------------------------------------------------------------------- */

static const char *type_name(int type) {
    static const char *const names[] = {
        [RUBY_T_OBJECT] = "T_OBJECT", [RUBY_T_CLASS] = "T_CLASS",     [RUBY_T_MODULE] = "T_MODULE",
        [RUBY_T_FLOAT] = "T_FLOAT",   [RUBY_T_STRING] = "T_STRING",   [RUBY_T_REGEXP] = "T_REGEXP",
        [RUBY_T_ARRAY] = "T_ARRAY",   [RUBY_T_HASH] = "T_HASH",       [RUBY_T_STRUCT] = "T_STRUCT",
        [RUBY_T_BIGNUM] = "T_BIGNUM", [RUBY_T_FILE] = "T_FILE",       [RUBY_T_DATA] = "T_DATA",
        [RUBY_T_MATCH] = "T_MATCH",   [RUBY_T_COMPLEX] = "T_COMPLEX", [RUBY_T_RATIONAL] = "T_RATIONAL",
        [RUBY_T_SYMBOL] = "T_SYMBOL", [RUBY_T_IMEMO] = "T_IMEMO",     [RUBY_T_NODE] = "T_NODE",
        [RUBY_T_ICLASS] = "T_ICLASS", [RUBY_T_ZOMBIE] = "T_ZOMBIE",   [RUBY_T_MOVED] = "T_MOVED",
    };

    return (size_t)type < sizeof names / sizeof names[0] && names[type] != NULL ? names[type] : "T_UNKNOWN";
}

/*
 * The class's own name, which rb_mod_name returns without allocating; nil if it has none, and for a class in an
 * anonymous module, whose name would begin with an address: "#<Module:0x0000…>::C".
 */
static VALUE own_name(VALUE class) {
    VALUE name = rb_mod_name(class);

    return NIL_P(name) || RSTRING_LEN(name) == 0 || RSTRING_PTR(name)[0] == '#' ? Qnil : name;
}

/* A class without a name is known by the nearest of its ancestors that has one. BasicObject always has one. */
static void write_class_name(VALUE class, char *text, size_t size) {
    VALUE named = class, name;

    while (NIL_P(name = own_name(named)) && RCLASS_SUPER(named) != 0)
        named = rb_class_real(RCLASS_SUPER(named));
    if (NIL_P(name))
        snprintf(text, size, "anonymous");
    else
        snprintf(text, size, "%.*s%s", (int)(RSTRING_LEN(name) < LONGEST_NAME ? RSTRING_LEN(name) : LONGEST_NAME),
                 RSTRING_PTR(name), named == class ? "" : " (anonymous subclass)");
}

static void write_imemo_name(int kind, char *text, size_t size) {
    snprintf(text, size, "imemo_%s", MEMSCOPE_IMEMO_NAME(kind));
}

/* An object that Ruby code cannot reach is known by its type or kind. */
static void write_name(const struct cell *cell, char *text, size_t size) {
    if (cell->class != 0)
        write_class_name(cell->class, text, size);
    else if (cell->type == RUBY_T_IMEMO && cell->owner == 0)
        write_imemo_name(cell->kind, text, size);
    else
        snprintf(text, size, "%s", type_name(cell->owner != 0 ? cell->owner : cell->type));
}

static bool name_class(struct naming *naming, const struct cell *cell) {
    struct memscope_census_sums sums = cell->sums;
    char text[LONGEST_NAME + 64];

    write_name(cell, text, sizeof text);
    if (cell->owner != 0)
        sums.count = sums.old_count = 0;
    return add_to_row(naming, MEMSCOPE_BY_CLASS, text, &sums);
}

static bool name_type(struct naming *naming, const struct cell *cell) {
    return add_to_row(naming, MEMSCOPE_BY_TYPE, type_name(cell->type), &cell->sums);
}

static bool name_imemo(struct naming *naming, const struct cell *cell) {
    char text[64];

    if (cell->type != RUBY_T_IMEMO)
        return true;
    write_imemo_name(cell->kind, text, sizeof text);
    return add_to_row(naming, MEMSCOPE_BY_IMEMO, text, &cell->sums);
}

static bool name_cells(struct naming *naming, const struct cells *cells,
                       bool (*name)(struct naming *naming, const struct cell *cell)) {
    for (size_t place = 0; place <= cells->mask; place++)
        if (cells->table[place].key != 0 && !name(naming, &cells->table[place]))
            return false;
    return true;
}

static bool name_sizes(struct naming *naming, const struct pass *pass) {
    for (size_t at = 0; at < pass->size_count; at++) {
        char text[24];

        snprintf(text, sizeof text, "%zu", pass->slot_bytes[at]);
        if (!add_to_row(naming, MEMSCOPE_BY_SLOT_SIZE, text, &pass->sizes[at]))
            return false;
    }
    return true;
}

static bool name_ages(struct naming *naming, const struct pass *pass) {
    const struct memscope_census_sums *total = &pass->census->total, *old = &pass->old;
    const struct memscope_census_sums young = {.count = total->count - old->count,
                                               .slot_bytes = total->slot_bytes - old->slot_bytes,
                                               .memsize_bytes = total->memsize_bytes - old->memsize_bytes};

    return add_to_row(naming, MEMSCOPE_BY_AGE, "young", &young) && add_to_row(naming, MEMSCOPE_BY_AGE, "old", old);
}

static bool open_naming(struct naming *naming, struct pass *pass) {
    /* rows: at most one for each cell by class, and a fixed number in all other groupings together */
    size_t most = pass->cells.count + 32 + 16 + MEMSCOPE_SLOT_SIZES + 2, size = 256;

    while (size < most * 2)
        size *= 2;
    *naming = (struct naming){.census = pass->census, .scratch = pass->scratch, .mask = size - 1};
    naming->table = memscope_scratch_take(pass->scratch, size * sizeof *naming->table);
    pass->census->rows = memscope_scratch_take(pass->scratch, most * sizeof *pass->census->rows);
    pass->census->names = memscope_scratch_take(pass->scratch, 0);
    if (naming->table == NULL || pass->census->rows == NULL || pass->census->names == NULL)
        return false;
    memset(naming->table, 0, size * sizeof *naming->table);
    return true;
}

static bool name_rows(struct pass *pass) {
    struct naming naming;

    return open_naming(&naming, pass) && name_cells(&naming, &pass->cells, name_class) &&
           name_cells(&naming, &pass->cells, name_type) && name_cells(&naming, &pass->cells, name_imemo) &&
           name_sizes(&naming, pass) && name_ages(&naming, pass);
}

void memscope_census_take(const struct memscope_heap_listing *listing, struct memscope_scratch *scratch,
                          struct memscope_census *census) {
    struct pass pass = {.scratch = scratch, .census = census};
    uint64_t start = thread_ns();
    size_t used = scratch->used;

    memset(census, 0, sizeof *census);
    memscope_heap_held_open(&pass.held, &census->held);
    if (!take_cells(&pass, FIRST_CELLS) || !visit_all(&pass, listing) || !name_rows(&pass))
        census->refusal = "no_memory";
    memscope_heap_held_close(&pass.held);
    census->scratch_bytes = scratch->used - used;
    census->spent_ns = thread_ns() - start;
    learn(census);
}

/* ---- in a forked child ----------------------------------------------------------------------------------------- */

/* Moves rows and names to where the parent sees them, at the same address. */
static void share(struct memscope_census *census, char *shared) {
    size_t row_bytes = census->row_count * sizeof *census->rows;

    if (row_bytes + census->names_bytes > SHARED_BYTES) {
        census->refusal = "no_memory";
        return;
    }
    memcpy(shared, census->rows, row_bytes);
    memcpy(shared + row_bytes, census->names, census->names_bytes);
    census->rows = (struct memscope_census_row *)(void *)shared;
    census->names = shared + row_bytes;
}

static bool take_and_answer(void *argument, int answer) {
    struct memscope_census_child *child = argument;
    struct memscope_scratch scratch;

    if (memscope_scratch_open(&scratch) != MEMSCOPE_OK)
        return false;
    memscope_census_take(child->listing, &scratch, &child->found);
    if (child->found.refusal == NULL)
        share(&child->found, child->shared);
    return memscope_forked_child_answer(answer, &child->found, sizeof child->found);
}

enum memscope_status memscope_census_child_start(struct memscope_census_child *child) {
    struct memscope_scratch *pages = (struct memscope_scratch *)&child->listing->scratch;
    void *shared = mmap(NULL, SHARED_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    enum memscope_status status;

    if (shared == MAP_FAILED)
        return MEMSCOPE_NO_MEMORY;
    child->shared = shared;
    memscope_scratch_inherit(pages, true);
    status = memscope_forked_child_start(&child->process, take_and_answer, child, -1, DEADLINE_MS);
    memscope_scratch_inherit(pages, false);
    if (status == MEMSCOPE_OK)
        memscope_fork_took(child->process.cpu_ns);
    return status;
}

enum memscope_forked_progress memscope_census_child_receive(struct memscope_census_child *child) {
    enum memscope_forked_progress progress =
        memscope_forked_child_receive(&child->process, &child->found, sizeof child->found, &child->received);

    if (progress == MEMSCOPE_FORKED_ANSWERED)
        learn(&child->found);
    return progress;
}

void memscope_census_child_end(struct memscope_census_child *child) {
    memscope_forked_child_end(&child->process);
    if (child->shared != NULL)
        munmap(child->shared, SHARED_BYTES);
    child->shared = NULL;
}
