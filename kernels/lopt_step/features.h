// Blocks of a tile: their elements, the features of each, as lopt/features.py has them.
#pragma once
#include <algorithm>
#include <vector>

#include "tensor.h"

#ifndef EXTRA      // 1: VeLO's and CELO2's two additional features, clip(g, -0.1, 0.1) and g s
#define EXTRA 0
#endif
#ifndef RMS_EPS    // s = 1 / sqrt(v + RMS_EPS)
#define RMS_EPS 1e-6f
#endif
#ifndef DIAG_EPS   // below two dimensions, fac_k(m_k) = m_k (D_k + DIAG_EPS)^-0.5
#define DIAG_EPS 1e-6f
#endif
#ifndef NORM_EPS   // N(f) = f / sqrt(NORM_EPS + mean f^2)
#define NORM_EPS 1e-5f
#endif
#ifndef PANEL      // columns whose factors are held at a time
#define PANEL 512
#endif

namespace lopt {
namespace {

constexpr int FIRST = EXTRA ? 15 : 13;    // vector features in front of the factor features
constexpr int VECTORS = FIRST + 3;        // all that vary with every element
constexpr int FEATURES = VECTORS + 12;    // and six of the row, six of the column
constexpr int PIECES = BLOCK;

// Places in the reference's order: [FIRST vector, R 3, C 3, 1/sqrt R 3, 1/sqrt C 3, fac m 3].
constexpr int vector_place(int i) { return i < FIRST ? i : i + 12; }
constexpr int factor_place(bool col, int i) { return FIRST + (col ? 3 : 0) + (i < 3 ? i : i + 3); }

inline float rsqrt(float x) { return 1.0f / __builtin_sqrtf(x); }
inline float safe_rsqrt(float x) { return rsqrt(x > 1e-9f ? x : x == x ? 1e-9f : x); }

// Consecutive elements of one row within a block.
struct Piece {
    index_t e;
    int at, n;
};

// Everything about up to BLOCK elements, feature-major. Beyond `count` all is zero.
struct Block {
    int count = 0, pieces = 0;
    Piece piece[PIECES];
    alignas(64) float p[BLOCK], g[BLOCK], v[BLOCK], m[3][BLOCK], d[3][BLOCK];
    alignas(64) float scale_g[3][BLOCK], scale_m[3][BLOCK];  // what fac_k multiplies a gradient and a momentum by
    alignas(64) float f[VECTORS + 6][BLOCK];                 // features; the last six are D's, below two dimensions

    // Put n elements of a row at the end of the block.
    void add(const Tensor& t, const GradientRule& rule, index_t e, int n) {
        piece[pieces++] = {e, count, n};
        t.p.read(e, n, p + count);
        t.g.read(e, n, g + count);
        rule(g + count, n);
        copy(t.v + e, n, v + count);
        for (int k = 0; k < 3; ++k) copy(t.m + k * t.numel + e, n, m[k] + count);
        if (!t.factored)
            for (int k = 0; k < 3; ++k) copy(t.fast + k * t.numel + e, n, d[k] + count);
        count += n;
    }

    void clear_rest() {
        if (count == BLOCK) return;
        for (float* x : {p, g, v, m[0], m[1], m[2], d[0], d[1], d[2], scale_g[0], scale_g[1], scale_g[2], scale_m[0], scale_m[1],
                         scale_m[2]})
            std::fill(x + count, x + BLOCK, 0.0f);
    }

    void empty() { count = pieces = 0; }
};

// scale_g, scale_m below two dimensions, and D's own six features.
inline void diagonal_features(Block& b) {
    for (int k = 0; k < 3; ++k)
        for (int i = 0; i < BLOCK; ++i) {
            const float d = b.d[k][i];
            b.scale_g[k][i] = safe_rsqrt(d + 1e-9f);
            b.scale_m[k][i] = rsqrt(d + DIAG_EPS);
            b.f[VECTORS + k][i] = d;
            b.f[VECTORS + 3 + k][i] = rsqrt(d + 1e-8f);
        }
}

inline void multiply(const float* __restrict x, const float* __restrict y, float* __restrict to) {
    for (int i = 0; i < BLOCK; ++i) to[i] = x[i] * y[i];
}

// The features that vary with every element, from p, g, m, v and the scales.
inline void vector_features(Block& b) {
    constexpr int P = EXTRA ? 2 : 1, M = P + 1, V = M + 3, MS = V + 1, S = MS + 3, FG = S + 1, FM = FIRST;
    for (int i = 0; i < BLOCK; ++i) {
        const float s = rsqrt(b.v[i] + RMS_EPS), g = b.g[i];
        b.f[0][i] = g;
        b.f[P][i] = b.p[i];
        b.f[V][i] = b.v[i];
        b.f[S][i] = s;
#if EXTRA
        b.f[1][i] = g > 0.1f ? 0.1f : g < -0.1f ? -0.1f : g;
        b.f[FG + 3][i] = g * s;
#endif
    }
    for (int k = 0; k < 3; ++k) {
        copy(b.m[k], BLOCK, b.f[M + k]);
        multiply(b.m[k], b.f[S], b.f[MS + k]);
        multiply(b.g, b.scale_g[k], b.f[FG + k]);
        multiply(b.m[k], b.scale_m[k], b.f[FM + k]);
    }
}

// The row and the column factors of one tile, panel by panel.
class Factors {
  public:
    alignas(64) float fast_scale[3][PANEL];
    float slow_scale[3];              // of the current row, where z = 1
    alignas(64) float slow_row[3][PANEL];  // of the current row, where z > 1

