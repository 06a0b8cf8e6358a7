// The first four passes of a step: sums, finalise, accumulate, fold (docs/lopt-plan.md). C++, one thread per tile.
//
// Sums have one order whatever the number of threads: a tile sums its own elements, a tensor's tiles are added in the plan's
// order. Sums over a tile or a tensor run in float64.
#pragma once
#include "features.h"

namespace lopt {
namespace {

// What all passes are given.
struct Step {
    const index_t *tensors, *tiles;
    const float *rates, *decays;  // decays: momentum 3, rms, adafactor 3
    Bases bases;
    float bound;
    bool replace_nan;

    const index_t* record(index_t t) const { return tensors + t * plan::FIELDS; }
    GradientRule rule(index_t t) const { return GradientRule(rates + t * plan::RATES, bound, replace_nan); }
};

inline float ema(float x, float y, float b) { return b * x + (1.0f - b) * y; }

// The three moments of one row or column from its sum of g^2.
inline void finish(float* moment, index_t size, index_t at, double sum, index_t n, const float* b) {
    const float q = static_cast<float>(sum / static_cast<double>(n)) + 1e-30f;
    for (int k = 0; k < 3; ++k) moment[k * size + at] = ema(moment[k * size + at], q, b[k]);
}

// Sixteen numbers side by side; the compiler splits them into the registers that there are.
constexpr int LANES = 16;
typedef float lanes __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef double wide __attribute__((vector_size(8 * LANES)));
static_assert(BLOCK % LANES == 0, "a block is whole lanes");

inline lanes load_lanes(const float* x) { return *reinterpret_cast<const lanes*>(x); }

inline double total(const wide& x) {
    double sum = 0.0;
    for (int l = 0; l < LANES; ++l) sum += x[l];
    return sum;
}

// A sum over many blocks in float64, of a few float32 terms at a time.
struct Sum {
    wide sum = {};

    void add(const float* x) {
        lanes part = {};
        for (int i = 0; i < BLOCK; i += LANES) part += load_lanes(x + i);
        sum += __builtin_convertvector(part, wide);
    }

    void add_squares(const float* x) {
        lanes part = {};
        for (int i = 0; i < BLOCK; i += LANES) part += load_lanes(x + i) * load_lanes(x + i);
        sum += __builtin_convertvector(part, wide);
    }
};

// ---- sums ------------------------------------------------------------------------------------------------------

// Sums of g^2 over one row of a tile: into `columns`, and into `own`, one for each z.
inline void add_row(const Tensor& t, const GradientRule& rule, index_t e, index_t width, double* columns, double* own) {
    float g[BLOCK];
    Sum row;
    index_t z = 0;
    for (index_t j = 0; j < width; j += BLOCK) {
        const int n = static_cast<int>(std::min<index_t>(BLOCK, width - j));
        std::fill(g + n, g + BLOCK, 0.0f);
        t.g.read(e + j, n, g);
        rule(g, n);
        for (int i = 0; i < BLOCK; ++i) g[i] *= g[i];
        for (int i = 0; i < n; ++i) columns[j + i] += g[i];
        if (t.z == 1) row.add(g);
        else
            for (int i = 0; i < n; ++i, z = z + 1 == t.z ? 0 : z + 1) own[z] += g[i];
    }
    own[0] += total(row.sum);
}

inline void sums_of_tile(const Step& step, const Tile& tile, float* partials) {
    const index_t* r = step.record(tile.tensor);
    const Tensor t(step.bases, r);
    if (!t.factored) return;
    const GradientRule rule = step.rule(tile.tensor);
    const index_t width = tile.j_to - tile.j_from, slow_place = r[plan::SLOW_PARTIAL], fast_place = r[plan::FAST_PARTIAL];
    std::vector<double> columns(width), own(t.z);
    for (index_t batch = tile.batch_from; batch < tile.batch_to; ++batch) {
        std::fill(columns.begin(), columns.end(), 0.0);
        for (index_t x = tile.x_from; x < tile.x_to; ++x) {
            std::fill(own.begin(), own.end(), 0.0);
            add_row(t, rule, t.element(batch, x, tile.j_from), width, columns.data(), own.data());
            for (index_t z = 0; z < t.z; ++z) {
                const index_t at = t.slow_at(batch, x) + z;
                if (slow_place < 0) finish(t.slow, t.slow_size, at, own[z], t.run / t.z, step.decays + 4);
                else partials[slow_place + tile.j_piece * t.slow_size + at] = static_cast<float>(own[z]);
            }
        }
        for (index_t j = 0; j < width; ++j) {
            const index_t at = t.fast_at(batch, tile.j_from + j);
            if (fast_place < 0) finish(t.fast, t.fast_size, at, columns[j], t.x, step.decays + 4);
            else partials[fast_place + tile.x_piece * t.fast_size + at] = static_cast<float>(columns[j]);
        }
    }
}

// ---- finalise --------------------------------------------------------------------------------------------------

inline void finalise_moment(float* moment, index_t size, const float* partials, index_t pieces, index_t n, const float* decays) {
    for (index_t at = 0; at < size; ++at) {
        double sum = 0.0;
        for (index_t piece = 0; piece < pieces; ++piece) sum += partials[piece * size + at];
        finish(moment, size, at, sum, n, decays);
    }
}

inline void finalise_tensor(const Step& step, index_t i, const float* partials) {
    const index_t *r = step.record(i), slow = r[plan::SLOW_PARTIAL], fast = r[plan::FAST_PARTIAL];
    if (slow < 0 && fast < 0) return;
    const Tensor t(step.bases, r);
    const Tile last(step.tiles + (r[plan::FIRST_TILE] + r[plan::TILES] - 1) * plan::TILE_FIELDS);
    const float* decays = step.decays + 4;
    if (slow >= 0) finalise_moment(t.slow, t.slow_size, partials + slow, last.j_piece + 1, t.run / t.z, decays);
    if (fast >= 0) finalise_moment(t.fast, t.fast_size, partials + fast, last.x_piece + 1, t.x, decays);
}

// ---- accumulate ------------------------------------------------------------------------------------------------

// Number, mean, and sum of squares about the mean, of a part of a tensor. Joined, never a difference of large squares.
struct Spread {
    double n = 0.0, mean = 0.0, squares = 0.0;

