/*
 * Values that the processor holds in its vector registers while other processes stop this one.
 */
#include "memscope_test.h"

#include <stdint.h>
#include <string.h>

#define REGISTERS 8
#define BYTES 32

#if defined(__x86_64__)

/* Loads the upper registers, spins with the GVL, and stores them. */
__attribute__((target("avx"))) static void hold_avx(const unsigned char *from, unsigned char *to, long spins) {
    __asm__ volatile("vmovdqu 0(%1), %%ymm8\n\tvmovdqu 32(%1), %%ymm9\n\t"
                     "vmovdqu 64(%1), %%ymm10\n\tvmovdqu 96(%1), %%ymm11\n\t"
                     "vmovdqu 128(%1), %%ymm12\n\tvmovdqu 160(%1), %%ymm13\n\t"
                     "vmovdqu 192(%1), %%ymm14\n\tvmovdqu 224(%1), %%ymm15\n\t"
                     "1: dec %0\n\tjnz 1b\n\t"
                     "vmovdqu %%ymm8, 0(%2)\n\tvmovdqu %%ymm9, 32(%2)\n\t"
                     "vmovdqu %%ymm10, 64(%2)\n\tvmovdqu %%ymm11, 96(%2)\n\t"
                     "vmovdqu %%ymm12, 128(%2)\n\tvmovdqu %%ymm13, 160(%2)\n\t"
                     "vmovdqu %%ymm14, 192(%2)\n\tvmovdqu %%ymm15, 224(%2)\n\tvzeroupper"
                     : "+r"(spins)
                     : "r"(from), "r"(to)
                     : "memory", "cc", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
}

static int can_hold(void) {
    return __builtin_cpu_supports("avx");
}

#else

static void hold_avx(const unsigned char *from, unsigned char *to, long spins) {
    (void)spins;
    memcpy(to, from, (size_t)REGISTERS * BYTES);
}

static int can_hold(void) {
    return 0;
}

#endif

/* Host.vectors_kept?(spins) -> whether the registers were as they should be; true for a processor without AVX. */
static VALUE host_vectors_kept(VALUE self, VALUE spins) {
    unsigned char from[REGISTERS * BYTES], to[REGISTERS * BYTES] = {0};

    if (!can_hold())
        return Qtrue;
    for (size_t index = 0; index < sizeof from; index++)
        from[index] = (unsigned char)(index * 37 + 11);
    hold_avx(from, to, NUM2LONG(spins));
    return memcmp(from, to, sizeof from) == 0 ? Qtrue : Qfalse;
}

void init_vectors(VALUE host) {
    rb_define_singleton_method(host, "vectors_kept?", host_vectors_kept, 1);
}
