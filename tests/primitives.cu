#include "tests/primitives.h"

#include <cstring>

#include "stages/device.cuh"
#include "stages/hopper.cuh"

namespace {

using namespace ladder;

using Words = std::vector<std::uint32_t>;

/// 16-bit numbers in (-2, 2), as bits of T, that look random and are the same everywhere.
template <class T>
__host__ __device__ std::uint32_t sample(std::uint32_t i) {
    i = (i + 1) * 2654435761u;
    i = (i ^ i >> 15) * 2246822519u;
    i ^= i >> 13;
    // A sign, an exponent at or just below that of 1, and any mantissa.
    const std::uint32_t sign = i << 15 & 0x8000u, bits = i >> 8;
    return std::is_same_v<T, fp16> ? sign | (0x3800u + bits % 0x0800u) : sign | (0x3f00u + bits % 0x0100u);
}

template <class T>
__host__ __device__ std::uint32_t sample_pair(std::uint32_t i) {
    return sample<T>(2 * i) | sample<T>(2 * i + 1) << 16;
}

struct Quads {
    std::uint32_t word[32][4];
};

struct Tile {
    std::uint16_t element[32][8];
};

__device__ Tile& numbered_tile() {
    auto& tile = shared_memory<Tile>();
    for (int c = 0; c < 8; ++c) {
        store(&tile.element[threadIdx.x][c], static_cast<std::uint16_t>(100 * threadIdx.x + c));
    }
    __syncthreads();
    return tile;
}

template <bool transposed>
__global__ void ldmatrix_kernel(std::uint32_t* out) {
    auto& tile = numbered_tile();
    std::uint32_t r[4];
    // Rows in another order than the lanes', so that who names a row matters.
    const int row = (threadIdx.x * 5 + 3) % 32;
    if constexpr (transposed) {
        ldmatrix_transposed(r, tile.element[row]);
    } else {
        ldmatrix(r, tile.element[row]);
    }
    for (int k = 0; k < 4; ++k) store(&out[4 * threadIdx.x + k], r[k]);
}

template <class T>
__global__ void mma_kernel(float* out) {
    const int lane = threadIdx.x;
    float d[4];
    std::uint32_t a[4];
    for (int k = 0; k < 4; ++k) {
        d[k] = 0.25f * static_cast<float>(lane) - static_cast<float>(k);
        a[k] = sample_pair<T>(4 * lane + k);
    }
    mma<T>(d, a, sample_pair<T>(1000 + lane), sample_pair<T>(2000 + lane));
    for (int k = 0; k < 4; ++k) store(&out[4 * lane + k], d[k]);
}

__global__ void shuffle_kernel(std::uint32_t* out) {
    const std::uint32_t value = sample_pair<fp16>(threadIdx.x);
    std::uint32_t* mine = out + 8 * threadIdx.x;
    store(mine + 0, __shfl_sync(~0u, value, 7));
    store(mine + 1, __shfl_sync(~0u, value, (threadIdx.x * 3 + 1) % 32));
    store(mine + 2, __shfl_sync(~0u, value, 5, 8));
    store(mine + 3, __shfl_xor_sync(~0u, value, 1));
    store(mine + 4, __shfl_xor_sync(~0u, value, 18));
    store(mine + 5, __shfl_xor_sync(~0u, value, 12, 8));
    store(mine + 6, __shfl_up_sync(~0u, value, 3));
    store(mine + 7, __shfl_down_sync(~0u, value, 3, 16));
}

__global__ void vote_kernel(std::uint32_t* out) {
    std::uint32_t* mine = out + 4 * threadIdx.x;
    store(mine + 0, std::uint32_t(__any_sync(~0u, threadIdx.x == 17) != 0));
    store(mine + 1, std::uint32_t(__any_sync(~0u, threadIdx.x > 31) != 0));
    const std::uint32_t half = threadIdx.x % 2 == 0 ? 0x55555555u : 0xaaaaaaaau;
    store(mine + 2, std::uint32_t(__any_sync(half, threadIdx.x == 5) != 0));
    store(mine + 3, std::uint32_t(__any_sync(~0u, 2) != 0));
}

/// Values whose rounding to 16 bits is a question: ties, overflow, what is too small, infinities, signed
/// zero.
__device__ float hard_to_round(int i) {
    const float values[16] = {0.0f,
                              -0.0f,
                              1.0f + 0x1p-11f,
                              1.0f + 3 * 0x1p-11f,
                              1.0f + 0x1p-8f,
                              1.0f + 3 * 0x1p-8f,
                              65504.0f,
                              65519.0f,
                              65520.0f,
                              0x1p-24f,
                              0x1p-25f,
                              1.5f * 0x1p-25f,
                              3.3e38f,
                              3.402e38f,
                              inf,
                              -inf};
    float value = 0.0f;
    for (int k = 0; k < 16; ++k) value = k == i % 16 ? values[k] : value;
    return value;
}

template <class T>
__global__ void pack_kernel(std::uint32_t* out) {
    store(&out[threadIdx.x], pack<T>(hard_to_round(threadIdx.x), -hard_to_round(threadIdx.x / 2 + 5)));
}

// The inputs are exact, so that no compiler's fused multiply-add changes them.

__global__ void exp2_kernel(float* out) {
    const int lane = threadIdx.x;
    store(&out[2 * lane], fast_exp2(lane == 0 ? -inf : -static_cast<float>(261 * lane) / 64));
    store(&out[2 * lane + 1], fast_exp2(static_cast<float>(49 * lane - 768) / 64));
}

__global__ void divide_kernel(float* out) {
    const int lane = threadIdx.x;
    store(&out[lane], divide(static_cast<float>(1 + lane), static_cast<float>(237 + 185 * lane) / 64));
}

__global__ void copy_kernel(std::uint32_t* out) {
    auto& shared = shared_memory<Quads>();
    const int lane = threadIdx.x;
    for (int k = 0; k < 4; ++k) store(&out[4 * lane + k], sample_pair<fp16>(4 * lane + k));
    copy_async(shared.word[lane], out + 4 * lane, lane % 3 != 0);
    copy_wait();
    __syncthreads();
    for (int k = 0; k < 4; ++k) store(&out[4 * lane + k], load(&shared.word[31 - lane][k]));
}

/// Two lanes add to the same four sums, and each to one sum alone; all of it exact.
__global__ void atomic_add_kernel(float* out) {
    const auto x = static_cast<float>(threadIdx.x);
    auto* sums = reinterpret_cast<float4*>(out);
    store(&sums[threadIdx.x], {x, 2.0f * x, 100.0f, -x});
    __syncthreads();
    atomic_add(&sums[threadIdx.x / 2 * 2], {1.0f, x, 0.25f * x, 3.0f});
    atomic_add(&sums[31 - threadIdx.x].w, 0.5f * x);
}

/// Two groups of copies; what the first brought is read while the second may be in flight.
__global__ void copy_groups_kernel(std::uint32_t* out) {
    auto& shared = shared_memory<Quads[2]>();
    const int lane = threadIdx.x;
    for (int k = 0; k < 4; ++k) store(&out[4 * lane + k], sample_pair<fp16>(3000 + 4 * lane + k));
    for (int group = 0; group < 2; ++group) {
        copy_async(shared[group].word[lane], out + 4 * lane, lane % 5 != group);
        copy_commit();
    }
    copy_wait<1>();
    __syncwarp();
    const std::uint32_t first = load(&shared[0].word[31 - lane][1]);
    copy_wait<0>();
    __syncwarp();
    store(&out[4 * lane], first);
    for (int k = 1; k < 4; ++k) store(&out[4 * lane + k], load(&shared[1].word[31 - lane][k]));
}

/// Runs a kernel by one warp and returns its output, `words` per lane.
template <class V>
Words result_of(Device& device, int words, void (*kernel)(V*)) {
    Words result(32 * words);
    const std::size_t bytes = result.size() * sizeof(std::uint32_t);
    const Buffer out(device, bytes, "the result", true);
    launch(kernel, dim3(1), 32, sizeof(Quads[2]), static_cast<V*>(out.data()));
    device.download(result.data(), out.data(), bytes);
    return result;
}

// ---------------------------------------------------------------------------------------------------------------
// Hopper's

/// An operand of a product: rows of 64 elements, or more panels of them, with 128-byte swizzle.
template <int rows>
struct Panels {
    alignas(1024) std::uint16_t element[rows][64];
};

/// Element i of operand A (0), B (1).
template <class T>
__host__ __device__ std::uint32_t operand(int which, int row, int column) {
    return sample<T>(static_cast<std::uint32_t>(100000 * which + 512 * row + column));
}
__host__ __device__ float before(int row, int column) {
    return 0.25f * static_cast<float>(row) - static_cast<float>(column % 7);
}

template <int N, bool B_transposed>
struct Operands {
    Panels<64> A;
    Panels<B_transposed ? 64 * ((N + 63) / 64) : N> B;
};

enum class A_in { memory, registers };

/// A (64 x 16) is columns 16 to 31 of its tile, B rows or columns 16 to 31. In memory: twice, the first time
/// without what D was.
template <class T, int N, A_in A_place, bool B_transposed>
__global__ void wgmma_kernel(float* out) {
    auto& shared = aligned_shared_memory<Operands<N, B_transposed>>();
    const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
    const auto fill = [&](auto& tile, int which, int rows) {
        for (int i = thread; i < rows * 64; i += 128) {
            const int row = i / 64, column = i % 64;
            // Panel p of a transposed B is columns 64 p to 64 p + 63.
            const bool panels = which == 1 && B_transposed;
            const std::uint32_t bits =
                operand<T>(which, panels ? row % 64 : row, panels ? row / 64 * 64 + column : column);
            store(&tile.element[row][column ^ row % 8 * 8], static_cast<std::uint16_t>(bits));
        }
    };
    fill(shared.A, 0, 64);
    fill(shared.B, 1, sizeof shared.B / 128);
    fence_proxy_async();
    __syncthreads();
    const int first_row = 16 * warp + lane / 4, first_column = 2 * (lane % 4);
    float D[N / 2];
    for (int i = 0; i < N / 2; ++i) D[i] = before(first_row + 8 * row_of(i), first_column + column_of(i));
    std::uint32_t a[4];
    for (int r = 0; r < 4; ++r) {
        const int row = first_row + 8 * (r % 2), column = 16 + first_column + 8 * (r / 2);
        a[r] = operand<T>(0, row, column) | operand<T>(0, row, column + 1) << 16;
    }
    const Descriptor A = matrix_descriptor(shared.A).template column<64>(16),
                     b = matrix_descriptor(shared.B, 64);
    const Descriptor B = B_transposed ? b.row(16) : b.template column<64>(16);
    wgmma_fence();
    if constexpr (A_place == A_in::memory) {
        wgmma<T, N, B_transposed>(D, A, B, false);
        wgmma<T, N, B_transposed>(D, A, B, true);
    } else {
        wgmma<T, N, B_transposed>(D, a, B, true);
    }
    wgmma_commit();
    wgmma_wait<0>(D);
    fence_operand(a);
    for (int i = 0; i < N / 2; ++i) store(&out[thread * (N / 2) + i], D[i]);
}

template <bool transposed>
__global__ void stmatrix_kernel(std::uint32_t* out) {
    auto& tile = aligned_shared_memory<Quads>();
    const int lane = static_cast<int>(threadIdx.x);
    std::uint32_t r[4];
    for (int k = 0; k < 4; ++k) r[k] = sample_pair<fp16>(4 * lane + k);
    auto* row = reinterpret_cast<std::uint16_t*>(tile.word[(lane * 5 + 3) % 32]);
    transposed ? stmatrix_transposed(row, r) : stmatrix(row, r);
    __syncwarp();
    for (int k = 0; k < 4; ++k) store(&out[4 * lane + k], load(&tile.word[lane][k]));
}

// Bulk copies of boxes of 16 rows of 64, the last of which leave a tensor of 37 rows.
constexpr int bulk_rows = 37, bulk_box = 16, bulk_from = 28, bulk_to = 30, words_of_row = 32;
constexpr int bulk_words =
    (2 * bulk_rows + bulk_box + 3) * words_of_row;  // tensor, box, tensor and 3 rows more

struct Box {
    alignas(1024) std::uint32_t word[bulk_box][words_of_row];
    Mbarrier there;
};

__global__ void bulk_fill_kernel(std::uint32_t* out) {
    for (int i = static_cast<int>(threadIdx.x); i < bulk_words; i += 32) store(&out[i], sample_pair<bf16>(i));
}

__global__ void bulk_kernel(std::uint32_t* box, const __grid_constant__ TensorMap from,
                            const __grid_constant__ TensorMap to) {
    auto& shared = aligned_shared_memory<Box>();
    if (threadIdx.x == 0) {
        mbarrier_init(&shared.there, 1);
        mbarrier_fence_init();
        mbarrier_expect(&shared.there, sizeof shared.word);
        bulk_load(shared.word, &from, bulk_from, 0, 0, &shared.there);
    }
    __syncwarp();
    mbarrier_try_wait(&shared.there, 0);
    for (int row = 0; row < bulk_box; ++row)
        store(&box[row * words_of_row + threadIdx.x], load(&shared.word[row][threadIdx.x]));
    __syncwarp();
    if (threadIdx.x == 0) {
        bulk_store(&to, shared.word, 0, bulk_to, 0, 0);
        bulk_commit();
        bulk_wait<0>();
    }
}

// Floats that lie together: brought, and added to others.
constexpr int line_words = 20;

struct Line {
    alignas(16) float value[line_words];
    Mbarrier there;
};

__global__ void line_kernel(float* out) {
    const int i = static_cast<int>(threadIdx.x);
    if (i >= line_words) return;
    store(&out[i], 1.5f * static_cast<float>(i));
    store(&out[line_words + i], 100.0f);
}

__global__ void add_line_kernel(float* out) {
    auto& shared = aligned_shared_memory<Line>();
    if (threadIdx.x > 0) return;
    mbarrier_init(&shared.there, 1);
    mbarrier_fence_init();
    mbarrier_expect(&shared.there, sizeof shared.value);
    bulk_load(shared.value, out, sizeof shared.value, &shared.there);
    mbarrier_try_wait(&shared.there, 0);
    for (int n = 0; n < 2; ++n) bulk_add(out + line_words, shared.value, sizeof shared.value);
    bulk_commit();
    bulk_wait<0>();
}

__global__ void is_built_for_hopper_kernel(std::uint32_t* out) {
#if defined(__CUDACC__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
    store(out, 0u);
#else
    store(out, 1u);
#endif
}

/// Runs f(address) with memory for so many words, and returns these.
template <class F>
Words words_of(Device& device, std::size_t count, F f) {
    Words result(count);
    const Buffer out(device, 4 * count, "the result", true);
    f(out.data());
    device.download(result.data(), out.data(), 4 * count);
    return result;
}

template <class T, int N, A_in A_place, bool B_transposed>
Words run_wgmma(Device& device) {
    return words_of(device, 64 * N, [](void* out) {
        launch(wgmma_kernel<T, N, A_place, B_transposed>, dim3(1), 128, sizeof(Operands<N, B_transposed>),
               static_cast<float*>(out));
    });
}

Words run_bulk(Device& device) {
    return words_of(device, bulk_words, [](void* out) {
        auto* words = static_cast<std::uint32_t*>(out);
        const auto map = [](std::uint32_t* data) {
            constexpr std::int64_t elements = std::int64_t{bulk_rows} * 64;
            return tensor_map<bf16, 64>({data, elements, elements, 64}, 1, 1, bulk_rows, bulk_box);
        };
        std::uint32_t* box = words + bulk_rows * words_of_row;
        launch(bulk_fill_kernel, dim3(1), 32, 0, words);
        launch(bulk_kernel, dim3(1), 32, sizeof(Box), box, map(words), map(box + bulk_box * words_of_row));
    });
}

/// Calls f<T, N, A_place, B_transposed>(name) for each product.
template <class F>
void each_wgmma(F f) {
    const auto of_type = [&]<class T>(const std::string& type) {
        const auto of_width = [&]<int N>() {
            const std::string end = "_" + type + "_" + std::to_string(N);
            f.template operator()<T, N, A_in::memory, false>("wgmma_ss" + end);
            f.template operator()<T, N, A_in::memory, true>("wgmma_ss_transposed" + end);
            f.template operator()<T, N, A_in::registers, false>("wgmma_rs" + end);
            f.template operator()<T, N, A_in::registers, true>("wgmma_rs_transposed" + end);
        };
        of_width.template operator()<64>();
        of_width.template operator()<80>();
        of_width.template operator()<128>();
        of_width.template operator()<256>();
    };
    of_type.template operator()<fp16>("fp16");
    of_type.template operator()<bf16>("bf16");
}

}  // namespace

