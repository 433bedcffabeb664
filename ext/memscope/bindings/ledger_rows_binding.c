#include "bindings/ledger_binding.h"

static bool is_counted_by_jemalloc(enum memscope_row row) {
    return row >= MEMSCOPE_ROW_in_use && row <= MEMSCOPE_ROW_not_resident;
}

static bool is_found_by_chunks(enum memscope_row row) {
    return (row >= MEMSCOPE_ROW_main_heap_in_use && row <= MEMSCOPE_ROW_main_heap_unwalked) ||
           (row >= MEMSCOPE_ROW_arenas_in_use && row <= MEMSCOPE_ROW_arenas_unwalked) ||
           row == MEMSCOPE_ROW_mmapped_in_use;
}

/* Whether this process can have the row at all; one that can and has nothing is there with 0 bytes. */
static bool applies(const struct memscope_ledger_call *reading, enum memscope_row row) {
    switch (row) {
    case MEMSCOPE_ROW_main_heap:
    case MEMSCOPE_ROW_arenas:
    case MEMSCOPE_ROW_mmapped:
        return reading->request.malloc == MEMSCOPE_LEDGER_MALLOC_GLIBC;
    case MEMSCOPE_ROW_transient_heap:
        return reading->layout.transient_heap_bytes > 0;
    case MEMSCOPE_ROW_shape_tables:
        return reading->layout.shape_list_bytes > 0;
    default:
        if (is_counted_by_jemalloc(row))
            return reading->ledger.jemalloc_status == MEMSCOPE_OK;
        return !is_found_by_chunks(row) || reading->ledger.walked_chunks;
    }
}

/* Rows that are counters or chunks, not pages: what of them is shared is known of the row above them only. */
static bool shares_known(const struct memscope_ledger_call *reading, enum memscope_row row) {
    return reading->ledger.shared_status == MEMSCOPE_OK && !is_counted_by_jemalloc(row) && !is_found_by_chunks(row);
}

static VALUE permissions_text(const struct memscope_mapping *mapping) {
    const char text[] = {mapping->readable ? 'r' : '-', mapping->writable ? 'w' : '-', mapping->executable ? 'x' : '-',
                         mapping->shared ? 's' : 'p'};

    return rb_str_new(text, sizeof text);
}

static VALUE mapping_hash(const struct memscope_mapping *mapping, uint64_t resident_bytes) {
    VALUE hash = rb_hash_new();

    memscope_hash_set(hash, "start", ULL2NUM(mapping->start));
    memscope_hash_set(hash, "end", ULL2NUM(mapping->end));
    memscope_hash_set(hash, "resident_bytes", ULL2NUM(resident_bytes));
    memscope_hash_set(hash, "permissions", permissions_text(mapping));
    memscope_hash_set(hash, "name", rb_str_new_cstr(mapping->name));
    return hash;
}

static void add_strangers(VALUE detail, const struct memscope_ledger *ledger) {
    VALUE list = rb_ary_new();

    for (size_t index = 0; index < ledger->owner_count; index++)
        if (ledger->owners[index].row == MEMSCOPE_ROW_unattributed)
            rb_ary_push(list, mapping_hash(ledger->owners[index].mapping, ledger->owners[index].bytes));
    memscope_hash_set(detail, "mappings", list);
    memscope_hash_set(detail, "unmapped_bytes", ULL2NUM(ledger->unmapped_bytes));
}

static void add_ruby_heap_counts(VALUE detail, const struct memscope_ledger_call *reading) {
    size_t live = 0, slots = 0;

    for (size_t index = 0; index < reading->listing.count; index++) {
        live += reading->listing.pages[index].live_count;
        slots += reading->listing.pages[index].slot_count;
    }
    memscope_hash_set(detail, "pages", SIZET2NUM(reading->listing.count));
    memscope_hash_set(detail, "slots", SIZET2NUM(slots));
    memscope_hash_set(detail, "live_slots", SIZET2NUM(live));
    memscope_hash_set(detail, "partly_resident_pages", ULL2NUM(reading->ledger.heap_pages_partly_resident));
}

bool memscope_ledger_malloc_in_use(const struct memscope_ledger_call *reading, uint64_t *bytes) {
    const struct memscope_ledger *ledger = &reading->ledger;

    if (ledger->jemalloc_status == MEMSCOPE_OK)
        *bytes =
            ledger->jemalloc.allocated_bytes - ledger->jemalloc.tcache_bytes - ledger->jemalloc.tcache_stashed_bytes;
    else if (ledger->walked_chunks)
        *bytes = ledger->main_heap.in_use.bytes + ledger->arenas.in_use.bytes + ledger->glibc.mmapped_bytes;
    else
        return false;
    return true;
}

