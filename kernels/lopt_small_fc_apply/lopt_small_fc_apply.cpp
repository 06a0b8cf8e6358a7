// The apply pass of small_fc_lopt over one tensor: features -> 39-32-32-2 network -> parameter, float32, one core.
//
// What is constant over the tensor has been folded into the weights before (lopt/step/reference.py, `fold`): time
// features into the first bias, the 28 normalisers into the columns of W1, learning rate and multipliers into the last
// layer. Twelve of the 28 features depend on the row or on the column alone. What is left per element, in multiply-adds:
//     16 x 32 (+ 12 x 32 if not SEPARABLE)  +  32 x 32  +  2 x 32
//
// The tensor is seen as (outer, X, mid, Y, Z), contiguous, where X and Y are its factored axes in array order:
//     slow moment: keeps X, drops Y, index ((outer * X + x) * mid + b) * Z + z
//     fast moment: keeps Y, drops X, index ((outer * mid + b) * Y + y) * Z + z
// A matrix is (1, X, 1, Y, 1); a vector is all `fast`. Works on blocks of BLOCK elements whose features and activations
// stay in the first-level cache, feature-major, so that a vector register holds one feature of VEC elements.
//
// Tunable (space.json): BLOCK, VEC, UNROLL, HIDDEN_TILE, SEPARABLE, FUSE_OUTPUT, LOOP_ORDER. HIDDEN is the network's width.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>

#ifndef HIDDEN
#define HIDDEN 32
#endif
#ifndef BLOCK        // elements per block
#define BLOCK 64
#endif
#ifndef VEC          // floats per vector operation
#define VEC 8
#endif
#ifndef UNROLL       // vectors of elements per register tile
#define UNROLL 2
#endif
#ifndef HIDDEN_TILE  // neurons per register tile
#define HIDDEN_TILE 4
#endif
#ifndef SEPARABLE    // 1: a row's and a column's share of layer one are computed once per row and per column
#define SEPARABLE 1
#endif
#ifndef FUSE_OUTPUT  // 1: the output layer is taken from registers, the second hidden layer is never stored
#define FUSE_OUTPUT 1
#endif
#ifndef LOOP_ORDER   // 0: neurons outermost (weights stay), 1: elements outermost (activations stay)
#define LOOP_ORDER 0
#endif
#define PANEL 512    // columns whose share of layer one is held at a time: 64 KiB
static_assert(BLOCK % (VEC * UNROLL) == 0, "a block is whole register tiles");
static_assert(HIDDEN % HIDDEN_TILE == 0, "the hidden layer is whole register tiles");
static_assert(PANEL % BLOCK == 0, "a panel is whole blocks");

namespace {

typedef float vec __attribute__((vector_size(4 * VEC), aligned(4), may_alias));
typedef int64_t index_t;

inline vec load(const float* x) { return *reinterpret_cast<const vec*>(x); }
inline void store(float* x, vec v) { *reinterpret_cast<vec*>(x) = v; }
inline vec relu(vec x) { return x > 0.0f ? x : x - x; }  // x - x keeps NaN

// Weights as `lopt.step.cpu.pack` lays them out; matrices are (inputs, outputs).
struct Net {
    const float *vector, *slow, *fast, *bias1, *hidden, *bias2, *output, *bias3;
    float shrink;  // 1 - learning rate x weight decay
    explicit Net(const float* w)
        : vector(w), slow(vector + 16 * HIDDEN), fast(slow + 6 * HIDDEN), bias1(fast + 6 * HIDDEN), hidden(bias1 + HIDDEN),
          bias2(hidden + HIDDEN * HIDDEN), output(bias2 + HIDDEN), bias3(output + 2 * HIDDEN),
          shrink(bias3[2]) {}
};

// Scratch of one block. With SEPARABLE, inputs 16.. are unused.
struct Scratch {
    alignas(64) float input[28][BLOCK];
    alignas(64) float hidden1[HIDDEN][BLOCK];
    alignas(64) float hidden2[HIDDEN][BLOCK];
    alignas(64) float output[2][BLOCK];
    alignas(64) float columns[HIDDEN][PANEL];
    alignas(64) float scale[6][BLOCK];  // fac_k for g, fac_k for m
};

// A register tile: HIDDEN_TILE neurons x UNROLL vectors, K inputs. START gives the accumulators' first value.
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
        vec column[HIDDEN_TILE];
#pragma GCC unroll 16
        for (int h = 0; h < HIDDEN_TILE; ++h) column[h] = relu(acc[h][u]);
        finish(n, j + u * VEC, column);
    }
}

