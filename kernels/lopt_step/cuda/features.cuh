// The features of lopt/features.py: their places in the reference's order, the factors of rows and columns.
#pragma once
#include "tensor.cuh"

namespace lopt {

// small_fc's features, or VeLO's, which has clip(g, -0.1, 0.1) and g s besides.
template <bool VELO> struct Features {
    static constexpr int FIRST = VELO ? 15 : 13;    // vector features in front of the factor features
    static constexpr int VECTORS = FIRST + 3;       // all that vary with every element
    static constexpr int ALL = VECTORS + 12;        // and six of the row, six of the column
    static constexpr float RMS_EPS = 1e-6f, DIAG_EPS = VELO ? 0.0f : 1e-6f, NORM_EPS = 1e-5f;

    // Where the i-th vector feature, as `vector_features` counts them, lies in the reference's order.
    __device__ static int vector_place(int i) {
        constexpr int M = VELO ? 3 : 2, V = M + 3, MS = V + 1, S = MS + 3, FG = S + 1, FM = FIRST + 12;
        const int places[18] = {M,  M + 1,  M + 2,  0, MS, MS + 1, MS + 2, VELO ? 2 : 1,
                                FG, FG + 1, FG + 2, V, FM, FM + 1, FM + 2, S,           1, FG + 3};
        return places[i];
    }

    // Of the six features of R (col false) or of C.
    __device__ static int factor_place(bool col, int i) { return FIRST + (col ? 3 : 0) + (i < 3 ? i : i + 3); }
};

__device__ inline float safe_rsqrt(float x) { return rsqrtf(x > 1e-9f ? x : x == x ? 1e-9f : x); }
__device__ inline float moment_rsqrt(float x) { return rsqrtf(x + 1e-8f); }

// What fac_k multiplies by, of one entry of R or C: rf_k = srs(R_k / (mean + 1e-9)), cf_k = srs(C_k).
__device__ inline float row_factor(float r, float mean) { return safe_rsqrt(r / (mean + 1e-9f)); }

// The slow and the fast factor of a tensor's entries.
struct Factors {
    const Tensor& t;
    const float* means;
    index_t count;  // means of one decay

    __device__ Factors(const Step& step, const Tensor& t_, index_t tensor)
        : t(t_), means(t_.factored ? step.means + step.means_at[tensor] : nullptr), count(t_.outer * t_.mid * t_.z) {}

    __device__ float mean(int k, index_t batch, index_t z) const { return means[k * count + batch * t.z + z]; }

    __device__ float slow(int k, index_t entry, index_t batch, index_t z) const {
        const float x = t.slow[k * t.slow_size + entry];
        return t.row_is_slow ? row_factor(x, mean(k, batch, z)) : safe_rsqrt(x);
    }

    __device__ float fast(int k, index_t entry, index_t batch, index_t z) const {
        const float x = t.fast[k * t.fast_size + entry];
        return t.row_is_slow ? safe_rsqrt(x) : row_factor(x, mean(k, batch, z));
    }

    // What fac_k multiplies by in the row of a piece, for each of its elements; 1 below two dimensions.
    template <int N> __device__ void of_row(const Piece<N>& piece, int k, float (&x)[N]) const {
        for (int i = 0; i < N; ++i) x[i] = 1.0f;
        if (!t.factored || piece.count == 0) return;
        if (t.z == 1) {
            const float factor = slow(k, piece.slow, piece.batch, 0);
            for (int i = 0; i < N; ++i) x[i] = factor;
        } else {
            for (int i = 0; i < piece.count; ++i) x[i] = slow(k, piece.slow + piece.z_at(t, i), piece.batch, piece.z_at(t, i));
        }
    }
};

// A panel's columns in shared memory: what fac_k multiplies a gradient by, and a momentum, which differ below two dimensions.
template <int N> struct Columns {
    static constexpr int PITCH = PANEL + 4;  // 4: lanes that read another row of the table read from another bank
    alignas(16) float gradient[3][PITCH], momentum[3][PITCH];

    // visit(slot, entry of the fast moment, batch, z) for a share of the panel's columns.
    template <class Visit>
    __device__ static void for_each(const Tensor& t, const Tile& tile, const Panel<N>& panel, Visit visit) {
        for (int slot = thread_of_block(); slot < panel.slots(); slot += THREADS) {
            const int piece = slot / N, j = piece % panel.pieces * N + slot % N;
            if (j >= panel.width) continue;
            const index_t batch = tile.batch_from + panel.batch + piece / panel.pieces, at = tile.j_from + panel.j + j;
            visit(slot, batch * t.run + at, batch, t.z == 1 ? 0 : remainder(at, t.z));
        }
    }

    __device__ void fill(const Factors& factors, int slot, index_t entry, index_t batch, index_t z, float diag_eps) {
        for (int k = 0; k < 3; ++k) {
            const float d = factors.t.fast[k * factors.t.fast_size + entry];
            gradient[k][slot] = factors.t.factored ? factors.fast(k, entry, batch, z) : safe_rsqrt(d + 1e-9f);
            momentum[k][slot] = factors.t.factored ? gradient[k][slot] : rsqrtf(d + diag_eps);
        }
    }
};

// The vector features of one element, decay by decay, so that a lane can take one decay's:
// [m 0..2, g, m s 0..2, p, fac g 0..2, v, fac m 0..2, s] and for VeLO [clip g, g s].
template <bool VELO>
__device__ inline void vector_features(float p, float g, const float (&m)[3], float v, const float (&gradient)[3],
                                       const float (&momentum)[3], float* f) {
    const float s = rsqrtf(v + Features<VELO>::RMS_EPS);
    for (int k = 0; k < 3; ++k) {
        f[k] = m[k];
        f[4 + k] = m[k] * s;
        f[8 + k] = g * gradient[k];
        f[12 + k] = m[k] * momentum[k];
    }
    f[3] = g;
    f[7] = p;
    f[11] = v;
    f[15] = s;
    if (VELO) {
        f[16] = g > 0.1f ? 0.1f : g < -0.1f ? -0.1f : g;
        f[17] = g * s;
    }
}

}  // namespace lopt
