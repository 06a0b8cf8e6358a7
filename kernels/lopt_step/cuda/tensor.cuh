// The tensors and tiles of a plan as a block of threads sees them; docs/lopt-plan.md has the formulas of the indices.
#pragma once
#include "device.cuh"

namespace lopt {

// All that a step's launches read and write; lopt/step/cuda.py has the same fields in the same order.
struct Step {
    const int64_t *tensors, *tiles;    // the plan
    int64_t tensor_count, tile_count;
    const float *rates, *decays;       // (T, RATES); (7)
    const float *bias, *network;       // (T, h); (T or 1, K)
    int64_t network_stride;            // floats from a tensor's network to the next: 0 if they share one
    float *partials;                   // scratch of sums
    const int64_t *means_at;           // (T) where a tensor's means lie in `means`
    float *means;                      // mean over c of R, 3 x outer x mid x z a tensor
    double *squares, *moments;         // (tiles, features); (tiles, 9)
    float *mean_square, *statistics;   // (T, features); (T, 9) mean p^2, means of v and m_k, variances of v and m_k
    double bound;                      // clip(g, -bound, bound)
    int64_t replace_nan, processors;   // of the device: a launch has GRID blocks for each
    cudaStream_t stream;
};

// a / b, which are not negative. Numbers that need 64 bits are rare; a call of the general division costs registers even so.
__device__ inline index_t quotient(index_t a, index_t b) {
    if ((a | b) >> 32 == 0) return static_cast<uint32_t>(a) / static_cast<uint32_t>(b);
    index_t q = 0, rest = 0;
#pragma unroll 1
    for (int i = 62; i >= 0; --i) {
        rest = 2 * rest + (a >> i & 1);
        const bool fits = rest >= b;
        rest -= fits ? b : 0;
        q = 2 * q + fits;
    }
    return q;
}

__device__ inline index_t remainder(index_t a, index_t b) { return a - quotient(a, b) * b; }

// N floats that are read and written at once where their address allows it.
template <int N> struct alignas(4 * N) Packet {
    float x[N];
};

template <int N> __device__ inline bool is_packet(const float* at, int count) {
    return count == N && reinterpret_cast<uintptr_t>(at) % (4 * N) == 0;
}

// x <- at[0 .. count), zero beyond.
template <int N> __device__ inline void load(const float* at, int count, float (&x)[N]) {
    if (is_packet<N>(at, count)) {
        const Packet<N> packet = *reinterpret_cast<const Packet<N>*>(at);
        for (int i = 0; i < N; ++i) x[i] = packet.x[i];
    } else {
        for (int i = 0; i < N; ++i) x[i] = i < count ? at[i] : 0.0f;
    }
}

template <int N> __device__ inline void store(float* at, int count, const float (&x)[N]) {
    if (is_packet<N>(at, count)) {
        Packet<N> packet;
        for (int i = 0; i < N; ++i) packet.x[i] = x[i];
        *reinterpret_cast<Packet<N>*>(at) = packet;
    } else {
        for (int i = 0; i < N; ++i)
            if (i < count) at[i] = x[i];
    }
}

__device__ inline float bfloat_to_float(uint16_t bits) {
    const uint32_t wide = static_cast<uint32_t>(bits) << 16;
    float x;
    memcpy(&x, &wide, 4);
    return x;
}

// Rounds to nearest even; NaN stays NaN.
__device__ inline uint16_t float_to_bfloat(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return static_cast<uint16_t>(x == x ? (bits + 0x7fff + (bits >> 16 & 1)) >> 16 : 0x7fc0);
}

// p, g or the output of one tensor: elements by their place in the logical order, whatever strides and type.
struct Elements {
    char* address;
    index_t type;
    const index_t *size, *stride;
    bool contiguous;

    __device__ void open(const index_t* record, int pointer, int type_at, int stride_at) {
        address = reinterpret_cast<char*>(record[pointer]);
        type = record[type_at];
        size = record + plan::SIZE0;
        stride = record + stride_at;
        contiguous = true;
        index_t dense = 1;
        for (int d = plan::DIMS - 1; d >= 0; --d) {
            contiguous = contiguous && (size[d] == 1 || stride[d] == dense);
            dense *= size[d];
        }
    }

