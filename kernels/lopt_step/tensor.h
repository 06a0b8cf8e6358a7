// The tensors of a plan as a kernel sees them: elements by their place in the logical order, whatever strides and type.
#pragma once
#include <cstring>

#include "plan.h"

#ifndef BLOCK  // elements that are worked on together
#define BLOCK 64
#endif

namespace lopt {
namespace {  // nothing is shared by two libraries in one process, whatever their macros

using plan::index_t;

inline uint32_t bits_of(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    return bits;
}

inline float float_of(uint32_t bits) {
    float x;
    std::memcpy(&x, &bits, 4);
    return x;
}

// A short copy; the usual length, a whole block, is known to the compiler, and a call to memcpy would cost as much as the rest.
inline void copy(const float* from, int n, float* to) {
    if (n == BLOCK)
        for (int i = 0; i < BLOCK; ++i) to[i] = from[i];
    else
        std::memcpy(to, from, n * sizeof(float));
}

// Conversions round to nearest even and keep infinities and NaN, as torch's do.
struct Float32 {
    typedef float storage;
    static float widen(storage x) { return x; }
    static storage narrow(float x) { return x; }
};

struct BFloat16 {
    typedef uint16_t storage;
    static float widen(storage x) { return float_of(static_cast<uint32_t>(x) << 16); }
    static storage narrow(float x) {
        const uint32_t b = bits_of(x), rounded = (b + 0x7fff + ((b >> 16) & 1)) >> 16;
        return static_cast<storage>(x == x ? rounded : 0x7fc0);
    }
};

struct Float16 {
    typedef uint16_t storage;
    static float widen(storage x) {
        const uint32_t sign = static_cast<uint32_t>(x & 0x8000) << 16, rest = static_cast<uint32_t>(x & 0x7fff) << 13;
        const float small = float_of(rest) * 0x1p112f;  // the exponent's bias is 127 instead of 15; subnormals come out right
        const uint32_t magnitude = rest >= 0x0f800000 ? rest | 0x7f800000 : bits_of(small);
        return float_of(sign | magnitude);
    }
    static storage narrow(float x) {
        const uint32_t b = bits_of(x), sign = b >> 16 & 0x8000, a = b & 0x7fffffff;
        const uint32_t normal = (a - 0x38000000 + 0xfff + (a >> 13 & 1)) >> 13;
        const uint32_t subnormal = bits_of(float_of(a) + 0.5f) - 0x3f000000;  // the addition rounds at 2^-24
        const uint32_t finite = a < 0x38800000 ? subnormal : normal < 0x7c00 ? normal : 0x7c00;
        return static_cast<storage>(sign | (a > 0x7f800000 ? 0x7e00 : finite));
    }
};

// p, g or the output of one tensor.
class Elements {
  public:
    Elements(uintptr_t base, const index_t* record, int pointer, int type, int stride)
        : address_(base + static_cast<uintptr_t>(record[pointer])), type_(record[type]), size_(record + plan::SIZE0),
          stride_(record + stride), contiguous_(true) {
        for (int d = 0; d + 1 < plan::DIMS; ++d) contiguous_ = contiguous_ && size_[d] == 1;
        contiguous_ = contiguous_ && stride_[plan::DIMS - 1] == 1;
    }

    // to[i] <- element e + i, for i < n.
    void read(index_t e, int n, float* to) const {
        if (type_ == plan::FLOAT32) read_as<Float32>(e, n, to);
        else if (type_ == plan::BFLOAT16) read_as<BFloat16>(e, n, to);
        else read_as<Float16>(e, n, to);
    }

    // element e + i <- from[i], for i < n.
    void write(index_t e, int n, const float* from) const {
        if (type_ == plan::FLOAT32) write_as<Float32>(e, n, from);
        else if (type_ == plan::BFLOAT16) write_as<BFloat16>(e, n, from);
        else write_as<Float16>(e, n, from);
    }

  private:
    template <class Type> void read_as(index_t e, int n, float* to) const {
        const auto* data = reinterpret_cast<const typename Type::storage*>(address_);
        if (contiguous_ && n == BLOCK)
            for (int i = 0; i < BLOCK; ++i) to[i] = Type::widen(data[e + i]);
        else if (contiguous_)
            for (int i = 0; i < n; ++i) to[i] = Type::widen(data[e + i]);
        else
            walk(e, n, [&](int i, index_t at) { to[i] = Type::widen(data[at]); });
    }

    template <class Type> void write_as(index_t e, int n, const float* from) const {
        auto* data = reinterpret_cast<typename Type::storage*>(address_);
        if (contiguous_)
            for (int i = 0; i < n; ++i) data[e + i] = Type::narrow(from[i]);
        else
            walk(e, n, [&](int i, index_t at) { data[at] = Type::narrow(from[i]); });
    }

