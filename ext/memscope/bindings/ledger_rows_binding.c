#include "bindings/ledger_binding.h"

#include <ruby/encoding.h>

/* The one frozen String for a constant: each ledger would make some thirty others. */
static VALUE constant_text(const char *text) {
    return rb_enc_interned_str_cstr(text, rb_utf8_encoding());
}

static VALUE mapping_hash(const struct memscope_mapping *mapping, uint64_t resident_bytes) {
    const char permissions[] = {mapping->readable ? 'r' : '-', mapping->writable ? 'w' : '-',
                                mapping->executable ? 'x' : '-', mapping->shared ? 's' : 'p'};
    const struct memscope_mapping_figures figures = {.start = mapping->start,
                                                     .end = mapping->end,
                                                     .resident_bytes = resident_bytes,
                                                     .permissions = {permissions, sizeof permissions},
                                                     .name = memscope_text_of(mapping->name)};

    return memscope_mapping_figures_hash(&figures);
}

static void add_unattributed_mappings(VALUE detail, const struct memscope_ledger *ledger) {
    VALUE list = rb_ary_new();

    for (size_t index = 0; index < ledger->owner_count; index++)
        if (ledger->owners[index].row == MEMSCOPE_ROW_unattributed)
            rb_ary_push(list, mapping_hash(ledger->owners[index].mapping, ledger->owners[index].bytes));
    memscope_hash_add(detail, {"mappings", list}, {"unmapped_bytes", ULL2NUM(ledger->unmapped_bytes)});
    if (ledger->beside_heaps > 0)
        memscope_hash_add(detail, {"c_library_heaps", SIZET2NUM(ledger->beside_heaps)},
                          {"c_library_blocks", ULL2NUM(ledger->glibc.mmapped_chunk_count)},
                          {"c_library_bytes", ULL2NUM(ledger->beside_bytes)});
}

static void add_ruby_heap_counts(VALUE detail, const struct memscope_ledger_call *call) {
    size_t live = 0, slots = 0;

    for (size_t index = 0; index < call->listing.count; index++) {
        live += call->listing.pages[index].live_count;
        slots += call->listing.pages[index].slot_count;
    }
    memscope_hash_add(detail, {"pages", SIZET2NUM(call->listing.count)}, {"slots", SIZET2NUM(slots)},
                      {"live_slots", SIZET2NUM(live)},
                      {"partly_resident_pages", ULL2NUM(call->ledger.heap_pages_partly_resident)});
}

static void add_malloc_counts(VALUE detail, const struct memscope_ledger_call *call) {
    uint64_t trimmable, in_use;

    if (memscope_ledger_trimmable(&call->ledger, &trimmable))
        memscope_hash_set(detail, "trimmable_bytes", ULL2NUM(trimmable));
    if (memscope_ledger_trimmable_private(&call->ledger, &trimmable))
        memscope_hash_set(detail, "trimmable_private_bytes", ULL2NUM(trimmable));
    if (call->ledger.locked_bytes > 0)
        memscope_hash_set(detail, "locked_bytes", ULL2NUM(call->ledger.locked_bytes));
    if (call->ledger.return_status != MEMSCOPE_OK)
        memscope_hash_set(detail, "madvise_refused", Qtrue);
    if (!memscope_ledger_malloc_in_use(&call->ledger, &in_use))
        return;
    memscope_hash_set(detail, "in_use_bytes", ULL2NUM(in_use));
    if (!call->held.known || call->held.left_out_objects > 0)
        return;
    memscope_hash_set(detail, "held_by_objects_bytes", ULL2NUM(call->held.bytes));
    if (call->held.bytes <= in_use)
        memscope_hash_set(detail, "untracked_bytes", ULL2NUM(in_use - call->held.bytes));
}

static void add_chunk_counts(VALUE detail, const struct memscope_ledger *ledger, enum memscope_row row) {
    const struct memscope_chunk_sum *sum = memscope_ledger_row_chunks(ledger, row);

    if (sum != NULL)
        memscope_hash_add(detail, {"blocks", ULL2NUM(sum->count)}, {"chunk_bytes", ULL2NUM(sum->bytes)});
    if (row == MEMSCOPE_ROW_main_heap_free || row == MEMSCOPE_ROW_arenas_free) {
        const struct memscope_chunk_totals *totals =
            row == MEMSCOPE_ROW_main_heap_free ? &ledger->main_heap : &ledger->arenas;

        memscope_hash_add(detail, {"trimmable_bytes", ULL2NUM(totals->trimmable_bytes)},
                          {"kept_by_kernel_bytes", ULL2NUM(totals->kept_bytes)});
    }
}

/* Sets the counts that a row always has. */
static void add_counts(VALUE detail, const struct memscope_ledger *ledger, enum memscope_row row) {
    const struct {
        enum memscope_row row;
        const char *key;
        uint64_t count;
    } counts[] = {
        {MEMSCOPE_ROW_whole_pages, "pages", ledger->ruby.whole_pages_found},
        {MEMSCOPE_ROW_empty_pages, "pages", ledger->ruby.empty_pages_found},
        {MEMSCOPE_ROW_arenas, "arenas", ledger->glibc.arena_count},
        {MEMSCOPE_ROW_arenas, "heaps", ledger->glibc.arena_heap_count},
        {MEMSCOPE_ROW_mmapped, "blocks", ledger->glibc.mmapped_chunk_count},
        {MEMSCOPE_ROW_mmapped, "mapped_bytes", ledger->glibc.mmapped_bytes},
        {MEMSCOPE_ROW_threads, "live", ledger->stacks.live_threads},
        {MEMSCOPE_ROW_threads, "cached", ledger->stacks.cached_stacks},
        {MEMSCOPE_ROW_fibers, "stacks", ledger->stacks.fiber_stacks},
    };

    for (size_t index = 0; index < sizeof counts / sizeof counts[0]; index++)
        if (counts[index].row == row)
            memscope_hash_set(detail, counts[index].key, ULL2NUM(counts[index].count));
}

