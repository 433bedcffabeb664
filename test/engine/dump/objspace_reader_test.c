#include "dump/objspace_graph.h"

#include "dump/objspace_line.h"

#include "../expect.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

static const char *const lines[] = {
    "{\"type\":\"ROOT\", \"root\":\"vm\", \"references\":[\"0x1000\", \"0x1028\", \"0x1028\"]}\n",
    "{\"type\":\"ROOT\", \"root\":\"global_tbl\", \"references\":[\"0x1050\"]}\n",
    "{\"type\":\"ROOT\", \"root\":\"vm\", \"references\":[\"0x1078\", \"0xdead\"]}\n",
    "{\"address\":\"0x1000\", \"type\":\"CLASS\", \"class\":\"0x10a0\", \"name\":\"BasicObject\", \"memsize\":100}\n",
    "{\"address\":\"0x1028\", \"type\":\"CLASS\", \"class\":\"0x10a0\", \"superclass\":\"0x1000\", "
    "\"name\":\"Caf\\u00e9\\\"\", \"references\":[\"0x1000\", \"0x1000\"], \"memsize\":200}\n",
    /* The string looks like a line's end and like another field. */
    "{\"address\":\"0x1050\", \"type\":\"STRING\", \"slot_size\":40, \"class\":\"0x10c8\", \"embedded\":true, "
    "\"value\":\"\\\"}, \\\\\\\"memsize\\\":9, [{\", \"memsize\":40, \"flags\":{\"wb_protected\":true, "
    "\"old\":true}}\n",
    "{\"address\":\"0x1078\", \"type\":\"IMEMO\", \"class\":\"0x1028\", \"imemo_type\":\"env\", "
    "\"references\":[\"0x1050\"], \"memsize\":4294967296}\n",
    /* A singleton class, then an anonymous subclass of Café", whose instance is the STRING. */
    "{\"address\":\"0x10a0\", \"type\":\"CLASS\", \"superclass\":\"0x1028\", \"singleton\":true, "
    "\"real_class_name\":\"Class\", \"memsize\":80}\n",
    "{\"address\":\"0x10c8\", \"type\":\"CLASS\", \"class\":\"0x10a0\", \"superclass\":\"0x1028\", \"unknown\":[{}, "
    "\"x\", null, -1.5e3], \"memsize\":80}\n",
    "{\"address\":\"0x10f0\", \"type\":\"SHAPE\", \"id\":1, \"edges\":3, \"memsize\":24}\n",
    "{\"address\":\"0x1118\", \"type\":\"ARRAY\", \"class\":null, \"references\":[], \"memsize\":40}\n",
};

#define LINES (sizeof lines / sizeof *lines)
#define OBJECTS 7

static int write_file(const char *text, size_t length) {
    int file = open("dump", O_RDWR | O_CREAT | O_TRUNC, 0600);

    EXPECT(file >= 0 && write(file, text, length) == (ssize_t)length && lseek(file, 0, SEEK_SET) == 0);
    return file;
}

static size_t join(char *into) {
    size_t length = 0;

    for (size_t line = 0; line < LINES; line++) {
        strcpy(into + length, lines[line]);
        length += strlen(lines[line]);
    }
    return length;
}

struct reading {
    struct memscope_objspace_reader reader;
    enum memscope_status status;
};

static void read_text(struct reading *reading, const char *text, size_t length) {
    int file = write_file(text, length);

    EXPECT(memscope_objspace_reader_open(&reading->reader, file) == MEMSCOPE_OK);
    reading->reader.is_converted = true;
    while (memscope_objspace_reader_continue(&reading->reader))
        continue;
    reading->status = memscope_objspace_graph_make(&reading->reader);
    close(file);
}

static bool is_named(const struct reading *reading, uint32_t name, const char *expected) {
    return memscope_text_is(memscope_names_get(&reading->reader.graph.names, name), expected);
}

static bool has_edges(const struct reading *reading, uint32_t node, uint32_t count, const uint32_t *edges) {
    uint32_t first = reading->reader.graph.first_edge[node];

    return reading->reader.graph.first_edge[node + 1] - first == count &&
           (count == 0 || memcmp(reading->reader.graph.edges + first, edges, count * sizeof *edges) == 0);
}

#define EDGES(...) sizeof((uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t), ((uint32_t[]){__VA_ARGS__})

