#include "values.h"

#include "elf/object_lookup.h"
#include "ruby/class_names.h"
#include "ruby/heap/census.h"
#include "ruby/heap/heap_pins.h"
#include "ruby/heap/page_index.h"
#include "ruby/ruby_private.h"

#include <stdio.h>
#include <string.h>

/* ---- cells: the objects of one class and type ------------------------------------------------------------------ */

/* The pass counts each slot in a cell. The groupings by class, type and imemo are sums of cells. */
struct cell {
    uint64_t key; /* 0 if free */
    struct memscope_census_sums sums;
    VALUE class;           /* 0 if hidden from Ruby code, so named by type */
    const char *data_type; /* memscope_data_type_of, NULL if named by class or type */
    uint8_t type, kind;
    bool of_extension; /* a T_DATA whose type is not Ruby's own */
    uint8_t owner;     /* for imemo_fields, the type of the objects with these variables, else 0 */
};

struct cells {
    struct cell *table; /* open addressing, at most half full */
    size_t mask, count;
};

#define FIRST_CELLS 2048

/* A cache of recent objects' cells: with it, a census takes a sixth less time than with the table alone. */
#define RECENT_BITS 8

struct recent {
    uint64_t key; /* 0 if none */
    struct cell *cell;
};

struct pass {
    const struct memscope_census_excluded *excluded;
    struct memscope_scratch *scratch;
    struct memscope_loaded_object ruby; /* with Ruby's own types of T_DATA, empty if unknown */
    struct memscope_census *census;
    struct cells cells;
    struct recent recent[1 << RECENT_BITS];
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
/* Takes the type's place in the key of a cell whose objects hold the variables of other objects. */
#define OWNED RUBY_T_NONE

/*
 * From Ruby 4.0 on, `klass` of an imemo_fields is its owner, which it marks (imemo.c, rb_imemo_mark_and_move). Classes
 * own some, too. All of them have one key, which no cell has, so each comes here.
 */
static struct cell *add_imemo_cell(struct pass *pass, VALUE object, uint64_t key) {
    struct cell found = {.key = key, .type = RUBY_T_IMEMO, .kind = (uint8_t)MEMSCOPE_IMEMO_KIND(object)};
    VALUE owner;

    if (!MEMSCOPE_IS_FIELDS(object))
        return add_cell(pass, &found);
    owner = RBASIC(object)->klass;
    found.key = KEY(RUBY_T_IMEMO, found.kind + 16);
    if (!RB_SPECIAL_CONST_P(owner)) {
        found.owner = (uint8_t)RB_BUILTIN_TYPE(owner);
        found.class = memscope_naming_of(owner).class;
        found.key = KEY(OWNED, found.class != 0 ? found.class : found.owner);
    }
    return add_cell(pass, &found);
}

static bool is_of_extension(const struct pass *pass, VALUE object, int type) {
    return pass->ruby.extent.end > 0 && type == RUBY_T_DATA && RTYPEDDATA_P(object) &&
           !memscope_range_contains(pass->ruby.extent, (uintptr_t)RTYPEDDATA_TYPE(object));
}

/* No object has this key, so new_cell reads the type of each T_DATA with an uninformative class. */
#define UNTYPED(class) ((class) | 1)

static uint64_t data_key(const struct cell *found) {
    if (found->data_type != NULL)
        return KEY(RUBY_T_DATA, (uintptr_t)found->data_type);
    return KEY(RUBY_T_DATA, found->class == 0 || found->class == rb_cObject ? UNTYPED(found->class) : found->class);
}

/* Each object may have a singleton class of its own, so its real class has the cell. */
static __attribute__((noinline)) struct cell *new_cell(struct pass *pass, VALUE object, int type, uint64_t key) {
    struct cell found = {.type = (uint8_t)type};

    if (type == RUBY_T_IMEMO)
        return add_imemo_cell(pass, object, key);
    found.class = memscope_naming_of(object).class;
    found.data_type = memscope_data_type_of(object, found.class);
    found.of_extension = is_of_extension(pass, object, type);
    found.key = type == RUBY_T_DATA ? data_key(&found) : KEY(type, found.class);
    return add_cell(pass, &found);
}

static inline uint64_t key_of(VALUE object, int type) {
    if (memscope_has_class(type))
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
    struct recent *recent = &pass->recent[key * UINT64_C(0x9e3779b97f4a7c15) >> (64 - RECENT_BITS)];

    return recent->key == key ? recent->cell : find_cell(pass, object, type, key, recent);
}

/* ---- the pass -------------------------------------------------------------------------------------------------- */

static void add(struct memscope_census_sums *sums, const struct memscope_census_sums *more) {
    sums->count += more->count;
    sums->slot_bytes += more->slot_bytes;
    sums->memsize_bytes += more->memsize_bytes;
    sums->old_count += more->old_count;
    sums->unsized_count += more->unsized_count;
}

/* False for a zombie and a forwarding address: they occupy their slots, but have neither a memsize nor an age. */
static bool is_object(int type) {
    return type != RUBY_T_ZOMBIE && type != RUBY_T_MOVED;
}

static size_t size_of(struct pass *pass, VALUE object, int type, size_t slot_bytes) {
    if (memscope_holds_only_its_slot(object) || !is_object(type))
        return slot_bytes;
    return slot_bytes + memscope_held_bytes_asked(&pass->held, object, slot_bytes);
}

/* Adds the objects of a page to their cells, and to *all and *old, whose other sums add_page sets. */
static bool visit_page(struct pass *pass, const struct memscope_heap_page *page, struct memscope_census_sums *all,
                       struct memscope_census_sums *old) {
    uintptr_t slot = page->start + page->slots_offset;
    const struct memscope_range *ranges = pass->excluded->ranges, *last = ranges + pass->excluded->count;
    const struct memscope_range *excluded =
        ranges + memscope_range_position(ranges, pass->excluded->count, sizeof *ranges, slot);