    void join(const Spread& o) {
        if (o.n == 0.0) return;
        const double total = n + o.n, delta = o.mean - mean;
        squares += o.squares + delta * delta * n * o.n / total;
        mean += delta * o.n / total;
        n = total;
    }
};

// The spread of a stream of blocks, about its first value, in float64: one element has variance 0, and so have equal ones.
struct Stream {
    double shift = 0.0, n = 0.0;
    wide sum = {}, squares = {};

    void add(const float* x, int count) {
        if (n == 0.0) shift = x[0];
        n += count;
        for (int i = 0; i < BLOCK && i < count; i += LANES) {
            wide d = __builtin_convertvector(load_lanes(x + i), wide) - shift;
            for (int l = count - i; l < LANES; ++l) d[l] = 0.0;
            sum += d;
            squares += d * d;
        }
    }

    Spread spread() const {
        const double s = total(sum), q = total(squares);
        return n == 0.0 ? Spread{} : Spread{n, shift + s / n, q - s * s / n};
    }
};

// The second pass over one tile.
struct Accumulate {
    const Tensor& t;
    const GradientRule rule;
    const float* decays;
    Block& b;
    Factors factors;
    double factor_squares[12] = {};  // of the features of R and of C
    Sum squares[VECTORS + 6], p2;
    Stream old[4];  // v, m_0, m_1, m_2 before this step
    const Tile& tile;

    Accumulate(const Step& step, const Tensor& tensor, const Tile& own, Block& block)
        : t(tensor), rule(step.rule(own.tensor)), decays(step.decays), b(block), factors(tensor), tile(own) {}

    void batch(index_t at) {
        if (!t.factored) return;
        factors.start_batch(at);
        if (tile.j_from == 0)
            for (index_t x = tile.x_from; x < tile.x_to; ++x) add_factor(!t.row_is_slow, t.slow, t.slow_size, t.slow_at(at, x), t.z);
        if (tile.x_from == 0)
            add_factor(t.row_is_slow, t.fast, t.fast_size, t.fast_at(at, tile.j_from), tile.j_to - tile.j_from);
    }

    // Sums of squares of a moment and of its rsqrt.
    void add_factor(bool col, const float* moment, index_t size, index_t at, index_t n) {
        for (int k = 0; k < 3; ++k) {
            const float* x = moment + k * size + at;
            double direct = 0.0, inverse = 0.0;
            for (index_t i = 0; i < n; ++i) {
                direct += static_cast<double>(x[i]) * x[i];
                inverse += 1.0 / (static_cast<double>(x[i]) + 1e-8);
            }
            factor_squares[6 * col + k] += direct;
            factor_squares[6 * col + 3 + k] += inverse;
        }
    }

    void panel(index_t, index_t j, int width) {
        if (t.factored) factors.start_panel(j, width);
    }

    void row(index_t, index_t x) {
        if (t.factored) factors.start_row(x);
    }

