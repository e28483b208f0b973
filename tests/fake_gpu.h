/// @file
/// A GPU and a small problem for tests of what times stages.
#pragma once

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "harness/problem/tensors.h"
#include "harness/time/timing.h"
#include "reference/attention.h"
#include "tests/catch.h"

namespace ladder::test {

/// A GPU that computes with the reference, tells invented times, and remembers which stages it timed.
class FakeGpu final : public Device, public Stopwatch {
  public:
    std::map<int, double> milliseconds;                                 ///< per stage
    double jitter = 0;                                                  ///< added to every other time
    std::size_t memory = 1 << 30;                                       ///< largest allocation
    int capability = 90;                                                ///< of its computing
    int wrong_stage = -1;                                               ///< writes zeros
    std::function<void(const Problem&)> spoil = [](const Problem&) {};  ///< called at the end of a run
    std::vector<int> timed, ran;
    std::size_t downloaded = 0;             ///< bytes
    std::function<void()> on_time = [] {};  ///< called at every timing

    Backend backend() const override { return Backend::gpu; }
    std::string description() const override { return "fake GPU"; }
    int sm_count() const override { return 4; }
    int compute_capability() const override { return capability; }
    std::size_t free_memory() const override { return memory; }
    void* allocate(std::size_t bytes, const char* name, bool) override {
        if (bytes > memory) throw CannotRun(std::string(name) + " needs more");
        return std::malloc(bytes);
    }
    void release(void* pointer) override { std::free(pointer); }
    void upload(void* device, const void* host, std::size_t bytes) override {
        std::memcpy(device, host, bytes);
    }
    void download(void* host, const void* device, std::size_t bytes) override {
        downloaded += bytes;
        std::memcpy(host, device, bytes);
    }

    void run(const Stage& stage, const Problem& p) override {
        REQUIRE(p.dtype == DType::bf16);
        ran.push_back(stage.number);
        if (stage.pass == Pass::backward) return differentiate(stage, p);
        for (int i = 0; i < p.B * p.H; ++i) {
            const int b = i / p.H, h = i % p.H;
            const auto head = [&](const View& view, int index, int N) {
                return head_of<Eigen::bfloat16>(view, b, index, N, p.d);
            };
            const auto matrix = [&](const View& view, int index, int N) -> reference::Matrix {
                return head(view, index, N).cast<double>();
            };
            const int kv = h / (p.H / p.Hkv), length = p.lengths == nullptr ? p.Nk : p.lengths[b];
            const auto keys = [&](const View& view) -> reference::Matrix {
                if (p.block_table == nullptr) return matrix(view, kv, p.Nk);
                reference::Matrix rows = reference::Matrix::Zero(p.Nk, p.d);
                const int pages = (p.Nk + p.page_size - 1) / p.page_size;
                for (int j = 0; j < length; ++j) {
                    const int page = p.block_table[b * pages + j / p.page_size];
                    const auto own = head_of<Eigen::bfloat16>(view, page, kv, p.page_size, p.d);
                    rows.row(j) = own.row(j % p.page_size).template cast<double>();
                }
                return rows;
            };
            reference::Mask mask{p.causal, p.Nq, length};
            mask.dropout = {p.dropout.kept, p.dropout.seed, b, h};
            const auto [O, L, peak] =
                reference::attention(matrix(p.Q, h, p.Nq), keys(p.K), keys(p.V), p.scale, mask);
            head(p.O, h, p.Nq) = (stage.number == wrong_stage ? 0 * O : O).cast<Eigen::bfloat16>();
            for (int row = 0; row < p.Nq; ++row) p.L[i * p.Nq + row] = static_cast<float>(L[row]);
        }
        spoil(p);
    }

