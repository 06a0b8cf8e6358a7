// The fifth pass of a step (docs/lopt-plan.md): features again, network, parameter. One thread per tile.
//
// A feature's normaliser is one number per tensor, so it goes into a column of W1. Twelve features depend on the row or
// the column alone: their share of the first layer is one vector per row and one per column, and what is left per element is
// 16 (18) inputs. There are six more where z > 1, since a row's moment varies along it then, and below two dimensions, where D
// stands for both R and C.
#pragma once
#include <chrono>

#include "network.h"

namespace lopt {
namespace {

constexpr int FIRST_SIZE = FEATURES * HIDDEN;
constexpr int NETWORK_SIZE = FIRST_SIZE + TAIL_SIZE;  // W1 (FEATURES, HIDDEN), then `Tail`

// A tensor's first layer with its normalisers folded in, split by where its inputs come from; (inputs, HIDDEN).
struct First {
    alignas(64) float vector[VECTORS + 6][HIDDEN];  // the last six: D's, or the slow moment's where z > 1
    alignas(64) float slow[6][HIDDEN], fast[6][HIDDEN], bias[HIDDEN];

    void fold(const Tensor& t, const float* w, const float* mean_square, const float* b) {
        auto column = [&](int place, float* to) {
            const float norm = rsqrt(NORM_EPS + mean_square[place]);
            for (int n = 0; n < HIDDEN; ++n) to[n] = w[place * HIDDEN + n] * norm;
        };
        for (int i = 0; i < VECTORS; ++i) column(vector_place(i), vector[i]);
        for (int i = 0; i < 6; ++i) {
            column(factor_place(!t.row_is_slow, i), slow[i]);
            column(factor_place(t.row_is_slow, i), fast[i]);
            for (int n = 0; n < HIDDEN; ++n) vector[VECTORS + i][n] = slow[i][n] + (t.factored ? 0.0f : fast[i][n]);
        }
        std::copy_n(b, HIDDEN, bias);
    }
};

// What a thread needs besides its tile.
struct Scratch {
    Block block;
    Activations activations;
    First first;
    alignas(64) float columns[HIDDEN][PANEL];  // the columns' share of the first layer
    alignas(64) float factor[6][PANEL];        // the columns' six features
    alignas(64) float slow[6][PANEL];          // the row's, along the row, where z > 1
    alignas(64) float row[HIDDEN];             // bias, and the row's share where z = 1
    alignas(64) float result[BLOCK];
};

struct Apply {
    const Tensor& t;
    const GradientRule rule;
    const float* rates;
    const Tail tail;
    Scratch& s;
    Factors factors;
    index_t batch_at = 0, panel_at = 0;
    int panel_width = 0, whole_piece = -1;  // column of the one piece that fills a block

    Apply(const Tensor& tensor, const GradientRule& gradient_rule, const float* own_rates, const float* tail_weights,
          Scratch& scratch)
        : t(tensor), rule(gradient_rule), rates(own_rates), tail(tail_weights), s(scratch), factors(tensor) {}

    void batch(index_t at) {
        batch_at = at;
        if (t.factored) factors.start_batch(at);
    }

    void panel(index_t, index_t j, int width) {
        panel_at = j;
        panel_width = width;
        if (!t.factored) return;
        factors.start_panel(j, width);
        for (int k = 0; k < 3; ++k) {
            const float* x = t.fast + k * t.fast_size + t.fast_at(batch_at, j);
            for (int c = 0; c < width; ++c) s.factor[k][c] = x[c], s.factor[3 + k][c] = rsqrt(x[c] + 1e-8f);
        }
        for (int n = 0; n < HIDDEN; ++n)
            for (int c = 0; c < width; ++c) {
                float sum = 0.0f;
                for (int k = 0; k < 6; ++k) sum += s.first.fast[k][n] * s.factor[k][c];
                s.columns[n][c] = sum;
            }
    }

    void row(index_t, index_t x) {
        if (!t.factored) return;
        factors.start_row(x);
        float own[6];
        for (int k = 0; k < 3; ++k) {
            const float* moment = t.slow + k * t.slow_size + t.slow_at(batch_at, x);
            own[k] = moment[0];
            own[3 + k] = rsqrt(moment[0] + 1e-8f);
            if (t.z > 1) along_row(moment, s.slow[k], s.slow[3 + k]);
        }
        for (int n = 0; n < HIDDEN; ++n) {
            float sum = s.first.bias[n];
            for (int k = 0; k < 6; ++k) sum += t.z > 1 ? 0.0f : s.first.slow[k][n] * own[k];
            s.row[n] = sum;
        }
    }

