#include "../expect.h"
#include "malloc/mallinfo.h"

int main(void) {
    struct memscope_mallinfo before, after;
    void *block, *volatile first = malloc(1); /* before its first malloc, glibc reports only zeros */

    if (memscope_mallinfo_read(&before) == MEMSCOPE_UNSUPPORTED)
        SKIP("no mallinfo2 here");
    block = malloc(1000000);
    EXPECT(block);
    EXPECT(memscope_mallinfo_read(&after) == MEMSCOPE_OK);
    EXPECT(after.uordblks + after.hblkhd >= before.uordblks + before.hblkhd + 1000000);
    free(block);
    free(first);
    return 0;
}
