// C = A B for row-major float32 matrices: A is m x k, B is k x n, C is m x n.
//
// The scheme is that of Goto and van de Geijn (2008): B is cut into blocks of KC rows and NC columns that stay in a
// cache, and a register tile of MR rows and NV vectors of VW floats of C is updated along the whole block. Which cache
// the block should live in, whether copying it into order pays, and how large the register tile may be before the
// compiler spills depend on each other and on the instruction set: these are the tunable parameters.
//
// Returns the milliseconds of the product alone, as Kernel Tuner's C backend expects.

#include <algorithm>
#include <chrono>
#include <cstdlib>

#ifndef MR
#define MR 4 // rows of C held in registers
#endif
#ifndef NR
#define NR 8 // columns of C held in registers
#endif
#ifndef VW
#define VW 4 // floats in a vector; 1 leaves the choice to the compiler's own vectorizer
#endif
#ifndef KC
#define KC 96 // rows of B in a block
#endif
#ifndef NC
#define NC 96 // columns of B in a block
#endif
#ifndef KU
#define KU 1 // unrolling of the loop over k
#endif
#ifndef PACK
#define PACK 0 // 0: B and A as they are; 1: B's block copied into panels; 2: A's row strip copied as well
#endif
#ifndef ORDER
#define ORDER 0 // 0: columns outermost, so that a strip of C stays near; 1: k outermost, so that rows of A stay near
#endif

namespace {

// A vector wider than the machine's would live in memory, not in registers: it is split into parts.
#ifdef __AVX__
constexpr int part = VW < 8 ? VW : 8;
#else
constexpr int part = VW < 4 ? VW : 4;
#endif
constexpr int NV = NR / part; // vectors in a row of the register tile
constexpr int unroll_k = KU;
#if VW == 1
typedef float vec;
#else
typedef float vec __attribute__((vector_size(4 * part), aligned(4)));
#endif

inline vec load(const float *p) { return *reinterpret_cast<const vec *>(p); }

// C[0:MR, 0:NR] += A[0:MR, 0:kc] B[0:kc, 0:NR]; a_row and a_k are A's strides, ldb is B's.
inline void tile(const float *a, int a_row, int a_k, const float *b, int ldb, float *c, int ldc, int kc) {
    vec sum[MR][NV] = {};
#pragma GCC unroll unroll_k
    for (int p = 0; p < kc; ++p) {
        vec row[NV];
#pragma GCC unroll 64
        for (int j = 0; j < NV; ++j) row[j] = load(b + p * ldb + j * part);
#pragma GCC unroll 16
        for (int i = 0; i < MR; ++i) {
            const float x = a[i * a_row + p * a_k];
#pragma GCC unroll 64
            for (int j = 0; j < NV; ++j) sum[i][j] += x * row[j];
        }
    }
    for (int i = 0; i < MR; ++i)
        for (int j = 0; j < NV; ++j) {
            vec *out = reinterpret_cast<vec *>(c + i * ldc + j * part);
            *out += sum[i][j];
        }
}

// What is left where the register tile does not fit: rows x cols, smaller than MR x NR.
void edge(const float *a, int lda, const float *b, int ldb, float *c, int ldc, int rows, int cols, int kc) {
    for (int i = 0; i < rows; ++i)
        for (int p = 0; p < kc; ++p)
            for (int j = 0; j < cols; ++j) c[i * ldc + j] += a[i * lda + p] * b[p * ldb + j];
}

// Copies the full panels of a block of B: panel after panel, each kc x NR without gaps.
void pack_b(const float *b, int ldb, float *to, int kc, int nc) {
    for (int j = 0; j + NR <= nc; j += NR)
        for (int p = 0; p < kc; ++p) to = std::copy_n(b + p * ldb + j, NR, to);
}

// Copies MR rows of A so that the MR values of one k lie together.
void pack_a(const float *a, int lda, float *to, int kc) {
    for (int p = 0; p < kc; ++p)
        for (int i = 0; i < MR; ++i) *to++ = a[i * lda + p];
}

// C[:, 0:nc] += A[:, 0:kc] B[0:kc, 0:nc], one block of B against all rows of A.
void block(const float *a, int lda, const float *b, int ldb, float *c, int ldc, int m, int kc, int nc, float *room) {
    float *panels = room, *strip = room + KC * NC;
    if (PACK >= 1) pack_b(b, ldb, panels, kc, nc);
    int i = 0;
    for (; i + MR <= m; i += MR) {
        if (PACK >= 2) pack_a(a + i * lda, lda, strip, kc);
        int j = 0;
        for (; j + NR <= nc; j += NR)
            tile(PACK >= 2 ? strip : a + i * lda, PACK >= 2 ? 1 : lda, PACK >= 2 ? MR : 1,
                 PACK >= 1 ? panels + j * kc : b + j, PACK >= 1 ? NR : ldb, c + i * ldc + j, ldc, kc);
        edge(a + i * lda, lda, b + j, ldb, c + i * ldc + j, ldc, MR, nc - j, kc);
    }
    edge(a + i * lda, lda, b, ldb, c + i * ldc, ldc, m - i, nc, kc);
}

void multiply(const float *a, const float *b, float *c, int m, int n, int k, float *room) {
    std::fill_n(c, static_cast<long>(m) * n, 0.0f);
    const int outer = ORDER == 0 ? n : k, outer_step = ORDER == 0 ? NC : KC;
    const int inner = ORDER == 0 ? k : n, inner_step = ORDER == 0 ? KC : NC;
    for (int s = 0; s < outer; s += outer_step)
        for (int t = 0; t < inner; t += inner_step) {
            const int p = ORDER == 0 ? t : s, j = ORDER == 0 ? s : t;
            block(a + p, k, b + static_cast<long>(p) * n + j, n, c + j, n, m, std::min(KC, k - p), std::min(NC, n - j),
                  room);
        }
}

} // namespace

extern "C" float gemm(float *c, const float *a, const float *b, int m, int n, int k) {
    static_assert(NR <= NC, "a register tile must fit into a block");
    float *room = static_cast<float *>(std::aligned_alloc(64, sizeof(float) * (KC * NC + KC * MR + 16) / 64 * 64 + 64));
    const auto start = std::chrono::steady_clock::now();
    multiply(a, b, c, m, n, k, room);
    const std::chrono::duration<float, std::milli> elapsed = std::chrono::steady_clock::now() - start;
    std::free(room);
    return elapsed.count();
}