template <int K, class Start, class Finish>
inline void layer(const float* w, const float (*in)[BLOCK], Start start, Finish finish) {
#if LOOP_ORDER == 0
    for (int n = 0; n < HIDDEN; n += HIDDEN_TILE)
        for (int j = 0; j < BLOCK; j += VEC * UNROLL) tile<K>(w, in, n, j, start, finish);
#else
    for (int j = 0; j < BLOCK; j += VEC * UNROLL)
        for (int n = 0; n < HIDDEN; n += HIDDEN_TILE) tile<K>(w, in, n, j, start, finish);
#endif
}

inline vec broadcast(float x) { return x - vec{}; }

// Adds HIDDEN_TILE neurons' share to both outputs of VEC elements.
inline void add_outputs(const Net& net, Scratch& s, int n, int j, const vec* column) {
    vec o0 = n == 0 ? broadcast(net.bias3[0]) : load(&s.output[0][j]);
    vec o1 = n == 0 ? broadcast(net.bias3[1]) : load(&s.output[1][j]);
#pragma GCC unroll 16
    for (int h = 0; h < HIDDEN_TILE; ++h) {
        o0 += net.output[n + h] * column[h];
        o1 += net.output[HIDDEN + n + h] * column[h];
    }
    store(&s.output[0][j], o0);
    store(&s.output[1][j], o1);
}

// Everything after the first layer: hidden1 -> output.
inline void tail(const Net& net, Scratch& s) {
    auto bias = [&](int n, int) { return broadcast(net.bias2[n]); };
#if FUSE_OUTPUT
    layer<HIDDEN>(net.hidden, s.hidden1, bias, [&](int n, int j, const vec* c) { add_outputs(net, s, n, j, c); });
#else
    layer<HIDDEN>(net.hidden, s.hidden1, bias, [&](int n, int j, const vec* c) {
        for (int h = 0; h < HIDDEN_TILE; ++h) store(&s.hidden2[n + h][j], c[h]);
    });
    for (int j = 0; j < BLOCK; j += VEC)
        for (int n = 0; n < HIDDEN; n += HIDDEN_TILE) {
            vec c[HIDDEN_TILE];
            for (int h = 0; h < HIDDEN_TILE; ++h) c[h] = load(&s.hidden2[n + h][j]);
            add_outputs(net, s, n, j, c);
        }
#endif
}

