#include "../expect.h"
#include "base/mapped_array.h"

#include <stdint.h>
#include <string.h>

static void test_grows_and_keeps(void) {
    uint32_t *array = memscope_array_map(1000, sizeof *array);

    EXPECT(array != NULL && (uintptr_t)array % 64 == 0);
    for (uint32_t index = 0; index < 1000; index++) {
        EXPECT(array[index] == 0);
        array[index] = index;
    }
    for (size_t count = 2000; count < 4u << 20; count *= 2) {
        array = memscope_array_grow(array, count, sizeof *array);
        EXPECT(array != NULL && array[999] == 999 && array[1000] == 0 && array[count - 1] == 0);
    }
    EXPECT(memscope_array_grow(array, 10, sizeof *array) == array);
    EXPECT(memscope_array_grow(array, SIZE_MAX / 2, sizeof *array) == NULL && array[999] == 999);
    memscope_array_unmap(array);
}

static void test_refuses_what_cannot_be(void) {
    EXPECT(memscope_array_map(SIZE_MAX, 1) == NULL);
    EXPECT(memscope_array_map(SIZE_MAX / 4, 8) == NULL);
    memscope_array_unmap(NULL);
    memscope_array_unmap(memscope_array_map(0, 4));
}

int main(void) {
    test_grows_and_keeps();
    test_refuses_what_cannot_be();
    return 0;
}
