// Passes 3 and 4: m, v and D of this step, the mean square of every feature, and what VeLO's recurrent network sees.
#pragma once
#include "features.cuh"

#ifndef MEASURE_PIECE  // consecutive elements that a thread takes at a time
#define MEASURE_PIECE 4
#endif

namespace lopt {

// Mean and spread of the values that one thread sees. They are counted from the first of them, so that values which are
// all equal have no spread to the bit, and few bits are lost otherwise.
struct Spread {
    float shift = 0.0f, sum = 0.0f, square = 0.0f;

    __device__ void add(float x, bool first) {
        if (first) shift = x;
        const float d = x - shift;
        sum += d;
        square += d * d;
    }

    __device__ double total(double n) const { return static_cast<double>(shift) * n + sum; }

    // Sum of squared distances from `mean`.
    __device__ double about(double mean, double n) const {
        if (n == 0.0) return 0.0;
        const double own = sum / n, off = shift + own - mean;
        return square - sum * own + n * off * off;
    }
};

template <bool VELO> struct Accumulate {
    typedef Features<VELO> F;
    static constexpr int N = MEASURE_PIECE;

    const Step& step;
    const Tensor& t;
    const Tile& tile;
    const GradientRule rule;
    const Factors factors;
    Columns<N>& columns;
    float vector[F::VECTORS] = {}, factor[2][6] = {};  // sums of squares: of vectors; of slow and fast moments
    int seen = 0;
    float p2 = 0.0f;
    Spread spread[4];  // v, m_k

    __device__ Accumulate(const Step& step_, const Tensor& t_, const Tile& tile_, Columns<N>& columns_)
        : step(step_), t(t_), tile(tile_), rule(step_, tile_.tensor), factors(step_, t_, tile_.tensor), columns(columns_) {}

    __device__ void add_factor(bool fast, float x, int k) {
        factor[fast][k] += x * x;
        factor[fast][3 + k] += moment_rsqrt(x) * moment_rsqrt(x);
    }

    // A slow entry is counted by the tile that has the beginning of its row.
    __device__ void count_slow() {
        if (!t.factored || tile.j_from != 0) return;
        const int z_size = static_cast<int>(t.z), entries = tile.batches * tile.xs * z_size;
        for (int i = thread_of_block(); i < entries; i += THREADS) {
            const int row = i / z_size;
            const index_t r = t.row(tile.batch_from + row / tile.xs, tile.x_from + row % tile.xs);
            for (int k = 0; k < 3; ++k) add_factor(false, t.slow[k * t.slow_size + r * t.z + i % z_size], k);
        }
    }

    // The columns' factors; below two dimensions a column is an element, and its D moves on here.
    __device__ void prepare(const Panel<N>& panel) {
        Columns<N>::for_each(t, tile, panel, [&](int slot, index_t entry, index_t batch, index_t z) {
            if (!t.factored) {
                const float g = rule(t.g.read(entry)), q = g * g + 1e-30f;
                for (int k = 0; k < 3; ++k) {
                    float& d = t.fast[k * t.fast_size + entry];
                    d = ema(d, q, step.decays[4 + k]);
                }
            }
            columns.fill(factors, slot, entry, batch, z, F::DIAG_EPS);
            if (tile.x_from == 0)
                for (int k = 0; k < 3; ++k) add_factor(true, t.fast[k * t.fast_size + entry], k);
        });
    }

    __device__ void advance(const Piece<N>& piece) {
        float p[N], g[N], v[N], m[3][N], slow[3][N];
        t.p.read(piece.e, piece.count, p);
        t.g.read(piece.e, piece.count, g);
        load(t.v + piece.e, piece.count, v);
        for (int k = 0; k < 3; ++k) {
            load(t.m + k * t.numel + piece.e, piece.count, m[k]);
            factors.of_row(piece, k, slow[k]);
        }
        for (int i = 0; i < N; ++i) {
            if (i >= piece.count) break;
            if (VELO) look_back(p[i], v[i], m[0][i], m[1][i], m[2][i]);
            g[i] = rule(g[i]);
            v[i] = ema(v[i], g[i] * g[i], step.decays[3]);
            float own[3], gradient[3], momentum[3], f[F::VECTORS];
            for (int k = 0; k < 3; ++k) {
                own[k] = m[k][i] = ema(m[k][i], g[i], step.decays[k]);
                gradient[k] = slow[k][i] * columns.gradient[k][piece.slot + i];
                momentum[k] = slow[k][i] * columns.momentum[k][piece.slot + i];
            }
            vector_features<VELO>(p[i], g[i], own, v[i], gradient, momentum, f);
            for (int c = 0; c < F::VECTORS; ++c) vector[c] += f[c] * f[c];
        }
        store(t.v + piece.e, piece.count, v);
        for (int k = 0; k < 3; ++k) store(t.m + k * t.numel + piece.e, piece.count, m[k]);
    }

    // The parameter, and the moments before this step.
    __device__ void look_back(float p, float v, float m0, float m1, float m2) {
        const bool first = seen++ == 0;
        p2 += p * p;
        spread[0].add(v, first);
        spread[1].add(m0, first);
        spread[2].add(m1, first);
        spread[3].add(m2, first);
    }

    __device__ void run() {
        count_slow();
        for_each_panel<N>(tile, 1, [&](const Panel<N>& panel) {
            prepare(panel);
            __syncthreads();
            const int pieces = panel.rows(tile) * panel.pieces;
            for (int i = thread_of_block(); i < pieces; i += THREADS) advance(Piece<N>(t, tile, panel, i));
            __syncthreads();
        });
    }

    // The tile's sums of squares, in the reference's order.
    __device__ void write_squares(double* to) const {
        double own[F::VECTORS + 12];
        for (int c = 0; c < F::VECTORS; ++c) own[c] = vector[c];
        for (int c = 0; c < 12; ++c) own[F::VECTORS + c] = factor[c / 6][c % 6];
        const double* sums = block_sums(own);
        const int i = thread_of_block();
        if (i < F::VECTORS) to[F::vector_place(i)] = sums[i];
        if (i < 12) {  // below two dimensions, D stands for both R and C
            const bool col = i >= 6, fast = !t.factored || t.row_is_slow == col;
            to[F::factor_place(col, i % 6)] = sums[F::VECTORS + (fast ? 6 : 0) + i % 6];
        }
    }

    // Sum of p^2, means of v and m_k, sums of their squared distances from these.
    __device__ void write_moments(double* to) const {
        double first[5] = {p2}, second[4];
        for (int s = 0; s < 4; ++s) first[1 + s] = spread[s].total(seen);
        const double* sums = block_sums(first);
        const double n = static_cast<double>(tile.batches) * tile.xs * tile.width;
        double mean[4];
        for (int s = 0; s < 4; ++s) {
            mean[s] = sums[1 + s] / n;
            second[s] = spread[s].about(mean[s], seen);
        }
        if (thread_of_block() == 0) {
            to[0] = sums[0];
            for (int s = 0; s < 4; ++s) to[1 + s] = mean[s];
        }
        const double* squares = block_sums(second);
        if (thread_of_block() < 4) to[5 + thread_of_block()] = squares[thread_of_block()];
    }
};

template <bool VELO> __global__ void __launch_bounds__(THREADS, RESIDENT) accumulate_kernel(const Step step) {
    __shared__ Work work;
    __shared__ Columns<MEASURE_PIECE> columns;
    for (index_t i = blockIdx.x; i < step.tile_count; i += gridDim.x) {
        work.open_tile(step, i);
        Accumulate<VELO> sums(step, work.t, work.tile, columns);
        sums.run();
        sums.write_squares(step.squares + i * Features<VELO>::ALL);
        if (VELO) sums.write_moments(step.moments + i * 9);
    }
}

// Sums over a tensor's tiles: each thread takes every THREADS-th tile, then the threads' sums are added.
template <bool VELO> __device__ inline void fold_squares(const Step& step, const Tensor& t, index_t tensor) {
    typedef Features<VELO> F;
    double own[F::ALL] = {};
    const index_t first = t.record[plan::FIRST_TILE], to = first + t.record[plan::TILES];
    for (index_t i = first + thread_of_block(); i < to; i += THREADS)
        for (int f = 0; f < F::ALL; ++f) own[f] += step.squares[i * F::ALL + f];
    const double* sums = block_sums(own);
    float* mean_square = step.mean_square + tensor * F::ALL;
    const int c = thread_of_block();
    if (c < F::VECTORS) {
        const int at = F::vector_place(c);
        mean_square[at] = static_cast<float>(sums[at] / static_cast<double>(t.numel));
    }
    if (c < 12) {
        const bool col = c >= 6, fast = !t.factored || t.row_is_slow == col;
        const int at = F::factor_place(col, c % 6);
        mean_square[at] = static_cast<float>(sums[at] / static_cast<double>(fast ? t.fast_size : t.slow_size));
    }
}

__device__ inline double elements_of(const Step& step, index_t tile) {
    const int64_t* x = step.tiles + tile * plan::TILE_FIELDS;
    return static_cast<double>((x[plan::BATCH_TO] - x[plan::BATCH_FROM]) * (x[plan::X_TO] - x[plan::X_FROM]) *
                               (x[plan::J_TO] - x[plan::J_FROM]));
}

// The same for p^2 and the spreads, which are joined about the mean of all tiles.
__device__ inline void fold_moments(const Step& step, const Tensor& t, index_t tensor) {
    const index_t first = t.record[plan::FIRST_TILE], to = first + t.record[plan::TILES];
    const double n = static_cast<double>(t.numel);
    double own[5] = {}, mean[4], second[4] = {};
    for (index_t i = first + thread_of_block(); i < to; i += THREADS) {
        own[0] += step.moments[i * 9];
        for (int s = 0; s < 4; ++s) own[1 + s] += elements_of(step, i) * step.moments[i * 9 + 1 + s];
    }
    const double* sums = block_sums(own);
    float* to_ = step.statistics + tensor * 9;
    for (int s = 0; s < 4; ++s) mean[s] = sums[1 + s] / n;
    if (thread_of_block() == 0) {
        to_[0] = static_cast<float>(sums[0] / n);
        for (int s = 0; s < 4; ++s) to_[1 + s] = static_cast<float>(mean[s]);
    }
    for (index_t i = first + thread_of_block(); i < to; i += THREADS)
        for (int s = 0; s < 4; ++s) {
            const double off = step.moments[i * 9 + 1 + s] - mean[s];
            second[s] += step.moments[i * 9 + 5 + s] + elements_of(step, i) * off * off;
        }
    const double* squares = block_sums(second);
    if (thread_of_block() < 4) to_[5 + thread_of_block()] = static_cast<float>(squares[thread_of_block()] / n);
}

// A block a tensor.
template <bool VELO> __global__ void __launch_bounds__(THREADS, RESIDENT) fold_kernel(const Step step) {
    __shared__ Work work;
    for (index_t i = blockIdx.x; i < step.tensor_count; i += gridDim.x) {
        work.open_tensor(step, i);
        fold_squares<VELO>(step, work.t, i);
        if (VELO) fold_moments(step, work.t, i);
    }
}

}  // namespace lopt