    void piece(index_t e, int column, int n) {
        b.add(t, rule, e, n);
        if (t.factored) factors.scale(b, column, n);
    }

    void block() {
        b.clear_rest();
#if EXTRA
        look_back();
#endif
        advance();
        if (!t.factored) diagonal_features(b);
        vector_features(b);
        measure();
        b.empty();
    }

    // What VeLO's recurrent network sees: the parameter, and the moments before this step.
    void look_back() {
        p2.add_squares(b.p);
        old[0].add(b.v, b.count);
        for (int k = 0; k < 3; ++k) old[1 + k].add(b.m[k], b.count);
    }

    // m, v and D of this step.
    void advance() {
        for (int i = 0; i < BLOCK; ++i) b.v[i] = ema(b.v[i], b.g[i] * b.g[i], decays[3]);
        for (int k = 0; k < 3; ++k)
            for (int i = 0; i < BLOCK; ++i) b.m[k][i] = ema(b.m[k][i], b.g[i], decays[k]);
        if (!t.factored)
            for (int k = 0; k < 3; ++k)
                for (int i = 0; i < BLOCK; ++i) b.d[k][i] = ema(b.d[k][i], b.g[i] * b.g[i] + 1e-30f, decays[4 + k]);
        for (int i = 0; i < b.pieces; ++i) {
            const Piece& s = b.piece[i];
            copy(b.v + s.at, s.n, t.v + s.e);
            for (int k = 0; k < 3; ++k) copy(b.m[k] + s.at, s.n, t.m + k * t.numel + s.e);
            if (!t.factored)
                for (int k = 0; k < 3; ++k) copy(b.d[k] + s.at, s.n, t.fast + k * t.numel + s.e);
        }
    }

    void measure() {
        for (int k = 0; k < (t.factored ? VECTORS : VECTORS + 6); ++k) {
            std::fill(b.f[k] + b.count, b.f[k] + BLOCK, 0.0f);
            squares[k].add_squares(b.f[k]);
        }
    }

    // Sums of squares in the reference's order; below two dimensions D's count as R's and as C's.
    void store(double* to, double* moments) const {
        for (int k = 0; k < VECTORS; ++k) to[vector_place(k)] = total(squares[k].sum);
        for (int k = 0; k < 12; ++k)
            to[factor_place(k >= 6, k % 6)] = t.factored ? factor_squares[k] : total(squares[VECTORS + k % 6].sum);
        moments[0] = total(p2.sum);
        for (int i = 0; i < 4; ++i) {
            const Spread s = old[i].spread();
            moments[1 + i] = s.mean, moments[5 + i] = s.squares;
        }
    }
};

inline index_t elements_of(const Tile& tile) {
    return (tile.batch_to - tile.batch_from) * (tile.x_to - tile.x_from) * (tile.j_to - tile.j_from);
}

// ---- fold ------------------------------------------------------------------------------------------------------

// Mean square of each feature, and mean p^2, means of v and m_k, variances of v and m_k.
inline void fold_tensor(const Step& step, index_t i, const double* squares, const double* moments, float* mean_square, float* mean) {
    const index_t* r = step.record(i);
    const Tensor t(step.bases, r);
    double sum[FEATURES] = {}, p2 = 0.0;
    Spread spread[4];
    for (index_t n = r[plan::FIRST_TILE]; n < r[plan::FIRST_TILE] + r[plan::TILES]; ++n) {
        const double size = static_cast<double>(elements_of(Tile(step.tiles + n * plan::TILE_FIELDS)));
        for (int f = 0; f < FEATURES; ++f) sum[f] += squares[n * FEATURES + f];
        p2 += moments[n * 9];
        for (int s = 0; s < 4; ++s) spread[s].join({size, moments[n * 9 + 1 + s], moments[n * 9 + 5 + s]});
    }
    for (int k = 0; k < VECTORS; ++k) mean_square[vector_place(k)] = static_cast<float>(sum[vector_place(k)] / t.numel);
    for (int k = 0; k < 12; ++k) {
        const bool col = k >= 6, fast = t.row_is_slow == col;
        const int at = factor_place(col, k % 6);
        mean_square[at] = static_cast<float>(sum[at] / (!t.factored ? t.numel : fast ? t.fast_size : t.slow_size));
    }
    mean[0] = static_cast<float>(p2 / t.numel);
    for (int s = 0; s < 4; ++s) {
        mean[1 + s] = static_cast<float>(spread[s].mean);
        mean[5 + s] = static_cast<float>(spread[s].squares / t.numel);
    }
}

}  // namespace
}  // namespace lopt