    for (uint32_t left = page->slot_count; left > 0; left--, slot += page->slot_bytes) {
        int type = RB_BUILTIN_TYPE((VALUE)slot);
        struct cell *cell;
        size_t size;

        __builtin_prefetch((const void *)(slot + MEMSCOPE_PREFETCH_AHEAD));
        while (excluded < last && excluded->end <= slot)
            excluded++;
        if (type == RUBY_T_NONE || (excluded < last && excluded->start <= slot))
            continue;
        cell = cell_of(pass, (VALUE)slot, type);
        if (cell == NULL)
            return false;
        size = size_of(pass, (VALUE)slot, type, page->slot_bytes);
        cell->sums.count++;
        cell->sums.slot_bytes += page->slot_bytes;
        cell->sums.memsize_bytes += size;
        all->count++;
        all->memsize_bytes += size;
        if (!is_object(type) || !MEMSCOPE_IS_OLD((VALUE)slot))
            continue;
        cell->sums.old_count++;
        old->count++;
        old->memsize_bytes += size;
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

static void add_page(struct pass *pass, size_t slot_bytes, struct memscope_census_sums *all,
                     struct memscope_census_sums *old) {
    all->slot_bytes = all->count * slot_bytes;
    old->slot_bytes = old->count * slot_bytes;
    all->old_count = old->old_count = old->count;
    add(&pass->census->total, all);
    add(&pass->old, old);
    add(sums_of_size(pass, slot_bytes), all);
}

static bool visit_all(struct pass *pass, const struct memscope_heap_listing *listing) {
    for (size_t index = 0; index < listing->count; index++) {
        const struct memscope_heap_page *page = &listing->pages[index];
        struct memscope_census_sums all = {0}, old = {0};

        if (!visit_page(pass, page, &all, &old))
            return false;
        add_page(pass, page->slot_bytes, &all, &old);
    }
    return true;
}

/* Bytes of malloc memory up to which a size does not include the library's memory behind the object. */
#define MAX_UNSIZED 128

/* ---- rows by name ---------------------------------------------------------------------------------------------- */

/* Classes may share a name: anonymous classes, and classes that were defined anew. */
struct naming {
    struct memscope_census *census;
    struct memscope_names names;
    struct memscope_class_names class_names;
    uint32_t *rows; /* by name and grouping, 1 + the row's index, 0 without a row */
};

/*
 * Adds to the row of this name, and makes the row if there is none. Returns false if there is no memory for the name.
 */
static bool add_to_row(struct naming *naming, enum memscope_census_grouping grouping, uint32_t name,
                       const struct memscope_census_sums *sums) {
    struct memscope_census *census = naming->census;
    uint32_t *row = &naming->rows[(size_t)name * MEMSCOPE_CENSUS_GROUPINGS + grouping];

    if (name == 0)
        return false;
    if (*row == 0) {
        census->rows[census->row_count] = (struct memscope_census_row){.grouping = grouping, .name = name};
        *row = (uint32_t)++census->row_count;
    }
    add(&census->rows[*row - 1].census_sums, sums);
    return true;
}

static bool add_to_text(struct naming *naming, enum memscope_census_grouping grouping, const char *text,
                        const struct memscope_census_sums *sums) {
    return add_to_row(naming, grouping, memscope_names_add(&naming->names, text, strlen(text)), sums);
}

/* An object that Ruby code cannot reach is named by its type or kind. */
static uint32_t class_name(struct memscope_class_names *names, const struct cell *cell) {
    if (cell->data_type != NULL)
        return memscope_name_of_data_type(names, cell->data_type);
    if (cell->class != 0)
        return memscope_name_of_module(names, cell->class);
    return memscope_name_of_type(names, cell->owner != 0 ? cell->owner : cell->type, cell->kind);
}

static bool name_cell(struct naming *naming, const struct cell *cell) {
    struct memscope_census_sums sums = cell->sums;

    if (cell->owner != 0)
        sums.count = sums.old_count = 0;
    if (cell->of_extension && sums.memsize_bytes - sums.slot_bytes <= sums.count * MAX_UNSIZED)
        sums.unsized_count = sums.count;
    return add_to_row(naming, MEMSCOPE_BY_CLASS, class_name(&naming->class_names, cell), &sums) &&
           add_to_text(naming, MEMSCOPE_BY_TYPE, memscope_type_name(cell->type), &cell->sums) &&
           (cell->type != RUBY_T_IMEMO ||
            add_to_row(naming, MEMSCOPE_BY_IMEMO, memscope_name_of_type(&naming->class_names, cell->type, cell->kind),
                       &cell->sums));
}

static bool name_cells(struct naming *naming, const struct cells *cells) {
    for (size_t place = 0; place <= cells->mask; place++)
        if (cells->table[place].key != 0 && !name_cell(naming, &cells->table[place]))
            return false;
    return true;
}

static bool name_sizes(struct naming *naming, const struct pass *pass) {
    for (size_t at = 0; at < pass->size_count; at++) {
        char text[24];

        snprintf(text, sizeof text, "%zu", pass->slot_bytes[at]);
        if (!add_to_text(naming, MEMSCOPE_BY_SLOT_SIZE, text, &pass->sizes[at]))
            return false;
    }
    return true;
}

static bool name_ages(struct naming *naming, const struct pass *pass) {
    const struct memscope_census_sums *total = &pass->census->total, *old = &pass->old;
    const struct memscope_census_sums young = {.count = total->count - old->count,
                                               .slot_bytes = total->slot_bytes - old->slot_bytes,
                                               .memsize_bytes = total->memsize_bytes - old->memsize_bytes};

    return add_to_text(naming, MEMSCOPE_BY_AGE, "young", &young) && add_to_text(naming, MEMSCOPE_BY_AGE, "old", old);
}

static bool open_naming(struct naming *naming, struct pass *pass, struct memscope_shared_room *room) {
    /* rows: at most one per cell by class, then rows for types, imemos, slot sizes and ages */
    size_t most = pass->cells.count + 32 + 16 + MEMSCOPE_SLOT_SIZES + 2;
    size_t bytes = (most + 1) * MEMSCOPE_CENSUS_GROUPINGS * sizeof *naming->rows;

    naming->rows = memscope_scratch_take(pass->scratch, bytes);
    pass->census->rows = memscope_shared_room_take(room, most, sizeof *pass->census->rows);
    if (naming->rows == NULL || pass->census->rows == NULL || memscope_names_open(&naming->names) != MEMSCOPE_OK)
        return false;
    memset(naming->rows, 0, bytes);
    return memscope_class_names_open(&naming->class_names, &naming->names) == MEMSCOPE_OK;
}

static bool name_rows(struct pass *pass, struct memscope_shared_room *room) {
    struct naming naming = {.census = pass->census};
    bool named = open_naming(&naming, pass, room) && name_cells(&naming, &pass->cells) && name_sizes(&naming, pass) &&
                 name_ages(&naming, pass) && memscope_names_copy(&naming.names, room, &pass->census->names);

    memscope_class_names_close(&naming.class_names);
    memscope_names_close(&naming.names);
    return named;
}

void memscope_census_take(const struct memscope_heap_listing *listing, const struct memscope_census_excluded *excluded,
                          struct memscope_scratch *scratch, struct memscope_shared_room *room,
                          struct memscope_census *census) {
    struct pass pass = {.excluded = excluded, .scratch = scratch, .census = census};
    uint64_t start = memscope_clock_ns(CLOCK_THREAD_CPUTIME_ID);
    size_t used = scratch->used;

    memset(census, 0, sizeof *census);
    memscope_object_at((uintptr_t)RTYPEDDATA_TYPE(rb_thread_current()), &pass.ruby);
    memscope_heap_held_open(&pass.held, &census->held);
    if (!take_cells(&pass, FIRST_CELLS) || !visit_all(&pass, listing) || !name_rows(&pass, room))
        census->refusal = "no_memory";
    memscope_heap_held_close(&pass.held);
    census->scratch_bytes = scratch->used - used;
    census->spent_ns = memscope_clock_ns(CLOCK_THREAD_CPUTIME_ID) - start;
}
