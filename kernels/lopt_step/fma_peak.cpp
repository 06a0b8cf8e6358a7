// How many floating-point operations a second one core can do: independent multiply-adds in registers, nothing else.
#include <ctime>

#ifdef __AVX512F__
#define WIDTH 64  // bytes of a vector
#elif defined(__AVX__)
#define WIDTH 32
#else
#define WIDTH 16
#endif
#define CHAINS 12  // enough to cover the latency of two units

typedef float vec __attribute__((vector_size(WIDTH)));

static double cpu_seconds() {
    timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// Operations (two per multiply-add) a second of this thread's CPU time.
extern "C" double lopt_fma_peak(long repetitions) {
    vec sum[CHAINS];
    for (int i = 0; i < CHAINS; ++i) sum[i] = vec{} + static_cast<float>(i);
    vec x = vec{} + 0.999f, y = vec{} + 1e-3f;
    asm volatile("" : "+m"(x), "+m"(y));  // not known at compile time
    const double start = cpu_seconds();
    for (long n = 0; n < repetitions; ++n) {
#pragma GCC unroll 12
        for (int i = 0; i < CHAINS; ++i) sum[i] = sum[i] * x + y;
    }
    const double seconds = cpu_seconds() - start;
    for (int i = 1; i < CHAINS; ++i) sum[0] += sum[i];
    asm volatile("" : : "m"(sum[0]));  // needed, or there would be nothing to do
    return 2.0 * CHAINS * (WIDTH / sizeof(float)) * static_cast<double>(repetitions) / seconds;
}
