// The gradients of attention as they are written down, in fp32: slow, and right. The tests' stage of the
// backward pass.

#include "stages/device.cuh"

namespace {

using namespace ladder;

constexpr int Br = 64, Bc = 64;  // query rows, or keys, of a block: a thread has one

__device__ bool visible(const Problem& p, int row, int key) {
    return key < p.Nk && (!p.causal || key <= row + p.Nk - p.Nq);
}

/// The number that these bits are in T: what fp16's exponent lacks against fp32's is 112.
template <class T>
__device__ float number(std::uint16_t bits) {
    constexpr int shift = std::is_same_v<T, fp16> ? 13 : 16;
    const std::uint32_t shifted = std::uint32_t(bits & 0x7fff) << shift;
    float x;
    std::memcpy(&x, &shifted, sizeof x);
    if (shift == 13) x *= 0x1p112f;
    return bits < 0x8000 ? x : -x;
}

template <class T, int d>
__device__ void load_row(float (&x)[d], const View& view, int b, int h, int row) {
    const auto* source = matrix<std::uint16_t>(view, b, h) + row * view.row;
    for (int c = 0; c < d; ++c) x[c] = number<T>(load(source + c));
}

template <class T, int d>
__device__ void store_row(const View& view, int b, int h, int row, const float (&x)[d]) {
    T* target = matrix<T>(view, b, h) + row * view.row;
    for (int c = 0; c < d; c += 2)
        store(reinterpret_cast<std::uint32_t*>(target + c), pack<T>(x[c], x[c + 1]));
}

template <int d>
__device__ float dot(const float (&x)[d], const float (&y)[d]) {
    float sum = 0.0f;
    for (int c = 0; c < d; ++c) sum += x[c] * y[c];
    return sum;
}

/// dQ of one row: the sum over its keys.
template <class T, int d>
__global__ void __launch_bounds__(Br) of_queries(const Problem p) {
    const int i = blockIdx.x * Br + threadIdx.x, h = blockIdx.y, b = blockIdx.z, h_kv = h / (p.H / p.Hkv);
    if (i >= p.Nq) return;
    float q[d], dO[d], o[d], k[d], v[d], dQ[d] = {};
    load_row<T>(q, p.Q, b, h, i);
    load_row<T>(dO, p.dO, b, h, i);
    load_row<T>(o, p.O, b, h, i);
    const float D = dot(dO, o), L = load(p.L + (std::int64_t{b} * p.H + h) * p.Nq + i);
    for (int j = 0; visible(p, i, j); ++j) {
        load_row<T>(k, p.K, b, h_kv, j);
        load_row<T>(v, p.V, b, h_kv, j);
        const float P = fast_exp2((p.scale * dot(q, k) - L) * log2_e), dS = P * (dot(dO, v) - D);
        for (int c = 0; c < d; ++c) dQ[c] += p.scale * dS * k[c];
    }
    store_row<T>(p.dQ, b, h, i, dQ);
}

/// dK and dV of one key: the sums over the rows of its group's heads that see it.
template <class T, int d>
__global__ void __launch_bounds__(Bc) of_keys(const Problem p) {
    const int j = blockIdx.x * Bc + threadIdx.x, h_kv = blockIdx.y, b = blockIdx.z, group = p.H / p.Hkv;
    if (j >= p.Nk) return;
    float q[d], dO[d], o[d], k[d], v[d], dK[d] = {}, dV[d] = {};
    load_row<T>(k, p.K, b, h_kv, j);
    load_row<T>(v, p.V, b, h_kv, j);
    for (int h = h_kv * group; h < (h_kv + 1) * group; ++h) {
        for (int i = 0; i < p.Nq; ++i) {
            if (!visible(p, i, j)) continue;
            load_row<T>(q, p.Q, b, h, i);
            load_row<T>(dO, p.dO, b, h, i);
            load_row<T>(o, p.O, b, h, i);
            const float D = dot(dO, o), L = load(p.L + (std::int64_t{b} * p.H + h) * p.Nq + i);
            const float P = fast_exp2((p.scale * dot(q, k) - L) * log2_e), dS = P * (dot(dO, v) - D);
            for (int c = 0; c < d; ++c) {
                dK[c] += p.scale * dS * q[c];
                dV[c] += P * dO[c];
            }
        }
    }
    store_row<T>(p.dK, b, h_kv, j, dK);
    store_row<T>(p.dV, b, h_kv, j, dV);
}

template <class T, int d>
void backward(const Problem& p) {
    launch(of_queries<T, d>, dim3(ceil_div(p.Nq, Br), p.H, p.B), Br, 0, p);
    launch(of_keys<T, d>, dim3(ceil_div(p.Nk, Bc), p.Hkv, p.B), Bc, 0, p);
}

using Dims = HeadDims<64>;
LADDER_STAGE(backward, Dims, .number = 40, .name = "gradients", .parent = 5,
             .change = "as they are written down", .shows_in = "backward", .pass = Pass::backward,
             .diff_budget = 0);

}  // namespace
