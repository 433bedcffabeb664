#include "../expect.h"
#include "graph/names.h"

#include <string.h>

static void expect_name(const struct memscope_names *names, uint32_t number, const char *text) {
    EXPECT(memscope_text_is(memscope_names_get(names, number), text));
}

static void test_keeps_each_once(void) {
    struct memscope_names names;

    EXPECT(memscope_names_open(&names) == MEMSCOPE_OK);
    EXPECT(names.count == 1 && memscope_names_add(&names, "", 0) == 0);
    expect_name(&names, 0, "");
    EXPECT(memscope_names_find(&names, "String", 6) == 0);
    EXPECT(memscope_names_add(&names, "String", 6) == 1);
    EXPECT(memscope_names_add(&names, "Str", 3) == 2);
    EXPECT(memscope_names_add(&names, "ing", 3) == 3);
    EXPECT(memscope_names_add(&names, "Strings", 6) == 1);
    EXPECT(memscope_names_add(&names, "S\0t", 3) == 4 && memscope_names_find(&names, "S", 1) == 0);
    EXPECT(names.count == 5 && memscope_names_find(&names, "ing", 3) == 3);
    expect_name(&names, 1, "String");
    expect_name(&names, 3, "ing");
    expect_name(&names, 5, "");
    memscope_names_close(&names);
    memscope_names_close(&names);
}

static void test_grows(void) {
    static char text[100000];
    struct memscope_names names;
    char name[32];

    memset(text, 'x', sizeof text);
    EXPECT(memscope_names_open(&names) == MEMSCOPE_OK);
    for (uint32_t number = 1; number <= 50000; number++) {
        int length = snprintf(name, sizeof name, "@ivar_%u", number);

        EXPECT(memscope_names_add(&names, name, (size_t)length) == number);
    }
    EXPECT(memscope_names_add(&names, text, sizeof text) == 50001);
    for (uint32_t number = 1; number <= 50000; number++) {
        int length = snprintf(name, sizeof name, "@ivar_%u", number);

        EXPECT(memscope_names_find(&names, name, (size_t)length) == number);
        expect_name(&names, number, name);
    }
    EXPECT(memscope_names_find(&names, text, sizeof text) == 50001);
    memscope_names_close(&names);
}

static void test_copies(void) {
    struct memscope_shared_room room, full;
    struct memscope_names names, copy;

    EXPECT(memscope_names_open(&names) == MEMSCOPE_OK && memscope_shared_room_open(&room) == MEMSCOPE_OK);
    memscope_names_add(&names, "String", 6);
    memscope_names_add(&names, "ing", 3);
    EXPECT(memscope_names_copy(&names, &room, &copy));
    full = (struct memscope_shared_room){.base = room.base, .size = room.used, .used = 16};
    EXPECT(!memscope_names_copy(&names, &full, &copy));
    full.used = 0;
    EXPECT(memscope_names_copy(&names, &full, &copy));
    memscope_names_close(&names);
    expect_name(&copy, 0, "");
    expect_name(&copy, 1, "String");
    expect_name(&copy, 2, "ing");
    expect_name(&copy, 3, "");
    memscope_shared_room_close(&room);
}

int main(void) {
    test_keeps_each_once();
    test_grows();
    test_copies();
    return 0;
}