static void reads_what_ruby_writes(void) {
    static const char *const labels[OBJECTS] = {
        "Class", "Class", "Caf\xc3\xa9\" (anonymous subclass)", "imemo_env", "T_CLASS", "Class", "T_ARRAY"};
    static const uint8_t types[OBJECTS] = {2, 2, 5, 0x1a, 2, 2, 7};
    struct reading reading;
    char text[8192];

    read_text(&reading, text, join(text));
    EXPECT(reading.status == MEMSCOPE_OK && reading.reader.graph.object_count == OBJECTS);
    EXPECT(reading.reader.graph.slot_count == OBJECTS && reading.reader.graph.node_count == OBJECTS + 3);
    EXPECT(memcmp(reading.reader.graph.type, types, OBJECTS) == 0);
    for (uint32_t node = 0; node < OBJECTS; node++)
        EXPECT(is_named(&reading, reading.reader.graph.node_class[node], labels[node]));
    EXPECT(reading.reader.graph.bytes[1] == 200 && reading.reader.graph.bytes[3] == UINT32_MAX);
    EXPECT(reading.reader.graph.slot_bytes[2] == 40 && reading.reader.graph.slot_bytes[0] == 0);
    EXPECT(!reading.reader.truncated && reading.reader.unreadable_lines == 0 && reading.reader.missing_references == 1);
    memscope_objspace_reader_close(&reading.reader);
}

static void finds_edges(void) {
    struct reading reading;
    char text[8192];

    read_text(&reading, text, join(text));
    EXPECT(has_edges(&reading, 0, EDGES(4)));
    EXPECT(has_edges(&reading, 1, EDGES(0, 4))); /* once each, the class last */
    EXPECT(has_edges(&reading, 2, EDGES(5)));
    EXPECT(has_edges(&reading, 3, EDGES(2, 1)));
    EXPECT(has_edges(&reading, 6, 0, NULL));
    EXPECT(has_edges(&reading, 7, EDGES(0, 1, 3))); /* vm, from both of its lines */
    EXPECT(has_edges(&reading, 8, EDGES(2)));
    EXPECT(has_edges(&reading, 9, EDGES(7, 8)));
    EXPECT(strcmp(reading.reader.graph.categories[0], "vm") == 0 &&
           strcmp(reading.reader.graph.categories[1], "global_tbl") == 0);
    EXPECT(reading.reader.graph.edge_names[0] == MEMSCOPE_EDGE_CLASS);
    EXPECT(reading.reader.graph.edge_names[reading.reader.graph.first_edge[3] + 1] ==
           MEMSCOPE_EDGE_INTERNAL); /* no class of an imemo */
    EXPECT(reading.reader.graph.edge_count == reading.reader.graph.first_edge[reading.reader.graph.node_count]);
    memscope_objspace_reader_close(&reading.reader);
}

static void numbers_slots_and_names_modules(void) {
    struct reading reading;
    char text[8192];

    read_text(&reading, text, join(text));
    EXPECT(reading.reader.dump.ids != NULL && reading.reader.dump.ids[0] == 1 && reading.reader.dump.ids[1] == 3);
    EXPECT(reading.reader.dump.ids[2] == 2 * (0x50 / 32) + 1);
    EXPECT(reading.reader.dump.module_count == 4);
    EXPECT(is_named(&reading, memscope_heap_dump_module(&reading.reader.dump, 1)->name, "Caf\xc3\xa9\""));
    EXPECT(memscope_heap_dump_module(&reading.reader.dump, 4)->singleton);
    EXPECT(memscope_heap_dump_module(&reading.reader.dump, 2) == NULL);
    memscope_objspace_reader_close(&reading.reader);
}

/* Wherever the file is cut, the lines that are whole are read. */
static void tolerates_a_cut(void) {
    char text[8192];
    size_t length = join(text);

    for (size_t cut = 0; cut < length; cut += 3) {
        struct reading reading;
        bool between = cut == 0 || text[cut - 1] == '\n';

        read_text(&reading, text, cut);
        EXPECT(reading.reader.bytes == cut && reading.reader.unreadable_lines == 0);
        EXPECT(reading.reader.truncated == (!between && text[cut] != '\n'));
        EXPECT(reading.status == (reading.reader.object_count > 0 ? MEMSCOPE_OK : MEMSCOPE_MALFORMED));
        memscope_objspace_reader_close(&reading.reader);
    }
}