static VALUE row_detail(const struct memscope_ledger_call *call, enum memscope_row row) {
    const struct memscope_ledger *ledger = &call->ledger;
    VALUE detail = rb_hash_new();

    add_counts(detail, ledger, row);
    switch (row) {
    case MEMSCOPE_ROW_ruby_heap:
        if (call->listing.count > 0)
            add_ruby_heap_counts(detail, call);
        break;
    case MEMSCOPE_ROW_malloc:
        add_malloc_counts(detail, call);
        break;
    case MEMSCOPE_ROW_main_heap:
        if (ledger->glibc.main_piece_count > 0)
            memscope_hash_set(detail, "pieces", ULL2NUM(ledger->glibc.main_piece_count));
        break;
    case MEMSCOPE_ROW_not_resident:
        if (ledger->bytes[row] < 0)
            memscope_hash_set(detail, "why", rb_str_new_cstr("counted above but not resident"));
        break;
    case MEMSCOPE_ROW_unattributed:
        add_unattributed_mappings(detail, ledger);
        break;
    default:
        add_chunk_counts(detail, ledger, row);
        if (memscope_row_definitions[row].parent != MEMSCOPE_ROW_files)
            break;
        memscope_hash_add(detail, {"text_bytes", LL2NUM(ledger->bytes[row] - (int64_t)ledger->written_bytes[row])},
                          {"data_bytes", ULL2NUM(ledger->written_bytes[row])});
    }
    return detail;
}

static VALUE row_check(const struct memscope_ledger *ledger, enum memscope_row row) {
    struct memscope_row_check check;

    if (!memscope_ledger_row_check(ledger, row, &check))
        return Qnil;
    return memscope_hash_add(memscope_check_figures_hash(&check.check_figures),
                             {"source", constant_text(check.source)});
}

static VALUE row_label(enum memscope_row row) {
    const char *label = memscope_row_definitions[row].label;

    if (row == MEMSCOPE_ROW_malloc)
        return rb_sprintf("%s (%s)", label, memscope_allocator_name_text(memscope_allocator_current()->name));
    return constant_text(label);
}

static VALUE row_hash(const struct memscope_ledger_call *call, enum memscope_row row) {
    int64_t bytes = memscope_ledger_row_bytes(&call->ledger, row);
    VALUE hash = memscope_hash_of({"id", memscope_symbol(memscope_row_definitions[row].id)}, {"label", row_label(row)},
                                  {"bytes", LL2NUM(bytes)});

    if (call->request.shared) {
        bool known = memscope_ledger_row_shares_known(&call->ledger, row);
        uint64_t shared = memscope_ledger_row_shared_bytes(&call->ledger, row);

        memscope_hash_add(hash, {"shared_bytes", known ? ULL2NUM(shared) : Qnil},
                          {"private_bytes", known ? LL2NUM(bytes - (int64_t)shared) : Qnil});
    }
    return memscope_hash_add(hash, {"detail", row_detail(call, row)}, {"check", row_check(&call->ledger, row)},
                             {"children", memscope_ledger_rows(call, row)});
}

VALUE memscope_ledger_rows(const struct memscope_ledger_call *call, enum memscope_row parent) {
    VALUE list = rb_ary_new();

    for (int row = 0; row < MEMSCOPE_ROW_COUNT; row++)
        if (memscope_row_definitions[row].parent == parent &&
            memscope_ledger_row_applies(&call->ledger, (enum memscope_row)row))
            rb_ary_push(list, row_hash(call, (enum memscope_row)row));
    return list;
}

/* "malloc/main_heap": the ids from the top row down. */
static VALUE row_path(enum memscope_row row) {
    const struct memscope_row_definition *definition = &memscope_row_definitions[row];

    if (definition->parent == MEMSCOPE_ROW_top)
        return rb_str_new_cstr(definition->id);
    return rb_sprintf("%s/%s", memscope_row_definitions[definition->parent].id, definition->id);
}

/* Every mapping, including those without a resident page. Owners are in the order of the mappings. */
VALUE memscope_ledger_mappings(const struct memscope_ledger *ledger) {
    VALUE list = rb_ary_new();
    size_t owner = 0;

    for (size_t index = 0; index < ledger->mappings.count; index++) {
        const struct memscope_mapping *mapping = &ledger->mappings.list[index];
        VALUE rows = rb_hash_new();
        uint64_t resident_bytes = 0;

        for (; owner < ledger->owner_count && ledger->owners[owner].mapping == mapping; owner++) {
            rb_hash_aset(rows, rb_str_intern(row_path(ledger->owners[owner].row)),
                         ULL2NUM(ledger->owners[owner].bytes));
            resident_bytes += ledger->owners[owner].bytes;
        }
        rb_ary_push(list, memscope_hash_add(mapping_hash(mapping, resident_bytes), {"rows", rows}));
    }
    return list;
}