    /// The gradients from the given O and L.
    void differentiate(const Stage& stage, const Problem& p) {
        const auto indices = [](int N) -> Eigen::VectorXi { return Eigen::VectorXi::LinSpaced(N, 0, N - 1); };
        for (int item = 0; item < p.B * p.Hkv; ++item) {
            const int b = item / p.Hkv, kv = item % p.Hkv, group = p.H / p.Hkv;
            const auto head = [&](const View& view, int h, int N) {
                return head_of<Eigen::bfloat16>(view, b, h, N, p.d);
            };
            const auto matrix = [&](const View& view, int h, int N) -> reference::Matrix {
                return head(view, h, N).cast<double>();
            };
            reference::Matrix dK = reference::Matrix::Zero(p.Nk, p.d), dV = dK;
            for (int h = kv * group; h < (kv + 1) * group; ++h) {
                const float* L = p.L + (b * p.H + h) * p.Nq;
                const auto gradients = reference::attention_gradient(
                    matrix(p.Q, h, p.Nq), indices(p.Nq), matrix(p.K, kv, p.Nk), indices(p.Nk),
                    matrix(p.V, kv, p.Nk), matrix(p.dO, h, p.Nq),
                    {matrix(p.O, h, p.Nq), Eigen::Map<const Eigen::VectorXf>(L, p.Nq).cast<double>()},
                    p.scale, {p.causal, p.Nq, p.Nk});
                head(p.dQ, h, p.Nq) = gradients.dQ.cast<Eigen::bfloat16>();
                dK += gradients.dK;
                dV += gradients.dV;
            }
            head(p.dK, kv, p.Nk) = (stage.number == wrong_stage ? 0 * dK : dK).cast<Eigen::bfloat16>();
            head(p.dV, kv, p.Nk) = dV.cast<Eigen::bfloat16>();
        }
        spoil(p);
    }

    /// Of ranks among which the keys are divided, and nothing else: each computes with all of them.
    void run_ranks(const Stage& stage, const std::vector<Problem>& problems, const Shape& whole) override {
        using Rows = Eigen::Matrix<Eigen::bfloat16, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
        const auto gathered = [&](View Problem::*tensor) {
            Rows all(whole.B * whole.Hkv * whole.Nk, whole.d);
            int row = 0;
            for (int i = 0; i < whole.B * whole.Hkv; ++i) {
                for (const Problem& p : problems) {
                    all.middleRows(row, p.Nk) =
                        head_of<Eigen::bfloat16>(p.*tensor, i / whole.Hkv, i % whole.Hkv, p.Nk, p.d);
                    row += p.Nk;
                }
            }
            return all;
        };
        Rows K = gathered(&Problem::K), V = gathered(&Problem::V);
        for (Problem p : problems) {
            p.Nk = whole.Nk;
            p.K = dense_view(K.data(), whole.Hkv, whole.Nk, whole.d);
            p.V = dense_view(V.data(), whole.Hkv, whole.Nk, whole.d);
            run(stage, p);
        }
    }
    double time_ranks(const Stage& stage, const std::vector<Problem>& problems, const Shape& whole) override {
        run_ranks(stage, problems, whole);
        return milliseconds.at(stage.number);
    }

    Hardware hardware() const override { return {"fake GPU", 4, 90, 90, 90, "1", "13.0"}; }
    Ceilings ceilings() override { return {1.0, std::nullopt, 100.0}; }
    void fill_normal(void* tensor, std::size_t count, DType, std::uint64_t seed) override {
        for (std::size_t i = 0; i < count; ++i) {
            static_cast<Eigen::bfloat16*>(tensor)[i] =
                Eigen::bfloat16(std::sin(static_cast<float>(seed * 1000 + i)));
        }
    }
    double time(const Stage& stage, const Problem& problem) override {
        run(stage, problem);
        timed.push_back(stage.number);
        on_time();
        return milliseconds.at(stage.number) + (timed.size() % 2 == 0 ? jitter : 0);
    }
};

inline TimedCase small_case(int Nq = 24) {
    TimedCase timed;
    timed.regime = "train";
    timed.problem.shape = {.B = 1, .H = 2, .Hkv = 1, .Nq = Nq, .Nk = 40, .d = 64};
    timed.problem.dtype = DType::bf16;
    return timed;
}

inline TimingOptions small_options(int Nq = 24) {
    TimingOptions options;
    options.cases = {small_case(Nq)};
    return options;
}

}  // namespace ladder::test
