// A ReLU network with two hidden layers of one width on a block of elements, feature-major: a vector register holds one
// feature, or one neuron, of VEC elements; a register tile is HIDDEN_TILE neurons of UNROLL vectors.
#pragma once
#include "features.h"

#ifndef HIDDEN       // width of both hidden layers
#define HIDDEN 32
#endif
#ifndef VEC          // floats per vector operation
#ifdef __AVX512F__
#define VEC 16
#else
#define VEC 8
#endif
#endif
#ifndef UNROLL       // vectors of elements per register tile
#define UNROLL 2
#endif
#ifndef HIDDEN_TILE  // neurons per register tile
#define HIDDEN_TILE 4
#endif
#ifndef FUSE_OUTPUT  // 1: the output layer is taken from registers, the second hidden layer is never stored
#define FUSE_OUTPUT 1
#endif
#ifndef LOOP_ORDER   // 0: neurons outermost (weights stay), 1: elements outermost (activations stay)
#define LOOP_ORDER 0
#endif
static_assert(BLOCK % (VEC * UNROLL) == 0, "a block is whole register tiles");
static_assert(PANEL % BLOCK == 0, "a panel is whole blocks");
static_assert(HIDDEN % HIDDEN_TILE == 0, "a hidden layer is whole register tiles");