    explicit Factors(const Tensor& t) : t_(t), mean_(3 * t.z), sum_(t.z) {}

    // mean over c of R, which its normaliser needs: c is x for a slow R and y for a fast one.
    void start_batch(index_t batch) {
        batch_ = batch;
        const index_t size = t_.row_is_slow ? t_.x : t_.run / t_.z;
        for (int k = 0; k < 3; ++k) {
            const float* r = t_.row_is_slow ? t_.slow + k * t_.slow_size : t_.fast + k * t_.fast_size;
            std::fill(sum_.begin(), sum_.end(), 0.0);
            for (index_t c = 0; c < size; ++c) {
                const float* x = r + (t_.row_is_slow ? t_.slow_at(batch, c) : t_.fast_at(batch, c * t_.z));
                for (index_t z = 0; z < t_.z; ++z) sum_[z] += x[z];
            }
            for (index_t z = 0; z < t_.z; ++z) mean_[k * t_.z + z] = static_cast<float>(sum_[z] / static_cast<double>(size));
        }
    }

    void start_panel(index_t j, int width) {
        j_ = j;
        width_ = width;
        for (int k = 0; k < 3; ++k) {
            const float* x = t_.fast + k * t_.fast_size + t_.fast_at(batch_, j);
            for (int c = 0; c < width; ++c)
                fast_scale[k][c] = t_.row_is_slow ? safe_rsqrt(x[c]) : safe_rsqrt(x[c] / (mean_[k * t_.z + (j + c) % t_.z] + 1e-9f));
        }
    }

    void start_row(index_t x_at) {
        for (int k = 0; k < 3; ++k) {
            const float* x = t_.slow + k * t_.slow_size + t_.slow_at(batch_, x_at);
            if (t_.z == 1) slow_scale[k] = slow_factor(k, x[0], 0);
            else
                for (int c = 0; c < width_; ++c) {
                    const index_t z = (j_ + c) % t_.z;
                    slow_row[k][c] = c < t_.z ? slow_factor(k, x[z], z) : slow_row[k][c - t_.z];
                }
        }
    }

    // scale_g = scale_m = rf_k cf_k of n elements from column c of the panel on, at b.count - n.
    void scale(Block& b, int c, int n) const {
        const int at = b.count - n;
        for (int k = 0; k < 3; ++k)
            for (int i = 0; i < n; ++i)
                b.scale_g[k][at + i] = (t_.z == 1 ? slow_scale[k] : slow_row[k][c + i]) * fast_scale[k][c + i];
        for (int k = 0; k < 3; ++k) copy(b.scale_g[k] + at, n, b.scale_m[k] + at);
    }

  private:
    float slow_factor(int k, float x, index_t z) const {
        return t_.row_is_slow ? safe_rsqrt(x / (mean_[k * t_.z + z] + 1e-9f)) : safe_rsqrt(x);
    }

    const Tensor& t_;
    index_t batch_ = 0, j_ = 0;
    int width_ = 0;
    std::vector<float> mean_;
    std::vector<double> sum_;
};

// Hands a tile to `work`, panel by panel, row by row, in pieces that fill blocks whatever the length of a row:
// work.panel(batch, j, width), work.row(batch, x), work.piece(e, column in the panel, n), work.block().
template <class Work> void for_each_block(const Tensor& t, const Tile& tile, Block& b, Work& work) {
    for (index_t batch = tile.batch_from; batch < tile.batch_to; ++batch) {
        work.batch(batch);
        for (index_t j = tile.j_from; j < tile.j_to; j += PANEL) {
            const int width = static_cast<int>(std::min<index_t>(PANEL, tile.j_to - j));
            work.panel(batch, j, width);
            for (index_t x = tile.x_from; x < tile.x_to; ++x) {
                work.row(batch, x);
                for (int c = 0; c < width;) {
                    const int n = std::min(BLOCK - b.count, width - c);
                    work.piece(t.element(batch, x, j + c), c, n);
                    c += n;
                    if (b.count == BLOCK) work.block();
                }
            }
            if (b.count) work.block();
        }
    }
}

}  // namespace
}  // namespace lopt