static void leaves_out_what_it_cannot_understand(void) {
    static const char damaged[] =
        "no JSON\n\n{\"address\":\"0x8\",\"type\":\"STRING\"\n{\"address\":\"8\",\"type\":\"STRING\"}\n"
        "{\"address\":\"0x\",\"type\":\"STRING\"}\n{\"address\":\"0x12345678901234567\",\"type\":\"STRING\"}\n"
        "{\"address\":\"0x10\",\"type\":\"STRING\",\"references\":[\"0x8\" \"]}\n"
        "{\"address\":\"0x18\",\"type\":\"NEW\",\"memsize\":1}\n{\"type\":\"STRING\"}\n[1]\n\\\n\"\n";
    struct reading reading;

    read_text(&reading, damaged, sizeof damaged - 1);
    EXPECT(reading.status == MEMSCOPE_OK && reading.reader.graph.object_count == 1);
    EXPECT(reading.reader.graph.type[0] == MEMSCOPE_OBJSPACE_UNKNOWN_TYPE);
    EXPECT(reading.reader.unreadable_lines == 9 && !reading.reader.truncated);
    memscope_objspace_reader_close(&reading.reader);
}

/* A crash, or a full disk, can leave a file whose end is zeros: they are looked at once. */
static void reads_zeros_once(void) {
    enum { ZEROS = 8 << 20 };

    char *text = calloc(1, 8192 + ZEROS);
    size_t length = join(text);
    struct reading reading;

    memcpy(text + length, "{\"method\":\"", 11);
    alarm(30); /* kills a reader that searches backwards from each zero */
    read_text(&reading, text, length + ZEROS);
    alarm(0);
    EXPECT(reading.status == MEMSCOPE_OK && reading.reader.truncated);
    memscope_objspace_reader_close(&reading.reader);
    free(text);
}

/* More names than there was room for: the graph's arrays of them move. */
static void keeps_names_that_are_added(void) {
    struct reading reading;
    char text[8192], name[16];

    read_text(&reading, text, join(text));
    for (int added = 0; added < 20000; added++)
        memscope_names_add(&reading.reader.graph.names, name, (size_t)sprintf(name, "added%d", added));
    EXPECT(is_named(&reading, reading.reader.graph.node_class[3], "imemo_env") &&
           reading.reader.graph.names.count > 20000);
    memscope_objspace_reader_close(&reading.reader);
    EXPECT(reading.reader.graph.names.text == NULL);
    memscope_objspace_reader_close(&reading.reader);
}

/* A line that is longer than what is read at a time. */
static void reads_a_long_line(void) {
    static char text[3 << 20];
    size_t length = (size_t)sprintf(text, "{\"address\":\"0x8\", \"type\":\"ARRAY\", \"references\":[\"0x8\"");
    struct reading reading;

    while (length < sizeof text - 64)
        length += (size_t)sprintf(text + length, ", \"0x%zx\"", length);
    length += (size_t)sprintf(text + length, "], \"memsize\":7}\n");
    read_text(&reading, text, length);
    EXPECT(reading.status == MEMSCOPE_OK && reading.reader.graph.object_count == 1 &&
           reading.reader.graph.bytes[0] == 7);
    EXPECT(has_edges(&reading, 0, EDGES(0)) && reading.reader.missing_references > 200000);
    memscope_objspace_reader_close(&reading.reader);
}

/* Objects of two pages by turns, in descending order, one address twice, and a reference to no object, 0x2004. */
static void finds_objects_in_any_order(void) {
    static const char text[] = "{\"address\":\"0x3010\", \"type\":\"ARRAY\", \"references\":[\"0x2000\", \"0x2004\"]}\n"
                               "{\"address\":\"0x2008\", \"type\":\"ARRAY\", \"references\":[\"0x3008\"]}\n"
                               "{\"address\":\"0x3008\", \"type\":\"ARRAY\", \"references\":[\"0x3010\"]}\n"
                               "{\"address\":\"0x2000\", \"type\":\"ARRAY\", \"references\":[\"0x2008\"]}\n"
                               "{\"address\":\"0x2008\", \"type\":\"ARRAY\", \"references\":[\"0x3010\"]}\n";
    struct reading reading;

    read_text(&reading, text, sizeof text - 1);
    EXPECT(reading.status == MEMSCOPE_OK && reading.reader.graph.object_count == 5);
    EXPECT(reading.reader.missing_references == 1);
    EXPECT(has_edges(&reading, 0, EDGES(3)) && has_edges(&reading, 1, EDGES(2)) && has_edges(&reading, 2, EDGES(0)));
    EXPECT(has_edges(&reading, 3, EDGES(1)) && has_edges(&reading, 4, EDGES(0)));
    memscope_objspace_reader_close(&reading.reader);
}