    __device__ index_t offset(index_t e) const {
        if (contiguous) return e;
        index_t at = 0;
#pragma unroll 1
        for (int d = plan::DIMS - 1; d >= 0; --d) {  // rare, so kept small: it stands wherever an element is read
            const index_t rest = quotient(e, size[d]);
            at += (e - rest * size[d]) * stride[d];
            e = rest;
        }
        return at;
    }

    __device__ float read(index_t e) const {
        const index_t at = offset(e);
        if (type == plan::FLOAT32) return reinterpret_cast<const float*>(address)[at];
        const uint16_t bits = reinterpret_cast<const uint16_t*>(address)[at];
        return type == plan::BFLOAT16 ? bfloat_to_float(bits) : half_to_float(bits);
    }

    __device__ void write(index_t e, float x) const {
        const index_t at = offset(e);
        if (type == plan::FLOAT32) reinterpret_cast<float*>(address)[at] = x;
        else reinterpret_cast<uint16_t*>(address)[at] = type == plan::BFLOAT16 ? float_to_bfloat(x) : float_to_half(x);
    }

    // x <- elements e .. e + count, zero beyond.
    template <int N> __device__ void read(index_t e, int count, float (&x)[N]) const {
        if (contiguous && type == plan::FLOAT32) return load(reinterpret_cast<const float*>(address) + e, count, x);
        for (int i = 0; i < N; ++i) x[i] = i < count ? read(e + i) : 0.0f;
    }
};

// What is done to a gradient on the way in.
struct GradientRule {
    float scale, bound;
    bool replace_nan, ok;

    __device__ GradientRule(const Step& step, index_t tensor)
        : scale(step.rates[tensor * plan::RATES + plan::GRADIENT_SCALE]), bound(static_cast<float>(step.bound)),
          replace_nan(step.replace_nan != 0), ok(step.rates[tensor * plan::RATES + plan::OK] != 0.0f) {}

    __device__ float operator()(float g) const {
        constexpr float largest = 3.402823466e38f;
        if (replace_nan) g = g != g ? 0.0f : g > largest ? largest : g < -largest ? -largest : g;
        g *= scale;
        g = g > bound ? bound : g < -bound ? -bound : g;  // NaN passes
        return ok ? g : 0.0f;                             // last: the scale may be NaN too
    }
};

// One tensor: (outer, x, mid, y, z), a batch is (outer, mid), a row (batch, x) is `run` long.
struct Tensor {
    index_t numel, outer, x, mid, y, z, run, slow_size, fast_size;
    bool factored, row_is_slow;
    Elements p, g, out;
    float *m, *v, *slow, *fast;  // (3, numel), (numel), (3, slow_size), (3, fast_size); below two dimensions fast is D
    const index_t* record;

    __device__ void open(const index_t* r) {
        record = r;
        numel = r[plan::NUMEL], outer = r[plan::OUTER], x = r[plan::X], mid = r[plan::MID], y = r[plan::Y], z = r[plan::Z];
        run = y * z, slow_size = outer * x * mid * z, fast_size = outer * mid * run;
        factored = r[plan::FLAGS] & plan::FACTORED, row_is_slow = r[plan::FLAGS] & plan::ROW_IS_SLOW;
        p.open(r, plan::P, plan::P_TYPE, plan::P_STRIDE0);
        g.open(r, plan::G, plan::G_TYPE, plan::G_STRIDE0);
        out.open(r, plan::OUT, plan::OUT_TYPE, plan::OUT_STRIDE0);
        m = reinterpret_cast<float*>(r[plan::M]), v = reinterpret_cast<float*>(r[plan::V]);
        slow = reinterpret_cast<float*>(r[plan::SLOW]), fast = reinterpret_cast<float*>(r[plan::FAST]);
    }

    __device__ index_t row(index_t batch, index_t x_at) const {
        if (mid == 1) return batch * x + x_at;
        const index_t o = quotient(batch, mid);
        return (o * x + x_at - o) * mid + batch;
    }
};

struct Tile {
    index_t tensor, batch_from, x_from, j_from, x_piece, j_piece;
    int batches, xs, width;