static void add_malloc_counts(VALUE detail, const struct memscope_ledger_call *reading) {
    const struct memscope_ledger *ledger = &reading->ledger;
    uint64_t in_use;

    if (ledger->walked_chunks)
        memscope_hash_set(detail, "trimmable_bytes",
                          ULL2NUM(ledger->main_heap.trimmable_bytes + ledger->arenas.trimmable_bytes));
    if (!memscope_ledger_malloc_in_use(reading, &in_use))
        return;
    memscope_hash_set(detail, "in_use_bytes", ULL2NUM(in_use));
    if (!reading->held.known)
        return;
    memscope_hash_set(detail, "held_by_objects_bytes", ULL2NUM(reading->held.bytes));
    memscope_hash_set(detail, "held_by_nobody_bytes", LL2NUM((int64_t)in_use - (int64_t)reading->held.bytes));
}

/* The chunks behind a row that the chunk walk found; NULL for every other row. */
static const struct memscope_chunk_sum *chunks_of(const struct memscope_ledger *ledger, enum memscope_row row) {
    const struct memscope_chunk_totals *totals = row < MEMSCOPE_ROW_arenas ? &ledger->main_heap : &ledger->arenas;

    switch (row) {
    case MEMSCOPE_ROW_main_heap_in_use:
    case MEMSCOPE_ROW_arenas_in_use:
        return &totals->in_use;
    case MEMSCOPE_ROW_main_heap_free:
    case MEMSCOPE_ROW_arenas_free:
        return &totals->free;
    case MEMSCOPE_ROW_main_heap_thread_caches:
    case MEMSCOPE_ROW_arenas_thread_caches:
        return &totals->cached;
    case MEMSCOPE_ROW_main_heap_top:
    case MEMSCOPE_ROW_arenas_top:
        return &totals->top;
    default:
        return NULL;
    }
}

static void add_chunk_counts(VALUE detail, const struct memscope_ledger_call *reading, enum memscope_row row) {
    const struct memscope_ledger *ledger = &reading->ledger;
    const struct memscope_chunk_sum *sum = chunks_of(ledger, row);

    if (sum != NULL && ledger->walked_chunks) {
        memscope_hash_set(detail, "blocks", ULL2NUM(sum->count));
        memscope_hash_set(detail, "chunk_bytes", ULL2NUM(sum->bytes));
    }
    if (row == MEMSCOPE_ROW_main_heap_free)
        memscope_hash_set(detail, "trimmable_bytes", ULL2NUM(ledger->main_heap.trimmable_bytes));
    if (row == MEMSCOPE_ROW_arenas_free)
        memscope_hash_set(detail, "trimmable_bytes", ULL2NUM(ledger->arenas.trimmable_bytes));
}

static VALUE row_detail(const struct memscope_ledger_call *reading, enum memscope_row row) {
    const struct memscope_ledger *ledger = &reading->ledger;
    VALUE detail = rb_hash_new();

    switch (row) {
    case MEMSCOPE_ROW_ruby_heap:
        add_ruby_heap_counts(detail, reading);
        break;
    case MEMSCOPE_ROW_malloc:
        add_malloc_counts(detail, reading);
        break;
    case MEMSCOPE_ROW_empty_pages:
        memscope_hash_set(detail, "pages", ULL2NUM(ledger->ruby.empty_pages_found));
        break;
    case MEMSCOPE_ROW_arenas:
        memscope_hash_set(detail, "arenas", ULL2NUM(ledger->glibc.arena_count));
        memscope_hash_set(detail, "heaps", ULL2NUM(ledger->glibc.arena_heap_count));
        break;
    case MEMSCOPE_ROW_mmapped:
        memscope_hash_set(detail, "blocks", ULL2NUM(ledger->glibc.mmapped_chunk_count));
        memscope_hash_set(detail, "mapped_bytes", ULL2NUM(ledger->glibc.mmapped_bytes));
        break;
    case MEMSCOPE_ROW_threads:
        memscope_hash_set(detail, "live", ULL2NUM(ledger->stacks.live_threads));
        memscope_hash_set(detail, "cached", ULL2NUM(ledger->stacks.cached_stacks));
        break;
    case MEMSCOPE_ROW_fibers:
        memscope_hash_set(detail, "stacks", ULL2NUM(ledger->stacks.fiber_stacks));
        break;
    case MEMSCOPE_ROW_not_resident:
        if (ledger->bytes[row] < 0)
            memscope_hash_set(detail, "why", rb_str_new_cstr("counted above, not found resident"));
        break;
    case MEMSCOPE_ROW_unattributed:
        add_strangers(detail, ledger);
        break;
    default:
        add_chunk_counts(detail, reading, row);
        if (memscope_row_definitions[row].parent != MEMSCOPE_ROW_files)
            break;
        memscope_hash_set(detail, "text_bytes", LL2NUM(ledger->bytes[row] - (int64_t)ledger->written_bytes[row]));
        memscope_hash_set(detail, "data_bytes", ULL2NUM(ledger->written_bytes[row]));
    }
    return detail;
}

