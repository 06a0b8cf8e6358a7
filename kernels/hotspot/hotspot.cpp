// Hotspot, the heat on a chip (Rodinia; Huang et al. 2006): a number of time steps of
//     T'[y, x] = T + step_div_cap (P + (N + S - 2 T) / Ry + (E + W - 2 T) / Rx + (ambient - T) / Rz)
// with power P, and neighbours N, S, E, W, a cell's own temperature in place of one beyond the border. All arrays are
// rows x cols.
//
// A step does little with what it loads, so time tiling pays: a tile is taken into a small buffer together with a border of
// TT cells, makes TT steps there while the border shrinks, and only then goes back to memory. The border is computed by several
// tiles. How large tile and TT should be, how many rows are updated at once and how the formula is best computed, depend on
// each other and on the instruction set.
//
// Returns the milliseconds of the simulation alone, as Kernel Tuner's C backend expects.

#include <algorithm>
#include <chrono>
#include <cstdlib>

#ifndef BX
#define BX 256 // columns of a tile
#endif
#ifndef BY
#define BY 32 // rows of a tile
#endif
#ifndef TT
#define TT 1 // time steps of a tile
#endif
#ifndef UY
#define UY 1 // rows that are updated at once
#endif
#ifndef VW
#define VW 4 // floats in a vector; 1 leaves the choice to the compiler's own vectorizer
#endif
#ifndef FOLD
#define FOLD 0 // 0: the formula as it stands; 1: its coefficients multiplied out; 2: the power's term computed once, too
#endif

namespace {

// A vector wider than the machine's would live in memory, not in registers: it is split into parts.
#ifdef __AVX__
constexpr int part = VW < 8 ? VW : 8;
#else
constexpr int part = VW < 4 ? VW : 4;
#endif
#if VW == 1
typedef float vec;
#else
typedef float vec __attribute__((vector_size(4 * part)));
#endif

constexpr int LD = BX + 2 * TT; // columns of a tile's buffer
constexpr int ROWS = BY + 2 * TT;

struct Chip {
    const float *power;
    int rows, cols;
    float rx, ry, rz, ambient, step;
};

template <class V> inline V heat(const Chip &c, V power) { return FOLD == 2 ? power : c.step * (power + c.ambient / c.rz); }

template <class V> inline V next(const Chip &c, V t, V n, V s, V e, V w, V p) {
    if (FOLD == 0) return t + c.step * (p + (n + s - 2.0f * t) / c.ry + (e + w - 2.0f * t) / c.rx + (c.ambient - t) / c.rz);
    const float cx = c.step / c.rx, cy = c.step / c.ry, own = 1 - 2 * cx - 2 * cy - c.step / c.rz;
    return own * t + (cy * (n + s) + (cx * (e + w) + heat(c, p)));
}

template <class V> inline V load(const float *p) { // at any address: a template's argument loses vec's alignment
    V value;
    __builtin_memcpy(&value, p, sizeof value);
    return value;
}

template <class V> inline void store(float *p, V value) { __builtin_memcpy(p, &value, sizeof value); }

// One V of columns from x in `count` rows; row[i] is the row above output row i, so that a loaded value serves three rows.
template <class V> inline void cells(const Chip &c, float *const *out, const float *const *row, const float *const *power,
                                     int count, int x, int west, int east) {
#pragma GCC unroll 8
    for (int i = 0; i < count; ++i)
        store(out[i] + x, next(c, load<V>(row[i + 1] + x), load<V>(row[i] + x), load<V>(row[i + 2] + x),
                               load<V>(row[i + 1] + east), load<V>(row[i + 1] + west), load<V>(power[i] + x)));
}

// `count` rows from y, columns from..to - 1. `in`, `out` point to cell (0, 0) of the chip, rows ld apart.
template <int count> void update_rows(const Chip &c, float *out, int ld_out, const float *in, int ld, int y, int from, int to) {
    const float *row[count + 2], *power[count];
    float *target[count];
    for (int i = 0; i < count + 2; ++i) row[i] = in + static_cast<long>(std::clamp(y + i - 1, 0, c.rows - 1)) * ld;
    for (int i = 0; i < count; ++i) {
        power[i] = c.power + static_cast<long>(y + i) * c.cols;
        target[i] = out + static_cast<long>(y + i) * ld_out;
    }
    int x = from;
    const int end = std::min(to, c.cols - 1);
    if (x == 0) cells<float>(c, target, row, power, count, 0, 0, std::min(1, c.cols - 1)), ++x;
    for (; x + VW <= end; x += VW)
#pragma GCC unroll 16
        for (int v = x; v < x + VW; v += part) cells<vec>(c, target, row, power, count, v, v - 1, v + 1);
    for (; x < to; ++x) cells<float>(c, target, row, power, count, x, x - 1, std::min(x + 1, c.cols - 1));
}

void update(const Chip &c, float *out, int ld_out, const float *in, int ld, int y, int y_end, int x, int x_end) {
    for (; y + UY <= y_end; y += UY) update_rows<UY>(c, out, ld_out, in, ld, y, x, x_end);
    for (; y < y_end; ++y) update_rows<1>(c, out, ld_out, in, ld, y, x, x_end);
}

// Up to TT steps of one tile: memory to buffer, buffer to buffer, buffer to memory.
void tile(const Chip &c, float *out, const float *in, int y, int x, int steps, float *room) {
    const int y_end = std::min(y + BY, c.rows), x_end = std::min(x + BX, c.cols);
    const long corner = static_cast<long>(y - TT) * LD + x - TT; // of the buffers, so that they are addressed like the chip
    const float *from = in;
    int ld = c.cols;
    for (int s = 1; s <= steps; ++s) {
        const int border = steps - s; // cells around the tile that later steps need
        float *to = s == steps ? out : room + (s % 2) * LD * ROWS - corner;
        const int ld_to = s == steps ? c.cols : LD;
        update(c, to, ld_to, from, ld, std::max(y - border, 0), std::min(y_end + border, c.rows), std::max(x - border, 0),
               std::min(x_end + border, c.cols));
        from = to;
        ld = ld_to;
    }
}

// Leaves the result in `out`; `other` is room for the steps between.
void simulate(const Chip &c, float *out, float *other, const float *in, int steps, float *room) {
    const int sweeps = (steps + TT - 1) / TT;
    for (int sweep = 0; sweep < sweeps; ++sweep) {
        float *to = (sweeps - sweep) % 2 == 1 ? out : other;
        for (int y = 0; y < c.rows; y += BY)
            for (int x = 0; x < c.cols; x += BX) tile(c, to, in, y, x, std::min(TT, steps - sweep * TT), room);
        in = to;
    }
}

} // namespace

extern "C" float hotspot(float *out, const float *temperature, const float *power, int rows, int cols, int steps, float rx,
                         float ry, float rz, float ambient, float step_div_cap) {
    const long cells = static_cast<long>(rows) * cols;
    float *room = static_cast<float *>(std::malloc(sizeof(float) * (2 * LD * ROWS + 2 * cells)));
    float *other = room + 2 * LD * ROWS, *scaled = other + cells;
    const auto start = std::chrono::steady_clock::now();
    Chip chip{power, rows, cols, rx, ry, rz, ambient, step_div_cap};
    if (FOLD == 2) {
        for (long i = 0; i < cells; ++i) scaled[i] = step_div_cap * (power[i] + ambient / rz);
        chip.power = scaled;
    }
    simulate(chip, out, other, temperature, steps, room);
    const std::chrono::duration<float, std::milli> elapsed = std::chrono::steady_clock::now() - start;
    std::free(room);
    return elapsed.count();
}