namespace lopt {
namespace {

typedef float vec __attribute__((vector_size(4 * VEC), aligned(4), may_alias));

inline vec load(const float* x) { return *reinterpret_cast<const vec*>(x); }
inline void store(float* x, vec v) { *reinterpret_cast<vec*>(x) = v; }
inline vec broadcast(float x) { return x - vec{}; }
inline vec relu(vec x) { return vec{} > x ? vec{} : x; }  // keeps NaN

// Activations of one block.
struct Activations {
    alignas(64) float start[HIDDEN][BLOCK];  // what the first layer begins with, where that differs within the block
    alignas(64) float hidden1[HIDDEN][BLOCK];
    alignas(64) float hidden2[HIDDEN][BLOCK];
    alignas(64) float output[2][BLOCK];
};

// The layers after the first; matrices are (in, out), the last (out, in).
struct Tail {
    const float *hidden, *bias2, *output, *bias3;
    explicit Tail(const float* w)
        : hidden(w), bias2(hidden + HIDDEN * HIDDEN), output(bias2 + HIDDEN), bias3(output + 2 * HIDDEN) {}
};
constexpr int TAIL_SIZE = HIDDEN * HIDDEN + HIDDEN + 2 * HIDDEN + 2;

// One register tile of relu(start + w in), K inputs: neurons n.., elements j... `start` gives the first value, `finish` takes
// HIDDEN_TILE neurons of VEC elements.
template <int K, class Start, class Finish>
inline void tile(const float* w, const float (*in)[BLOCK], int n, int j, Start start, Finish finish) {
    vec acc[HIDDEN_TILE][UNROLL];
#pragma GCC unroll 16
    for (int h = 0; h < HIDDEN_TILE; ++h)
#pragma GCC unroll 4
        for (int u = 0; u < UNROLL; ++u) acc[h][u] = start(n + h, j + u * VEC);
#pragma GCC unroll 2
    for (int k = 0; k < K; ++k) {
        vec x[UNROLL];
#pragma GCC unroll 4
        for (int u = 0; u < UNROLL; ++u) x[u] = load(&in[k][j + u * VEC]);
#pragma GCC unroll 16
        for (int h = 0; h < HIDDEN_TILE; ++h) {
            const float weight = w[k * HIDDEN + n + h];
#pragma GCC unroll 4
            for (int u = 0; u < UNROLL; ++u) acc[h][u] += weight * x[u];
        }
    }
#pragma GCC unroll 4
    for (int u = 0; u < UNROLL; ++u) {
        vec neurons[HIDDEN_TILE];
#pragma GCC unroll 16
        for (int h = 0; h < HIDDEN_TILE; ++h) neurons[h] = relu(acc[h][u]);
        finish(n, j + u * VEC, neurons);
    }
}

// All neurons of the first `count` elements (rounded up to whole register tiles).
template <int K, class Start, class Finish>
inline void layer(const float* w, const float (*in)[BLOCK], int count, Start start, Finish finish) {
#if LOOP_ORDER == 0
    for (int n = 0; n < HIDDEN; n += HIDDEN_TILE)
        for (int j = 0; j < count; j += VEC * UNROLL) tile<K>(w, in, n, j, start, finish);
#else
    for (int j = 0; j < count; j += VEC * UNROLL)
        for (int n = 0; n < HIDDEN; n += HIDDEN_TILE) tile<K>(w, in, n, j, start, finish);
#endif
}

// Adds HIDDEN_TILE neurons' share to both outputs of VEC elements.
inline void add_outputs(const Tail& tail, Activations& a, int n, int j, const vec* neurons) {
    vec o0 = n == 0 ? broadcast(tail.bias3[0]) : load(&a.output[0][j]);
    vec o1 = n == 0 ? broadcast(tail.bias3[1]) : load(&a.output[1][j]);
#pragma GCC unroll 16
    for (int h = 0; h < HIDDEN_TILE; ++h) {
        o0 += tail.output[n + h] * neurons[h];
        o1 += tail.output[HIDDEN + n + h] * neurons[h];
    }
    store(&a.output[0][j], o0);
    store(&a.output[1][j], o1);
}

// hidden1 -> output.
inline void run_tail(const Tail& tail, Activations& a, int count) {
    auto bias = [&](int n, int) { return broadcast(tail.bias2[n]); };
#if FUSE_OUTPUT
    layer<HIDDEN>(tail.hidden, a.hidden1, count, bias, [&](int n, int j, const vec* x) { add_outputs(tail, a, n, j, x); });
#else
    layer<HIDDEN>(tail.hidden, a.hidden1, count, bias, [&](int n, int j, const vec* x) {
        for (int h = 0; h < HIDDEN_TILE; ++h) store(&a.hidden2[n + h][j], x[h]);
    });
    for (int j = 0; j < count; j += VEC)
        for (int n = 0; n < HIDDEN; n += HIDDEN_TILE) {
            vec x[HIDDEN_TILE];
            for (int h = 0; h < HIDDEN_TILE; ++h) x[h] = load(&a.hidden2[n + h][j]);
            add_outputs(tail, a, n, j, x);
        }
#endif
}

// K inputs -> hidden1, on top of what `start` gives.
template <int K, class Start>
inline void run_first(const float* w, const float (*in)[BLOCK], Activations& a, int count, Start start) {
    layer<K>(w, in, count, start, [&](int n, int j, const vec* x) {
#pragma GCC unroll 16
        for (int h = 0; h < HIDDEN_TILE; ++h) store(&a.hidden1[n + h][j], x[h]);
    });
}

// exp(x) to 1-2 units in the last place: Cody-Waite reduction and Cephes' polynomial. glibc's is not vectorised here.
inline float exponential(float x) {
    x = x > 88.0f ? 88.0f : x;
    x = x < -87.0f ? -87.0f : x;
    const float n = (x * 1.44269504f + 12582912.0f) - 12582912.0f;  // round to nearest: 1.5 * 2^23
    const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float y = 1.9875691500e-4f;
    y = y * r + 1.3981999507e-3f;
    y = y * r + 8.3334519073e-3f;
    y = y * r + 4.1665795894e-2f;
    y = y * r + 1.6666665459e-1f;
    y = y * r + 5.0000001201e-1f;
    y = y * r * r + r + 1.0f;
    const int32_t bits = (static_cast<int32_t>(n) + 127) << 23;
    float power;
    std::memcpy(&power, &bits, 4);
    return y * power;
}

}  // namespace
}  // namespace lopt