namespace primitives {

template <>
Results run_hopper<Backend::LADDER_BACKEND>(Device& device) {
    const auto built = [](void* out) {
        launch(is_built_for_hopper_kernel, dim3(1), 1, 0, static_cast<std::uint32_t*>(out));
    };
    if (words_of(device, 1, built)[0] == 0) return {};
    Results results;
    each_wgmma([&]<class T, int N, A_in A_place, bool B_transposed>(const std::string& name) {
        results[name] = run_wgmma<T, N, A_place, B_transposed>(device);
    });
    results.merge(run_e4m3<Backend::LADDER_BACKEND>(device));
    results["stmatrix"] = result_of(device, 4, stmatrix_kernel<false>);
    results["stmatrix_transposed"] = result_of(device, 4, stmatrix_kernel<true>);
    results["bulk_add"] = words_of(device, 2 * line_words, [](void* out) {
        launch(line_kernel, dim3(1), 32, 0, static_cast<float*>(out));
        launch(add_line_kernel, dim3(1), 32, sizeof(Line), static_cast<float*>(out));
    });
    results["bulk"] = run_bulk(device);
    return results;
}

#ifndef __CUDACC__
Results hopper_by_formula() {
    Results results = e4m3_by_formula();
    each_wgmma([&]<class T, int N, A_in A_place, bool B_transposed>(const std::string& name) {
        const auto value = [](int which, int row, int column) {
            return simt::value_of(T{static_cast<std::uint16_t>(operand<T>(which, row, column))});
        };
        Words& words = results[name];
        for (int thread = 0; thread < 128; ++thread) {
            for (int i = 0; i < N / 2; ++i) {
                const int row = thread / 32 * 16 + thread % 32 / 4 + 8 * (i / 2 % 2);
                const int column = 2 * (thread % 4) + i % 2 + 8 * (i / 4);
                double sum = 0.0;
                for (int k = 16; k < 32; ++k)
                    sum +=
                        double{value(0, row, k)} * (B_transposed ? value(1, k, column) : value(1, column, k));
                const auto D =
                    static_cast<float>(A_place == A_in::memory ? 2 * sum : before(row, column) + sum);
                std::memcpy(&words.emplace_back(), &D, 4);
            }
        }
    });
    Words &stored = results["stmatrix"], &transposed = results["stmatrix_transposed"];
    stored.resize(32 * 4);
    transposed.resize(32 * 4);
    for (int lane = 0; lane < 32; ++lane) {
        for (int k = 0; k < 4; ++k) {  // in the rows that lanes 8 k to 8 k + 7 name
            const auto word = [&](int row, int place) {
                return static_cast<std::size_t>(((8 * k + row) * 5 + 3) % 32 * 4 + place);
            };
            const std::uint32_t pair = sample_pair<fp16>(4 * lane + k);
            stored[word(lane / 4, lane % 4)] = pair;
            for (int i = 0; i < 2; ++i)
                transposed[word(lane % 4 * 2 + i, lane / 8)] |= (pair >> 16 * i & 0xffff)
                                                                << lane / 4 % 2 * 16;
        }
    }
    Words& sums = results["bulk_add"];
    for (int i = 0; i < 2 * line_words; ++i) {
        const float brought = 1.5f * static_cast<float>(i % line_words);
        const float value = i < line_words ? brought : 100.0f + 2 * brought;
        std::memcpy(&sums.emplace_back(), &value, 4);
    }
    Words& bulk = results["bulk"];
    for (int i = 0; i < bulk_words; ++i) bulk.push_back(sample_pair<bf16>(i));
    for (int row = 0; row < bulk_box; ++row) {
        for (int i = 0; i < words_of_row; ++i) {
            const int from = bulk_from + row, to = bulk_rows + bulk_box + bulk_to + row;
            const std::uint32_t word = from < bulk_rows ? sample_pair<bf16>(from * words_of_row + i) : 0;
            bulk[(bulk_rows + row) * words_of_row + (i ^ row % 8 * 4)] = word;
            if (bulk_to + row < bulk_rows) bulk[to * words_of_row + i] = word;
        }
    }
    return results;
}
#endif

template <>
Results run<Backend::LADDER_BACKEND>(Device& device) {
    Results results;
    results["ldmatrix"] = result_of(device, 4, ldmatrix_kernel<false>);
    results["ldmatrix_transposed"] = result_of(device, 4, ldmatrix_kernel<true>);
    results["mma_fp16"] = result_of(device, 4, mma_kernel<fp16>);
    if (device.compute_capability() >= 80) results["mma_bf16"] = result_of(device, 4, mma_kernel<bf16>);
    results["pack_fp16"] = result_of(device, 1, pack_kernel<fp16>);
    results["pack_bf16"] = result_of(device, 1, pack_kernel<bf16>);
    results["shuffle"] = result_of(device, 8, shuffle_kernel);
    results["vote"] = result_of(device, 4, vote_kernel);
    results["exp2"] = result_of(device, 2, exp2_kernel);
    results["divide"] = result_of(device, 1, divide_kernel);
    results["copy_async"] = result_of(device, 4, copy_kernel);
    results["copy_groups"] = result_of(device, 4, copy_groups_kernel);
    results["atomic_add"] = result_of(device, 4, atomic_add_kernel);
    return results;
}

}  // namespace primitives
