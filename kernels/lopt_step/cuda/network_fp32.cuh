// The network by ordinary float32 arithmetic: a thread takes N consecutive elements of a row, and a weight that it reads from
// shared memory serves all of them.
#pragma once
#include "weights.cuh"

#ifndef HIDDEN_TILE  // neurons of the second layer that are computed at a time
#define HIDDEN_TILE 8
#endif

namespace lopt {

template <bool VELO, int H, int N> struct NetworkFp32 {
    typedef Weights<VELO, H> W;
    static constexpr int VECTORS = Features<VELO>::VECTORS, ALIGNED = 1, TOGETHER = H < HIDDEN_TILE ? H : HIDDEN_TILE;
    static_assert(H % TOGETHER == 0, "the second layer is whole tiles");

    __device__ void stage(const W&) {}  // they are read as they lie

    // All elements of a panel whose columns are prepared.
    __device__ void run(const Tensor& t, const Tile& tile, const Panel<N>& panel, const GradientRule& rule,
                        const Factors& factors, const W& w, const Columns<N>& columns, const Shares<N, H>& shares,
                        const Update& update) {
        const int pieces = panel.rows(tile) * panel.pieces;
        for (int at = thread_of_block(); at < pieces; at += THREADS) {
            const Piece<N> piece(t, tile, panel, at);
            float h[H][N], p[N], o[2][N];
            first_layer(t, piece, rule, factors, w, columns, shares, p, h);
            second_layer(w, h, o);
            for (int i = 0; i < N; ++i)
                if (i < piece.count) update.write(t, piece.e + i, p[i], o[0][i], o[1][i]);
        }
    }

  private:
    __device__ static void first_layer(const Tensor& t, const Piece<N>& piece, const GradientRule& rule, const Factors& factors,
                                       const W& w, const Columns<N>& columns, const Shares<N, H>& shares, float (&p)[N],
                                       float (&h)[H][N]) {
        float x[N][VECTORS];
        vectors(t, piece, rule, factors, columns, p, x);
        for (int n = 0; n < H; ++n) load(&shares.of[n][piece.slot], N, h[n]);
        if (t.factored) add_rows(t, piece, w, h);
#pragma unroll
        for (int k = 0; k < VECTORS; ++k)
#pragma unroll
            for (int n = 0; n < H; ++n)
                for (int i = 0; i < N; ++i) h[n][i] += w.vector[k][n] * x[i][k];
#pragma unroll
        for (int n = 0; n < H; ++n)
            for (int i = 0; i < N; ++i) h[n][i] = h[n][i] > 0.0f ? h[n][i] : h[n][i] - h[n][i];  // keeps NaN
    }

    __device__ static void vectors(const Tensor& t, const Piece<N>& piece, const GradientRule& rule, const Factors& factors,
                                   const Columns<N>& columns, float (&p)[N], float (&x)[N][VECTORS]) {
        float g[N], v[N], m[3][N], slow[3][N];
        t.p.read(piece.e, piece.count, p);
        t.g.read(piece.e, piece.count, g);
        load(t.v + piece.e, piece.count, v);
        for (int k = 0; k < 3; ++k) {
            load(t.m + k * t.numel + piece.e, piece.count, m[k]);
            factors.of_row(piece, k, slow[k]);
        }
#pragma unroll
        for (int i = 0; i < N; ++i) {
            float own[3], gradient[3], momentum[3];
            for (int k = 0; k < 3; ++k) {
                own[k] = m[k][i];
                gradient[k] = slow[k][i] * columns.gradient[k][piece.slot + i];
                momentum[k] = slow[k][i] * columns.momentum[k][piece.slot + i];
            }
            vector_features<VELO>(p[i], rule(g[i]), own, v[i], gradient, momentum, x[i]);
        }
    }

    // The row's share of the first layer: once for all elements of a piece if z = 1.
    __device__ static void add_rows(const Tensor& t, const Piece<N>& piece, const W& w, float (&h)[H][N]) {
        const int different = t.z == 1 ? 1 : N;
        for (int i = 0; i < different; ++i) {
            if (i >= piece.count) break;
            for (int k = 0; k < 6; ++k) {
                const float moment = t.slow[k % 3 * t.slow_size + piece.slow + piece.z_at(t, i)];
                const float x = k < 3 ? moment : moment_rsqrt(moment);
#pragma unroll
                for (int n = 0; n < H; ++n)
                    for (int to = 0; to < N; ++to)
                        if (to == i || different == 1) h[n][to] += w.slow[k][n] * x;
            }
        }
    }

    __device__ static void second_layer(const W& w, const float (&h)[H][N], float (&o)[2][N]) {
        for (int i = 0; i < N; ++i) o[0][i] = w.bias3[0], o[1][i] = w.bias3[1];
#pragma unroll 1
        for (int n = 0; n < H; n += TOGETHER) {
            float sum[TOGETHER][N];
#pragma unroll
            for (int q = 0; q < TOGETHER; ++q)
                for (int i = 0; i < N; ++i) sum[q][i] = w.bias2[n + q];
#pragma unroll
            for (int k = 0; k < H; ++k)
#pragma unroll
                for (int q = 0; q < TOGETHER; ++q)
                    for (int i = 0; i < N; ++i) sum[q][i] += w.hidden[k][n + q] * h[k][i];
#pragma unroll
            for (int q = 0; q < TOGETHER; ++q)
                for (int i = 0; i < N; ++i) {
                    const float x = sum[q][i] > 0.0f ? sum[q][i] : sum[q][i] - sum[q][i];
                    o[0][i] += w.output[0][n + q] * x;
                    o[1][i] += w.output[1][n + q] * x;
                }
        }
    }
};

}  // namespace lopt
