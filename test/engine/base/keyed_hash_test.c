#include "../expect.h"
#include "base/keyed_hash.h"

#include <string.h>

/* What OpenBSD's SipHash24_1_3 and Rust's SipHasher13 return for the bytes 0, 1, 2, … under the key 0, 1, …, 15. */
static void test_is_siphash_1_3(void) {
    static const uint64_t expected[] = {0xabac0158050fc4dc, 0xc9f49bf37d57ca93, 0x82cb9b024dc7d44d, 0x8bf80ab8e7ddf7fb,
                                        0xcf75576088d38328, 0xdef9d52f49533b67, 0xc50d2b50c59f22a7, 0xd3927d989bb11140,
                                        0x369095118d299a8e, 0x25a48eb36c063de4};
    struct memscope_hash_key key = {{0x0706050403020100, 0x0f0e0d0c0b0a0908}};
    unsigned char bytes[sizeof expected / sizeof *expected];

    for (size_t size = 0; size < sizeof expected / sizeof *expected; size++) {
        EXPECT(memscope_keyed_hash(&key, bytes, size) == expected[size]);
        bytes[size] = (unsigned char)size;
    }
}

static void test_draws_another_key_each_time(void) {
    struct memscope_hash_key one = {{0}}, other = {{0}};

    memscope_hash_key_draw(&one);
    memscope_hash_key_draw(&other);
    EXPECT(memcmp(&one, &other, sizeof one) != 0);
    EXPECT(memscope_keyed_hash(&one, "name", 4) != memscope_keyed_hash(&other, "name", 4));
}

int main(void) {
    test_is_siphash_1_3();
    test_draws_another_key_each_time();
    return 0;
}