template <int K, class Start>
inline void run_network(const Net& net, const float* w, Scratch& s, Start start) {
    layer<K>(w, s.input, start, [&](int n, int j, const vec* c) {
#pragma GCC unroll 16
        for (int h = 0; h < HIDDEN_TILE; ++h) store(&s.hidden1[n + h][j], c[h]);
    });
    tail(net, s);
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

struct Tensor {
    const float *p, *g, *m, *v;
    float* out;
    index_t m_stride;
};

// The 16 features that vary with every element, from s.scale.
inline void vector_features(const Tensor& t, index_t e, int count, Scratch& s) {
    const float *p = t.p + e, *g = t.g + e, *v = t.v + e;
    for (int i = 0; i < count; ++i) {
        const float r = 1.0f / __builtin_sqrtf(v[i] + 1e-6f);
        s.input[0][i] = g[i];
        s.input[1][i] = p[i];
        s.input[5][i] = v[i];
        s.input[9][i] = r;
    }
    for (int k = 0; k < 3; ++k) {
        const float* m = t.m + k * t.m_stride + e;
        for (int i = 0; i < count; ++i) {
            s.input[2 + k][i] = m[i];
            s.input[6 + k][i] = m[i] * s.input[9][i];
            s.input[10 + k][i] = g[i] * s.scale[k][i];
            s.input[13 + k][i] = m[i] * s.scale[3 + k][i];
        }
    }
}

inline void write(const Tensor& t, const Net& net, index_t e, int count, const Scratch& s) {
    for (int i = 0; i < count; ++i)
        t.out[e + i] = net.shrink * t.p[e + i] - s.output[0][i] * exponential(s.output[1][i]);
}

// Any tensor: consecutive elements, cut where the row changes; all 28 inputs are laid out.
void run_dense(const Tensor& t, const Net& net, const float* slow, const float* fast, index_t outer, index_t x_size,
               index_t mid, index_t run, index_t z_size, Scratch& s) {
    const index_t slow_size = outer * x_size * mid * z_size, fast_size = outer * mid * run;
    const index_t total = outer * x_size * mid * run;
    for (index_t e = 0; e < total; e += BLOCK) {
        const int count = static_cast<int>(std::min<index_t>(BLOCK, total - e));
        for (int i = 0; i < count;) {
            const index_t row = (e + i) / run, at = (e + i) % run;  // row = (a * x_size + x) * mid + b
            const int piece = static_cast<int>(std::min<index_t>(count - i, run - at));
            const float* f = fast + (row / (x_size * mid) * mid + row % mid) * run + at;
            const float* w = slow + row * z_size;
            for (int k = 0; k < 3; ++k)
                for (int q = 0; q < piece; ++q) {
                    const float keep = w[k * slow_size + (z_size == 1 ? 0 : (at + q) % z_size)];
                    s.scale[k][i + q] = keep * f[k * fast_size + q];
                    s.scale[3 + k][i + q] = keep * f[(3 + k) * fast_size + q];
                }
            for (int k = 0; k < 6; ++k)
                for (int q = 0; q < piece; ++q) {
                    s.input[16 + k][i + q] = w[(3 + k) * slow_size + (z_size == 1 ? 0 : (at + q) % z_size)];
                    s.input[22 + k][i + q] = f[(6 + k) * fast_size + q];
                }
            i += piece;
        }
        vector_features(t, e, count, s);
        run_network<28>(net, net.vector, s, [&](int n, int) { return broadcast(net.bias1[n]); });
        write(t, net, e, count, s);
    }
}

// One row's piece of a panel, layer one of 16 inputs on top of the column's and the row's share.
inline void run_row(const Tensor& t, const Net& net, const float* slow, index_t slow_size, const float* fast,
                    index_t fast_size, index_t e, int width, Scratch& s) {
    float row[HIDDEN];
    for (int n = 0; n < HIDDEN; ++n) {
        row[n] = net.bias1[n];
        for (int k = 0; k < 6; ++k) row[n] += net.slow[k * HIDDEN + n] * slow[(3 + k) * slow_size];
    }
    for (int c = 0; c < width; c += BLOCK) {
        const int count = std::min(BLOCK, width - c);
        for (int k = 0; k < 3; ++k)
            for (int i = 0; i < count; ++i) {
                s.scale[k][i] = slow[k * slow_size] * fast[k * fast_size + c + i];
                s.scale[3 + k][i] = slow[k * slow_size] * fast[(3 + k) * fast_size + c + i];
            }
        vector_features(t, e + c, count, s);
        run_network<16>(net, net.vector, s, [&](int n, int j) { return load(&s.columns[n][c + j]) + row[n]; });
        write(t, net, e + c, count, s);
    }
}

// Long rows of a tensor with Z = 1: panels of columns, then rows.
void run_separable(const Tensor& t, const Net& net, const float* slow, const float* fast, index_t outer, index_t x_size,
                   index_t mid, index_t run, Scratch& s) {
    const index_t slow_size = outer * x_size * mid, fast_size = outer * mid * run;
    for (index_t ab = 0; ab < outer * mid; ++ab)
        for (index_t panel = 0; panel < run; panel += PANEL) {
            const int width = static_cast<int>(std::min<index_t>(PANEL, run - panel));
            const float* f = fast + ab * run + panel;
            for (int n = 0; n < HIDDEN; ++n)
                for (int c = 0; c < width; ++c) {
                    float sum = 0.0f;
                    for (int k = 0; k < 6; ++k) sum += net.fast[k * HIDDEN + n] * f[(6 + k) * fast_size + c];
                    s.columns[n][c] = sum;
                }
            for (index_t x = 0; x < x_size; ++x) {
                const index_t row = (ab / mid * x_size + x) * mid + ab % mid;
                run_row(t, net, slow + row, slow_size, f, fast_size, row * run + panel, width, s);
            }
        }
}

}  // namespace

// p, g, v, out: (n); m: 3 rows m_stride apart; out may be p. slow: (9, slow size): 3 scales, 3 moments, 3 rsqrt of them;
// fast: (12, fast size): 3 scales of g, 3 scales of m, 3 moments, 3 rsqrt. out = shrink p - o_0 exp(o_1). Returns ms.
extern "C" float lopt_small_fc_apply(const float* p, const float* g, const float* m, const float* v, float* out,
                                     const float* slow, const float* fast, const float* weights, int64_t outer,
                                     int64_t x_size, int64_t mid, int64_t y_size, int64_t z_size, int64_t m_stride) {
    const auto start = std::chrono::steady_clock::now();
    static thread_local Scratch scratch;  // zero at first: the tail of a short block is computed and not written
    const Tensor t{p, g, m, v, out, m_stride};
    const Net net(weights);
    const index_t run = y_size * z_size;
    const bool whole_blocks = run % BLOCK == 0 || run >= 8 * BLOCK;  // else too much of each row would be padding
    if (SEPARABLE && z_size == 1 && whole_blocks && x_size > 1)
        run_separable(t, net, slow, fast, outer, x_size, mid, run, scratch);
    else
        run_dense(t, net, slow, fast, outer, x_size, mid, run, z_size, scratch);
    return std::chrono::duration<float, std::milli>(std::chrono::steady_clock::now() - start).count();
}
