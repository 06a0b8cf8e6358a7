// A 15 x 15 filter over a float32 image: out[y, x] = sum over (i, j) of filter[i, j] * in[y + i, x + j].
// out is h x w, in is (h + 14) x (w + 14), all row-major: the shapes of Kernel Tuner's convolution example.
//
// A register tile of TY rows and NX columns of the output is summed over the whole filter. It can walk the filter row by row,
// loading each input value once per filter element, or column by column, where a loaded vector serves up to TY output rows.
// The input rows under a tile lie far apart, at a stride that may be unkind to the cache; copying them into a small buffer first
// mends that and costs time. Which of this pays depends on the tile, on the vectors and on the number of registers.
//
// Returns the milliseconds of the filtering alone, as Kernel Tuner's C backend expects.

#include <algorithm>
#include <chrono>
#include <cstdlib>

#ifndef NX
#define NX 16 // columns of the register tile
#endif
#ifndef TY
#define TY 2 // rows of the register tile
#endif
#ifndef VW
#define VW 4 // floats in a vector; 1 leaves the choice to the compiler's own vectorizer
#endif
#ifndef BX
#define BX 1024 // columns of the image that are finished before the next ones are begun
#endif
#ifndef REUSE
#define REUSE 0 // 0: filter rows outermost; 1: filter columns outermost, each loaded vector used for all rows of the tile
#endif
#ifndef FU
#define FU 1 // unrolling of the loop over filter columns
#endif
#ifndef SPLAT
#define SPLAT 0 // 1: every filter element is stored as a whole vector, 0: as a number that is spread when used
#endif
#ifndef STAGE
#define STAGE 0 // 1: input rows are copied into a small buffer first
#endif

namespace {

constexpr int F = 15; // side of the filter

// A vector wider than the machine's would live in memory, not in registers: it is split into parts.
#ifdef __AVX__
constexpr int part = VW < 8 ? VW : 8;
#else
constexpr int part = VW < 4 ? VW : 4;
#endif
constexpr int NV = NX / part; // vectors in a row of the register tile
constexpr int unroll_f = FU;
#if VW == 1
typedef float vec;
#else
typedef float vec __attribute__((vector_size(4 * part), aligned(4)));
#endif

#if SPLAT
typedef vec weight;
#else
typedef float weight;
#endif

inline vec load(const float *p) { return *reinterpret_cast<const vec *>(p); }

// One loaded row of the input at filter column j, added to the output rows first..last that it belongs to.
inline void add_row(vec (&sum)[TY][NV], const float *in, const weight *filter, int i, int j, int first, int last) {
    vec row[NV];
#pragma GCC unroll 64
    for (int v = 0; v < NV; ++v) row[v] = load(in + v * part);
#pragma GCC unroll 16
    for (int y = first; y <= last; ++y) {
        const weight f = filter[(i - y) * F + j];
#pragma GCC unroll 64
        for (int v = 0; v < NV; ++v) sum[y][v] += f * row[v];
    }
}

// Filter columns outermost: TY - 1 input rows reach only the upper output rows, then come those that reach all of them.
inline void by_columns(vec (&sum)[TY][NV], const float *in, int ld, const weight *filter) {
#pragma GCC unroll unroll_f
    for (int j = 0; j < F; ++j) {
#pragma GCC unroll 16
        for (int i = 0; i < TY - 1; ++i) add_row(sum, in + i * ld + j, filter, i, j, 0, i);
        for (int i = TY - 1; i < F; ++i) add_row(sum, in + i * ld + j, filter, i, j, 0, TY - 1);
#pragma GCC unroll 16
        for (int i = F; i < F + TY - 1; ++i) add_row(sum, in + i * ld + j, filter, i, j, i - F + 1, TY - 1);
    }
}

// Filter rows outermost: an input vector is loaded anew for each filter element.
inline void by_rows(vec (&sum)[TY][NV], const float *in, int ld, const weight *filter) {
    for (int i = 0; i < F; ++i)
#pragma GCC unroll unroll_f
        for (int j = 0; j < F; ++j) {
            const weight f = filter[i * F + j];
#pragma GCC unroll 16
            for (int y = 0; y < TY; ++y)
#pragma GCC unroll 64
                for (int v = 0; v < NV; ++v) sum[y][v] += f * load(in + (y + i) * ld + j + v * part);
        }
}

void tile(float *out, int w, const float *in, int ld, const weight *filter) {
    vec sum[TY][NV] = {};
    if (REUSE) by_columns(sum, in, ld, filter);
    else by_rows(sum, in, ld, filter);
    for (int y = 0; y < TY; ++y)
        for (int v = 0; v < NV; ++v) *reinterpret_cast<vec *>(out + y * w + v * part) = sum[y][v];
}

// The last tile of a row or column is moved back to end at the border: it computes some values again, and no value wrongly.
void filter_image(float *out, const float *in, const weight *filter, int h, int w, float *rows) {
    const int ld = w + F - 1, width = std::min(BX, w);
    for (int block = 0; block < w; block += BX)
        for (int tile_y = 0; tile_y < h; tile_y += TY) {
            const int left = std::min(block, w - width), y = std::min(tile_y, h - TY);
            const float *from = in + static_cast<long>(y) * ld + left;
            if (STAGE)
                for (int i = 0; i < TY + F - 1; ++i) std::copy_n(from + i * ld, width + F - 1, rows + i * (BX + F - 1));
            for (int tile_x = 0; tile_x < width; tile_x += NX) {
                const int x = std::min(tile_x, width - NX);
                tile(out + static_cast<long>(y) * w + left + x, w, (STAGE ? rows : from) + x, STAGE ? BX + F - 1 : ld, filter);
            }
        }
}

// For an image smaller than one register tile.
void filter_small(float *out, const float *in, const float *filter, int h, int w) {
    for (int y = 0; y < h; ++y)
        for (int x = 0; x < w; ++x) {
            float sum = 0;
            for (int i = 0; i < F; ++i)
                for (int j = 0; j < F; ++j) sum += filter[i * F + j] * in[(y + i) * (w + F - 1) + x + j];
            out[y * w + x] = sum;
        }
}

} // namespace

extern "C" float convolution(float *out, const float *in, const float *filter, int h, int w) {
    static_assert(NX <= BX, "a register tile must fit into a block");
    float *rows = static_cast<float *>(std::malloc(sizeof(float) * (TY + F - 1) * (BX + F - 1)));
    const auto start = std::chrono::steady_clock::now();
    weight weights[F * F];
    for (int i = 0; i < F * F; ++i) weights[i] = weight{} + filter[i];
    if (h < TY || w < NX) filter_small(out, in, filter, h, w);
    else filter_image(out, in, weights, h, w, rows);
    const std::chrono::duration<float, std::milli> elapsed = std::chrono::steady_clock::now() - start;
    std::free(rows);
    return elapsed.count();
}