    __device__ void open(const index_t* t) {
        tensor = t[plan::TENSOR], batch_from = t[plan::BATCH_FROM], x_from = t[plan::X_FROM], j_from = t[plan::J_FROM];
        x_piece = t[plan::X_PIECE], j_piece = t[plan::J_PIECE];
        batches = static_cast<int>(t[plan::BATCH_TO] - batch_from);
        xs = static_cast<int>(t[plan::X_TO] - x_from);
        width = static_cast<int>(t[plan::J_TO] - j_from);
    }
};

// What a block works on. It lies in shared memory, because in every thread's registers it would take a third of them.
struct Work {
    Tile tile;
    Tensor t;

    // To be called by all threads: the i-th tile.
    __device__ void open_tile(const Step& step, index_t i) {
        __syncthreads();
        if (thread_of_block() == 0) {
            tile.open(step.tiles + i * plan::TILE_FIELDS);
            t.open(step.tensors + tile.tensor * plan::FIELDS);
        }
        __syncthreads();
    }

    // The i-th tensor, without a tile.
    __device__ void open_tensor(const Step& step, index_t i) {
        __syncthreads();
        if (thread_of_block() == 0) t.open(step.tensors + i * plan::FIELDS);
        __syncthreads();
    }
};

#ifndef PANEL  // columns of a tile whose factors lie in shared memory at a time
#define PANEL 128
#endif

// Some columns of a tile, of several batches if rows are short. A row of it is cut into pieces of N consecutive elements,
// and a piece i of a batch's row has its columns' factors at `slot(batch, i)`.
template <int N> struct Panel {
    static constexpr int MOST = PANEL / N;
    int batch, batches, j, width, pieces;  // batch and j count from the tile's first

    __device__ int rows(const Tile& tile) const { return batches * tile.xs; }
    __device__ int slot(int batch_at, int piece) const { return (batch_at * pieces + piece) * N; }
    __device__ int slots() const { return batches * pieces * N; }
};

// The panels of a tile, one after the other: visit(panel). `aligned` pieces a row are a multiple of it, where rows are long.
template <int N, class Visit> __device__ inline void for_each_panel(const Tile& tile, int aligned, Visit visit) {
    typedef Panel<N> P;
    const int whole = (tile.width + N - 1) / N;
    if (whole <= P::MOST / 2) {
        const int together = P::MOST / whole;
        for (int b = 0; b < tile.batches; b += together)
            visit(P{b, min(together, tile.batches - b), 0, tile.width, whole});
        return;
    }
    for (int b = 0; b < tile.batches; ++b)
        for (int j = 0; j < tile.width; j += PANEL) {
            const int width = min(PANEL, tile.width - j), pieces = (width + N - 1) / N;
            visit(P{b, 1, j, width, (pieces + aligned - 1) / aligned * aligned});
        }
}

// One piece of a row: which elements, and where their factors are.
template <int N> struct Piece {
    index_t e, slow;  // of its first element; of its row's z = 0
    int z, slot, count;
    index_t batch;

    // Piece `at` of a panel, counting pieces of a row first.
    __device__ Piece(const Tensor& t, const Tile& tile, const Panel<N>& panel, int at) {
        const int row = at / panel.pieces, piece = at % panel.pieces, batch_at = row / tile.xs;
        const index_t j = tile.j_from + panel.j + piece * N;
        batch = tile.batch_from + panel.batch + batch_at;
        const index_t r = t.row(batch, tile.x_from + row % tile.xs);
        e = r * t.run + j;
        slow = r * t.z;
        z = t.z == 1 ? 0 : static_cast<int>(remainder(j, t.z));
        slot = panel.slot(batch_at, piece);
        const int left = panel.width - piece * N;
        count = left < 0 ? 0 : min(left, N);
    }

    // z of element i.
    __device__ index_t z_at(const Tensor& t, int i) const { return t.z == 1 ? 0 : remainder(z + i, t.z); }
};

__device__ inline float ema(float x, float y, float b) { return b * x + (1.0f - b) * y; }

}  // namespace lopt
