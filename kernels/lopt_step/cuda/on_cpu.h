// Runs CUDA source on the CPU, so that its indices and its mathematics can be tested where there is no GPU: it proves no speed.
//
// One block runs after another. The threads of a block are fibers of one operating-system thread, each with a stack of its
// own; a fiber gives way at every barrier and collective until all that take part have come. A collective that not all
// lanes of a warp reach, which would be undefined on a GPU, ends the program with a message.
#pragma once
#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#define __global__
#define __device__
#define __shared__ static
#define __launch_bounds__(...)
#define LAUNCH(kernel, blocks, stream, ...) \
    ((void)(stream), on_cpu::run(blocks, THREADS, [&] { kernel(__VA_ARGS__); }))
#define threadIdx on_cpu::thread_index()
#define blockIdx on_cpu::block_index
#define gridDim on_cpu::grid

using std::min;
typedef void* cudaStream_t;
inline int cudaGetLastError() { return 0; }

namespace on_cpu {

struct Index {
    unsigned x;
};

constexpr int WARP = 32, STACK = 1 << 17;

// Everybody waits here until `of` have come.
struct Barrier {
    int waiting = 0;
    long round = 0;
    void wait(int of);
};

struct Warp {
    Barrier barrier;
    alignas(16) unsigned char slot[2][WARP][64];  // two: a fast lane may hand in its next value while a slow one still reads
};

struct Fiber {
    ucontext_t context;  // where it starts
    jmp_buf place;       // where it gave way; unlike swapcontext, a jump makes no system call
    std::unique_ptr<unsigned char[]> stack{new unsigned char[STACK]};
    bool started = false, done = false;

    void go() {
        if (started) _longjmp(place, 1);
        started = true;
        setcontext(&context);
    }
};

inline Index block_index, grid;
inline ucontext_t home;
inline std::vector<Fiber> fibers;
inline std::vector<Warp> warps;
inline Barrier block_barrier;
inline std::function<void()> body;
inline int current = 0, threads = 0;
inline long idle = 0;  // switches since anybody got on

inline Index thread_index() { return {static_cast<unsigned>(current)}; }
inline int lane() { return current % WARP; }

// Let the next fiber run.
inline void yield() {
    if (++idle > 4L * threads * threads + 1000) {
        std::fprintf(stderr, "threads of block %u wait for each other: not all reach a barrier or a collective\n", block_index.x);
        std::abort();
    }
    const int from = current;
    do current = (current + 1) % threads;
    while (fibers[current].done);
    if (current != from && _setjmp(fibers[from].place) == 0) fibers[current].go();
}

inline void Barrier::wait(int of) {
    const long mine = round;
    if (++waiting == of) {
        waiting = 0;
        idle = 0;
        ++round;
    } else {
        while (round == mine) yield();
    }
}

inline void start() {
    body();
    fibers[current].done = true;
    idle = 0;
    for (int i = 0; i < threads; ++i)
        if (!fibers[(current + i) % threads].done) {
            current = (current + i) % threads;
            fibers[current].go();
        }
    setcontext(&home);
}

// The body of a kernel for all threads of all blocks.
inline void run(int64_t blocks, int block_threads, std::function<void()> kernel) {
    body = std::move(kernel);
    threads = block_threads;
    grid = {static_cast<unsigned>(blocks)};
    for (block_index.x = 0; block_index.x < grid.x; ++block_index.x) {
        fibers.resize(threads);
        warps.assign((threads + WARP - 1) / WARP, Warp());
        block_barrier = Barrier();
        for (Fiber& f : fibers) {
            f.started = f.done = false;
            getcontext(&f.context);
            f.context.uc_stack.ss_sp = f.stack.get();
            f.context.uc_stack.ss_size = STACK;
            f.context.uc_link = nullptr;
            makecontext(&f.context, start, 0);
        }
        current = 0;
        idle = 0;
        fibers[0].started = true;
        swapcontext(&home, &fibers[0].context);
    }
}

// Every lane hands in a value; `take(i)` is lane i's.
template <class T> struct Exchanged {
    const Warp& warp;
    int side;
    T take(int i) const {
        T value;
        std::memcpy(&value, warp.slot[side][i], sizeof(T));
        return value;
    }
};

template <class T> Exchanged<T> exchange(const T& value) {
    static_assert(sizeof(T) <= sizeof(Warp::slot[0][0]));
    Warp& w = warps[current / WARP];
    const int side = w.barrier.round % 2;
    std::memcpy(w.slot[side][lane()], &value, sizeof(T));
    w.barrier.wait(WARP);
    return {w, side};
}

}  // namespace on_cpu

inline void __syncthreads() { on_cpu::block_barrier.wait(on_cpu::threads); }
inline void __syncwarp() { on_cpu::warps[on_cpu::current / on_cpu::WARP].barrier.wait(on_cpu::WARP); }

template <class T> T __shfl_xor_sync(unsigned, T value, int mask) {
    return on_cpu::exchange(value).take(on_cpu::lane() ^ mask);
}

inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline float __expf(float x) { return std::exp(x); }

inline float half_to_float(uint16_t bits) {
    _Float16 x;
    std::memcpy(&x, &bits, 2);
    return x;
}

inline uint16_t float_to_half(float x) {
    const _Float16 half = static_cast<_Float16>(x);
    uint16_t bits;
    std::memcpy(&bits, &half, 2);
    return bits;
}

// cvt.rna.tf32.f32: 10 bits of mantissa, ties away from zero; NaN and infinities stay.
inline uint32_t to_tf32(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    return std::isfinite(x) ? (bits + 0x1000) & 0xffffe000 : bits;
}

// mma.sync.m16n8k8, tf32: lane 4 g + t has A (g, t), (g + 8, t), (g, t + 4), (g + 8, t + 4), B (t, g), (t + 4, g), and
// C (g, 2 t), (g, 2 t + 1), (g + 8, 2 t), (g + 8, 2 t + 1).
inline void mma_tf32(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    struct Fragments {
        float a[4], b[2];
    } mine;
    std::memcpy(mine.a, a, 16);
    std::memcpy(&mine.b[0], &b0, 4);
    std::memcpy(&mine.b[1], &b1, 4);
    const auto all = on_cpu::exchange(mine);
    const int g = on_cpu::lane() / 4, t = on_cpu::lane() % 4;
    for (int k = 0; k < 8; ++k) {
        const Fragments row = all.take(4 * g + k % 4);
        for (int j = 0; j < 2; ++j) {
            const float b = all.take(4 * (2 * t + j) + k % 4).b[k / 4];
            c[j] += row.a[2 * (k / 4)] * b;
            c[2 + j] += row.a[2 * (k / 4) + 1] * b;
        }
    }
}