    // visit(i, offset of element e + i in elements), by counting the axes up.
    template <class Visit> void walk(index_t e, int n, Visit visit) const {
        index_t place[plan::DIMS], at = 0;
        for (int d = plan::DIMS - 1; d >= 0; --d) {
            place[d] = e % size_[d];
            e /= size_[d];
            at += place[d] * stride_[d];
        }
        for (int i = 0; i < n; ++i) {
            visit(i, at);
            for (int d = plan::DIMS - 1; d >= 0; --d) {
                at += stride_[d];
                if (++place[d] < size_[d]) break;
                at -= size_[d] * stride_[d];
                place[d] = 0;
            }
        }
    }

    uintptr_t address_;
    index_t type_;
    const index_t *size_, *stride_;
    bool contiguous_;
};

// What the addresses of a plan count from: 0 in an optimizer, arrays where a kernel is measured alone.
struct Bases {
    const void *p, *g, *out, *m, *v, *slow, *fast;
};

inline uintptr_t number(const void* p) { return reinterpret_cast<uintptr_t>(p); }

// One tensor: (outer, x, mid, y, z), a batch is (outer, mid), a row (batch, x) is `run` long.
struct Tensor {
    index_t numel, outer, x, mid, z, run, slow_size, fast_size;
    bool factored, row_is_slow;
    Elements p, g, out;
    float *m, *v, *slow, *fast;  // m: 3 x numel, slow: 3 x slow_size, fast: 3 x fast_size; below two dimensions fast is D

    Tensor(const Bases& b, const index_t* r)
        : numel(r[plan::NUMEL]), outer(r[plan::OUTER]), x(r[plan::X]), mid(r[plan::MID]), z(r[plan::Z]),
          run(r[plan::Y] * z), slow_size(outer * x * mid * z), fast_size(outer * mid * run),
          factored(r[plan::FLAGS] & plan::FACTORED), row_is_slow(r[plan::FLAGS] & plan::ROW_IS_SLOW),
          p(number(b.p), r, plan::P, plan::P_TYPE, plan::P_STRIDE0),
          g(number(b.g), r, plan::G, plan::G_TYPE, plan::G_STRIDE0),
          out(number(b.out), r, plan::OUT, plan::OUT_TYPE, plan::OUT_STRIDE0), m(at(b.m, r[plan::M])),
          v(at(b.v, r[plan::V])), slow(at(b.slow, r[plan::SLOW])), fast(at(b.fast, r[plan::FAST])) {}

    index_t row(index_t batch, index_t x_at) const { return (batch / mid * x + x_at) * mid + batch % mid; }
    index_t element(index_t batch, index_t x_at, index_t j) const { return row(batch, x_at) * run + j; }
    index_t slow_at(index_t batch, index_t x_at) const { return row(batch, x_at) * z; }
    index_t fast_at(index_t batch, index_t j) const { return batch * run + j; }

  private:
    static float* at(const void* base, index_t offset) {
        return reinterpret_cast<float*>(number(base) + static_cast<uintptr_t>(offset));
    }
};

struct Tile {
    index_t tensor, batch_from, batch_to, x_from, x_to, j_from, j_to, x_piece, j_piece;

    explicit Tile(const index_t* t)
        : tensor(t[plan::TENSOR]), batch_from(t[plan::BATCH_FROM]), batch_to(t[plan::BATCH_TO]), x_from(t[plan::X_FROM]),
          x_to(t[plan::X_TO]), j_from(t[plan::J_FROM]), j_to(t[plan::J_TO]), x_piece(t[plan::X_PIECE]),
          j_piece(t[plan::J_PIECE]) {}
};

// What is done to a gradient on the way in.
struct GradientRule {
    float scale, bound;  // bound: clip(g, -bound, bound); infinite for none
    bool replace_nan, ok;

    GradientRule(const float* rates, float bound_, bool replace)
        : scale(rates[plan::GRADIENT_SCALE]), bound(bound_), replace_nan(replace), ok(rates[plan::OK] != 0.0f) {}

    void operator()(float* g, int n) const {
        constexpr float largest = 3.402823466e38f;
        if (replace_nan)
            for (int i = 0; i < n; ++i) g[i] = g[i] != g[i] ? 0.0f : g[i] > largest ? largest : g[i] < -largest ? -largest : g[i];
        for (int i = 0; i < n; ++i) {
            float x = g[i] * scale;
            x = x > bound ? bound : x;
            x = x < -bound ? -bound : x;
            g[i] = ok ? x : 0.0f;  // the scale may be NaN too
        }
    }
};

}  // namespace
}  // namespace lopt
