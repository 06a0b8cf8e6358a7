// The words of CUDA that this source uses beyond C++, for nvcc; on_cpu.h has the same for a host compiler.
#pragma once
#include "../plan.h"

#ifndef THREADS   // threads of a block
#define THREADS 128
#endif
#ifndef RESIDENT  // blocks that a processor must hold at a time, which bounds a thread's registers
#define RESIDENT 1
#endif

#ifdef __CUDACC__
#define LAUNCH(kernel, blocks, stream, ...) kernel<<<static_cast<unsigned>(blocks), THREADS, 0, stream>>>(__VA_ARGS__)

__device__ inline float half_to_float(uint16_t bits) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
}

__device__ inline uint16_t float_to_half(float x) {
    uint16_t bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}

__device__ inline uint32_t to_tf32(float x) {
    uint32_t bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
    return bits;
}

// C += A B with A (16, 8), B (8, 8); on_cpu.h says which lane has what.
__device__ inline void mma_tf32(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    // volatile: it must not move to where only some lanes of a warp are
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
#else
#include "on_cpu.h"
#endif

namespace lopt {

using plan::index_t;

constexpr int LANES = 32, WARPS = THREADS / LANES;
constexpr unsigned EVERYBODY = 0xffffffffu;
static_assert(THREADS % LANES == 0 && THREADS <= 1024, "a block is whole warps");

__device__ inline int thread_of_block() { return static_cast<int>(threadIdx.x); }
__device__ inline int lane_of_warp() { return thread_of_block() % LANES; }
__device__ inline int warp_of_block() { return thread_of_block() / LANES; }

// The sum over a warp, in every lane, in one order.
__device__ inline double warp_sum(double x) {
    for (int step = LANES / 2; step > 0; step /= 2) x += __shfl_xor_sync(EVERYBODY, x, step);
    return x;
}

// The sums over a block of N values, in one order; after it, every thread may read them from the result.
template <int N> __device__ inline const double* block_sums(const double (&x)[N]) {
    __shared__ double part[WARPS][N], total[N];
    __syncthreads();  // whoever still reads the last result
    for (int i = 0; i < N; ++i) {
        const double sum = warp_sum(x[i]);
        if (lane_of_warp() == 0) part[warp_of_block()][i] = sum;
    }
    __syncthreads();
    for (int i = thread_of_block(); i < N; i += THREADS) {
        double sum = 0.0;
        for (int w = 0; w < WARPS; ++w) sum += part[w][i];
        total[i] = sum;
    }
    __syncthreads();
    return total;
}

}  // namespace lopt