/* Slots of 20 bytes, as in a 32-bit Ruby, larger ones, and odd addresses; across the borders of chunks. */
static void finds_objects_at_any_step(void) {
    static const unsigned steps[] = {20, 640, 4096, 1 << 20, 1};

    for (size_t step = 0; step < sizeof steps / sizeof *steps; step++) {
        static char text[100000];
        struct reading reading;
        size_t length = 0;

        for (unsigned number = 1; number <= 200; number++)
            length += (size_t)sprintf(
                text + length, "{\"address\":\"0x%x\", \"type\":\"ARRAY\", \"references\":[\"0x%x\", \"0x%x\"]}\n",
                number * steps[step], (number % 200 + 1) * steps[step], 201 * steps[step]);
        read_text(&reading, text, length);
        EXPECT(reading.status == MEMSCOPE_OK && reading.reader.missing_references == 200);
        for (uint32_t node = 0; node < 200; node++)
            EXPECT(has_edges(&reading, node, EDGES((node + 1) % 200)));
        memscope_objspace_reader_close(&reading.reader);
    }
}

static void reads_a_pipe_and_says_what_fails(void) {
    struct memscope_objspace_reader reader;
    int ends[2];

    EXPECT(pipe(ends) == 0 && write(ends[1], lines[3], strlen(lines[3])) > 0);
    close(ends[1]);
    EXPECT(memscope_objspace_reader_open(&reader, ends[0]) == MEMSCOPE_OK);
    while (memscope_objspace_reader_continue(&reader))
        continue;
    EXPECT(reader.status == MEMSCOPE_OK && reader.object_count == 1);
    memscope_objspace_reader_close(&reader);
    close(ends[0]);
    EXPECT(memscope_objspace_reader_open(&reader, ends[0]) == MEMSCOPE_OK);
    EXPECT(!memscope_objspace_reader_continue(&reader) && reader.status == MEMSCOPE_IO);
    memscope_objspace_reader_close(&reader);
    memscope_objspace_reader_close(&reader);
}

/* The arrays by node have room for the nodes of roots, even if each line comes alone, as from a slow pipe. */
static void has_room_for_the_nodes_of_roots(void) {
    enum { ROOTS = 30, MOST_OBJECTS = 40 };

    for (uint32_t objects = 1; objects <= MOST_OBJECTS; objects++) {
        struct reading reading;
        char line[64];
        int ends[2];

        EXPECT(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0);
        for (uint32_t number = 0; number < ROOTS + objects; number++) {
            int length = number < ROOTS
                             ? sprintf(line, "{\"type\":\"ROOT\", \"root\":\"%u\", \"references\":[\"0x%x\"]}\n",
                                       number, 40 * ROOTS)
                             : sprintf(line, "{\"address\":\"0x%x\", \"type\":\"STRING\"}\n", 40 * number);

            EXPECT(write(ends[1], line, (size_t)length) == length);
        }
        close(ends[1]);
        EXPECT(memscope_objspace_reader_open(&reading.reader, ends[0]) == MEMSCOPE_OK);
        while (memscope_objspace_reader_continue(&reading.reader))
            continue;
        EXPECT(memscope_objspace_graph_make(&reading.reader) == MEMSCOPE_OK);
        EXPECT(reading.reader.graph.node_count == objects + ROOTS + 1);
        for (uint32_t node = objects; node < reading.reader.graph.node_count; node++)
            EXPECT(reading.reader.graph.type[node] == 0 && reading.reader.graph.bytes[node] == 0);
        memscope_objspace_reader_close(&reading.reader);
        close(ends[0]);
    }
}

/* Each end of a line, with the padding, before a page that cannot be read. */
static void reads_no_more_than_the_padding(void) {
    static const char *const given[] = {"{\"address\":\"0x1000\", \"type\":\"STRING\", \"value\":\"x\"}\n",
                                        "{\"address\":\"0x1000\", \"type\":\"STRING\"}\n", "{\"address\":\"0x1000\"}\n",
                                        "{\"memsize\":40}\n"};
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    EXPECT(pages != MAP_FAILED && mprotect(pages + page, page, PROT_NONE) == 0);
    for (size_t index = 0; index < sizeof given / sizeof *given; index++) {
        size_t length = strlen(given[index]);
        char *text = memcpy(pages + page - MEMSCOPE_OBJSPACE_PADDING - length, given[index], length);
        struct memscope_objspace_line line;
        uint64_t references[20];

        EXPECT(memscope_objspace_line_read(text, &line, references) != NULL);
    }
    munmap(pages, 2 * page);
}

int main(void) {
    reads_what_ruby_writes();
    finds_edges();
    numbers_slots_and_names_modules();
    tolerates_a_cut();
    leaves_out_what_it_cannot_understand();
    reads_zeros_once();
    keeps_names_that_are_added();
    reads_a_long_line();
    finds_objects_in_any_order();
    finds_objects_at_any_step();
    reads_a_pipe_and_says_what_fails();
    has_room_for_the_nodes_of_roots();
    reads_no_more_than_the_padding();
    return 0;
}