static VALUE check_hash(const char *source, uint64_t expected, uint64_t actual) {
    VALUE check = rb_hash_new();

    memscope_hash_set(check, "source", rb_str_new_cstr(source));
    memscope_hash_set(check, "expected_bytes", ULL2NUM(expected));
    memscope_hash_set(check, "actual_bytes", ULL2NUM(actual));
    memscope_hash_set(check, "verified", expected == actual ? Qtrue : Qfalse);
    return check;
}

/* Each check counts address space: what one side says it mapped against what was found. */
static VALUE row_check(const struct memscope_ledger_call *reading, enum memscope_row row) {
    const struct memscope_ledger *ledger = &reading->ledger;
    uint64_t page = reading->listing.page_bytes;

    if (row == MEMSCOPE_ROW_malloc && ledger->jemalloc_status == MEMSCOPE_OK)
        return check_hash("jemalloc stats.mapped + stats.retained", memscope_ledger_jemalloc_expected(ledger),
                          ledger->jemalloc_space_bytes);
    if (row == MEMSCOPE_ROW_ruby_heap && page > 0)
        return check_hash("GC.stat heap_allocated_pages", reading->listing.allocated_pages * page,
                          (reading->listing.count + ledger->ruby.empty_pages_found) * page);
    if (row == MEMSCOPE_ROW_empty_pages && page > 0)
        return check_hash("GC.stat empty pages", reading->listing.empty_pages * page,
                          ledger->ruby.empty_pages_found * page);
    return Qnil;
}

static VALUE row_label(const struct memscope_ledger_call *reading, enum memscope_row row) {
    const char *label = memscope_row_definitions[row].label;

    if (row == MEMSCOPE_ROW_malloc)
        return rb_sprintf("%s (%s)", label, memscope_allocator_name_text(memscope_allocator_current()->name));
    return rb_str_new_cstr(label);
}

static VALUE row_list(const struct memscope_ledger_call *reading, enum memscope_row parent);

static VALUE row_hash(const struct memscope_ledger_call *reading, enum memscope_row row) {
    VALUE hash = rb_hash_new();

    memscope_hash_set(hash, "id", memscope_symbol(memscope_row_definitions[row].id));
    memscope_hash_set(hash, "label", row_label(reading, row));
    memscope_hash_set(hash, "bytes", LL2NUM(memscope_ledger_row_bytes(&reading->ledger, row)));
    if (reading->request.shared) {
        bool known = shares_known(reading, row);
        uint64_t shared = memscope_ledger_row_shared_bytes(&reading->ledger, row);

        memscope_hash_set(hash, "shared_bytes", known ? ULL2NUM(shared) : Qnil);
        memscope_hash_set(hash, "private_bytes",
                          known ? LL2NUM(memscope_ledger_row_bytes(&reading->ledger, row) - (int64_t)shared) : Qnil);
    }
    memscope_hash_set(hash, "detail", row_detail(reading, row));
    memscope_hash_set(hash, "check", row_check(reading, row));
    memscope_hash_set(hash, "children", row_list(reading, row));
    return hash;
}

static VALUE row_list(const struct memscope_ledger_call *reading, enum memscope_row parent) {
    VALUE list = rb_ary_new();

    for (int row = 0; row < MEMSCOPE_ROW_COUNT; row++)
        if (memscope_row_definitions[row].parent == parent && applies(reading, (enum memscope_row)row))
            rb_ary_push(list, row_hash(reading, (enum memscope_row)row));
    return list;
}

VALUE memscope_ledger_rows(const struct memscope_ledger_call *reading) {
    return row_list(reading, MEMSCOPE_ROW_top);
}

/* "malloc/main_heap": the ids from the top row down. */
static VALUE row_path(enum memscope_row row) {
    const struct memscope_row_definition *definition = &memscope_row_definitions[row];

    if (definition->parent == MEMSCOPE_ROW_top)
        return rb_str_new_cstr(definition->id);
    return rb_sprintf("%s/%s", memscope_row_definitions[definition->parent].id, definition->id);
}

/* Every mapping, those without a resident page too; owners are in the order of the mappings. */
VALUE memscope_ledger_mappings(const struct memscope_ledger *ledger) {
    VALUE list = rb_ary_new();
    size_t owner = 0;

    for (size_t index = 0; index < ledger->mappings.count; index++) {
        const struct memscope_mapping *mapping = &ledger->mappings.list[index];
        VALUE rows = rb_hash_new(), hash;
        uint64_t resident_bytes = 0;

        for (; owner < ledger->owner_count && ledger->owners[owner].mapping == mapping; owner++) {
            rb_hash_aset(rows, rb_str_intern(row_path(ledger->owners[owner].row)),
                         ULL2NUM(ledger->owners[owner].bytes));
            resident_bytes += ledger->owners[owner].bytes;
        }
        hash = mapping_hash(mapping, resident_bytes);
        memscope_hash_set(hash, "rows", rows);
        rb_ary_push(list, hash);
    }
    return list;
}