    // A moment that varies with z, and its rsqrt, at every column of the panel.
    void along_row(const float* moment, float* direct, float* inverse) const {
        for (int c = 0; c < panel_width; ++c) {
            const bool first = c < t.z;
            direct[c] = first ? moment[(panel_at + c) % t.z] : direct[c - t.z];
            inverse[c] = first ? rsqrt(direct[c] + 1e-8f) : inverse[c - t.z];
        }
    }

    void piece(index_t e, int column, int n) {
        s.block.add(t, rule, e, n);
        whole_piece = n == BLOCK ? column : -1;
        if (!t.factored) return;
        const int at = s.block.count - n;
        factors.scale(s.block, column, n);
        if (t.z > 1)
            for (int k = 0; k < 6; ++k) std::copy_n(s.slow[k] + column, n, s.block.f[VECTORS + k] + at);
        if (whole_piece < 0)  // the block has pieces of several rows: what the first layer begins with differs
            for (int h = 0; h < HIDDEN; ++h)
                for (int i = 0; i < n; ++i) s.activations.start[h][at + i] = s.columns[h][column + i] + s.row[h];
    }

    void block() {
        Block& b = s.block;
        b.clear_rest();
        if (!t.factored) diagonal_features(b);
        vector_features(b);
        const int count = (b.count + VEC * UNROLL - 1) / (VEC * UNROLL) * (VEC * UNROLL), c = whole_piece;
        auto bias = [&](int n, int) { return broadcast(s.first.bias[n]); };
        auto row_and_column = [&](int n, int j) { return load(&s.columns[n][c + j]) + s.row[n]; };
        auto buffered = [&](int n, int j) { return load(&s.activations.start[n][j]); };
        if (!t.factored) run_first<VECTORS + 6>(s.first.vector[0], b.f, s.activations, count, bias);
        else if (t.z > 1 && c < 0) run_first<VECTORS + 6>(s.first.vector[0], b.f, s.activations, count, buffered);
        else if (t.z > 1) run_first<VECTORS + 6>(s.first.vector[0], b.f, s.activations, count, row_and_column);
        else if (c < 0) run_first<VECTORS>(s.first.vector[0], b.f, s.activations, count, buffered);
        else run_first<VECTORS>(s.first.vector[0], b.f, s.activations, count, row_and_column);
        run_tail(tail, s.activations, count);
        write();
        b.empty();
    }

    // out <- shrink p - step, or shrink (p - step); nothing in a skipped step.
    void write() {
        const Block& b = s.block;
        const float scale = rates[plan::STEP_SCALE], exp_mult = rates[plan::EXP_MULT], shrink = rates[plan::SHRINK];
        const bool last = rates[plan::SHRINK_AFTER] != 0.0f;
        const float before = last ? 1.0f : shrink, after = last ? shrink : 1.0f;
        if (!rule.ok) return;
        for (int i = 0; i < BLOCK; ++i) {
            const float step = scale * s.activations.output[0][i] * exponential(exp_mult * s.activations.output[1][i]);
            s.result[i] = (before * b.p[i] - step) * after;
        }
        for (int i = 0; i < b.pieces; ++i) t.out.write(b.piece[i].e, b.piece[i].n, s.result + b.piece[i].at);
    }
};

// All tiles of a plan. network: one for all tensors (stride 0) or `stride` floats apart; bias: (T, HIDDEN). Milliseconds.
inline float apply(const Bases& bases, const index_t* tensors, const index_t* tiles, index_t tile_count, const float* rates,
                   const float* mean_square, const float* bias, const float* network, index_t stride, float bound,
                   bool replace_nan, int threads) {
    const auto start = std::chrono::steady_clock::now();
#pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (index_t i = 0; i < tile_count; ++i) {
        static thread_local Scratch scratch;
        const Tile tile(tiles + i * plan::TILE_FIELDS);
        const Tensor t(bases, tensors + tile.tensor * plan::FIELDS);
        const float *own = rates + tile.tensor * plan::RATES, *w = network + tile.tensor * stride;
        scratch.first.fold(t, w, mean_square + tile.tensor * FEATURES, bias + tile.tensor * HIDDEN);
        Apply work(t, GradientRule(own, bound, replace_nan), own, w + FIRST_SIZE, scratch);
        for_each_block(t, tile, scratch.block, work);
    }
    return std::chrono::duration<float, std::milli>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace
}  // namespace lopt
