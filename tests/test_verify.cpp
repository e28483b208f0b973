#include <fmt/format.h>

#include <Eigen/Core>
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <new>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "harness/base/parallel.h"
#include "harness/ladder/ladder.h"
#include "harness/problem/cover.h"
#include "harness/problem/random.h"
#include "harness/problem/shape.h"
#include "harness/problem/tensors.h"
#include "harness/verify/all_cases.h"
#include "reference/attention.h"
#include "tests/catch.h"
#ifdef LADDER_HAS_CPU

#    include "simt/fence.h"
#    include "simt/simt.h"
#endif

namespace {

using namespace ladder;
using reference::Matrix;

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

Case make_case(Shape shape, DType dtype = DType::fp16, bool causal = false, Layout layout = Layout::bhnd) {
    Case c;
    c.shape = shape;
    c.dtype = dtype;
    c.causal = causal;
    c.layout = layout;
    return c;
}

/// Tensors of a case, and any changes to them, by their logical indices.
struct Answer {
    Case c;
    Inputs inputs;
    Outputs outputs;

    std::uint16_t& stored(int b, int h, int row, int column) {
        const View v = dense_view(nullptr, c.shape.H, c.shape.Nq, c.shape.d);
        return outputs.O[b * v.batch + h * v.head + row * v.row + column];
    }
    float get(int b, int h, int row, int column) {
        return with_type(c.dtype, [&](auto type) {
            return static_cast<float>(std::bit_cast<decltype(type)>(stored(b, h, row, column)));
        });
    }
    void set(int b, int h, int row, int column, float o) {
        stored(b, h, row, column) = with_type(
            c.dtype, [&](auto type) { return std::bit_cast<std::uint16_t>(static_cast<decltype(type)>(o)); });
    }
    float& L(int b, int h, int row) { return outputs.L[(b * c.shape.H + h) * c.shape.Nq + row]; }

    /// Adds to every element for which `where` holds.
    void spoil(const std::function<bool(int b, int h, int row, int column)>& where, float by = 0.5f) {
        const Shape& s = c.shape;
        for (int b = 0; b < s.B; ++b) {
            for (int h = 0; h < s.H; ++h) {
                for (int row = 0; row < s.Nq; ++row) {
                    for (int column = 0; column < s.d; ++column) {
                        if (where(b, h, row, column)) set(b, h, row, column, get(b, h, row, column) + by);
                    }
                }
            }
        }
    }
    Verdict verdict(int sampled_rows = 0) const { return judge(c, inputs, outputs, sampled_rows); }
};

/// What `head` makes of one head's Q, K and V.
using Head =
    std::function<reference::Result(const Matrix& Q, const Matrix& K, const Matrix& V, const Case& c)>;

reference::Result exact(const Matrix& Q, const Matrix& K, const Matrix& V, const Case& c) {
    return reference::attention(Q, K, V, c.softmax_scale(), {c.causal, c.shape.Nq, c.shape.Nk});
}

reference::Result standard(const Matrix& Q, const Matrix& K, const Matrix& V, const Case& c) {
    const Eigen::VectorXi rows = Eigen::VectorXi::LinSpaced(c.shape.Nq, 0, c.shape.Nq - 1);
    const reference::Mask mask{c.causal, c.shape.Nq, c.shape.Nk};
    auto result = with_type(c.dtype, [&](auto type) {
        return reference::standard_attention<decltype(type)>(Q, rows, K, V, c.softmax_scale(), mask);
    });
    result.L =
        exact(Q, K, V, c).L;  // the ladder keeps scores in fp32, so L is held to more than 16-bit scores give
    return result;
}

/// One head as the ladder's kernels round it: fp32 scores, exp2 of scores times scale log2(e), unnormalized P
/// in 16 bits, key tiles of 64, division at the end.
reference::Result as_a_kernel(const Matrix& Q, const Matrix& K, const Matrix& V, const Case& c) {
    using MatrixF = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
    const int Nq = c.shape.Nq, Nk = c.shape.Nk;
    const reference::Mask mask{c.causal, Nq, Nk};
    const float scale_log2 = c.softmax_scale() * 1.44269504f;
    reference::Result result{Matrix::Zero(Nq, V.cols()), reference::Vector::Constant(Nq, -infinity)};
    for (int i = 0; i < Nq; ++i) {
        float m = -infinity, l = 0;
        Eigen::RowVectorXf O = Eigen::RowVectorXf::Zero(V.cols());
        for (int first = 0; first < mask.visible(i); first += 64) {
            const int n = std::min(64, mask.visible(i) - first);
            const Eigen::VectorXf s =
                scale_log2 * (K.middleRows(first, n).cast<float>() * Q.row(i).cast<float>().transpose());
            const float m_new = std::max(m, s.maxCoeff());
            const float rescale = std::exp2(m - m_new);
            const Eigen::VectorXf p = s.unaryExpr([&](float x) { return std::exp2(x - m_new); });
            const Eigen::VectorXf P = with_type(c.dtype, [&](auto type) -> Eigen::VectorXf {
                return p.template cast<decltype(type)>().template cast<float>();
            });
            l = rescale * l + p.sum();
            O = rescale * O + P.transpose() * MatrixF(V.middleRows(first, n).cast<float>());
            m = m_new;
        }
        if (l == 0) continue;
        result.O.row(i) = (O / l).cast<double>();
        result.L[i] = m * 0.693147181f + std::log(l);
    }
    return result;
}

/// The problem's O and L through `head`; host memory.
void attend(const Problem& p, const Head& head) {
    Case c = make_case(p, p.dtype, p.causal);
    c.scale = p.scale;
    with_type(p.dtype, [&](auto type) {
        using T = decltype(type);
        for (int b = 0; b < p.B; ++b) {
            for (int h = 0; h < p.H; ++h) {
                const int kv = h / (p.H / p.Hkv);
                const auto result = head(head_of<T>(p.Q, b, h, p.Nq, p.d).template cast<double>(),
                                         head_of<T>(p.K, b, kv, p.Nk, p.d).template cast<double>(),
                                         head_of<T>(p.V, b, kv, p.Nk, p.d).template cast<double>(), c);
                head_of<T>(p.O, b, h, p.Nq, p.d) = result.O.template cast<T>();
                Eigen::Map<Eigen::VectorXf>(p.L + (b * p.H + h) * p.Nq, p.Nq) =
                    result.L.template cast<float>();
            }
        }
    });
}

/// The case whose tensors lie as the host has them.
Case on_host(const Case& c) {
    Case dense = c;
    dense.layout = Layout::bhnd;
    return dense;
}

/// The case answered by `head`.
Answer answer(const Case& c, const Head& head = exact) {
    Answer a{c, make_inputs(c), {}};
    const Shape& s = c.shape;
    a.outputs.O.resize(a.inputs.Q.size());
    a.outputs.L.resize(static_cast<std::size_t>(s.B) * s.H * s.Nq);
    attend(make_problem(on_host(c), {.Q = a.inputs.Q.data(),
                                     .K = a.inputs.K.data(),
                                     .V = a.inputs.V.data(),
                                     .O = a.outputs.O.data(),
                                     .L = a.outputs.L.data()}),
           head);
    return a;
}

/// Host memory that runs any function as its stage.
class FakeDevice : public Device {
  public:
    explicit FakeDevice(std::function<void(const Problem&)> stage) : stage_(std::move(stage)) {}
    ~FakeDevice() override { CHECK(allocations.empty()); }

    Backend backend() const override { return kind; }
    std::string description() const override { return "fake device"; }
    int sm_count() const override { return 4; }
    int compute_capability() const override { return 80; }
    std::size_t free_memory() const override { return memory; }
    void* allocate(std::size_t bytes, const char*, bool) override {
        constexpr std::size_t beyond = 1 << 20;  // what wrong strides reach is other memory of the device
        void* data = ::operator new(bytes + beyond, std::align_val_t(256));
        allocations[data] = bytes;
        return data;
    }
    void release(void* data) override {
        allocations.erase(data);
        ::operator delete(data, std::align_val_t(256));
    }
    void upload(void* device, const void* host, std::size_t bytes) override {
        std::memcpy(device, host, bytes);
    }
    void download(void* host, const void* device, std::size_t bytes) override {
        std::memcpy(host, device, bytes);
    }
    void run(const Stage&, const Problem& problem) override {
        ++runs;
        stage_(problem);
    }

    Backend kind = Backend::cpu;
    std::size_t memory = std::size_t{1} << 30;
    int runs = 0;
    std::map<void*, std::size_t> allocations;

  private:
    std::function<void(const Problem&)> stage_;
};

Stage make_stage() {
    Stage stage;
    stage.number = 7;
    stage.name = "fake";
    stage.head_dims = {64, 128};
    return stage;
}

void attend_exactly(const Problem& p) {
    attend(p, exact);
}

/// What a kernel of the backward pass can get wrong.
enum class Mistake : std::uint8_t {
    none,
    D_of_P,            ///< none either: rowsum(P o dP), which is rowsum(dO o O)
    no_D,              ///< dS = P o dP
    D_of_another_row,  ///< the next one's
    D_of_dO_alone,     ///< rowsum(dO o dO)
    dQ_not_scaled,
    dK_not_scaled,
    dQ_scaled_twice,
    dK_scaled_twice,
    L_in_base_2,        ///< exp2(S log2(e) - L)
    one_head_of_group,  ///< dK is the last head's
    mask_forgotten,
    dV_of_dS,  ///< dV = dS^T dO
    last_key_forgotten
};
constexpr Mistake mistakes[] = {Mistake::no_D,
                                Mistake::D_of_another_row,
                                Mistake::D_of_dO_alone,
                                Mistake::dQ_not_scaled,
                                Mistake::dK_not_scaled,
                                Mistake::dQ_scaled_twice,
                                Mistake::dK_scaled_twice,
                                Mistake::L_in_base_2,
                                Mistake::one_head_of_group,
                                Mistake::mask_forgotten,
                                Mistake::dV_of_dS,
                                Mistake::last_key_forgotten};

/// The problem's dQ, dK and dV as kernels round them: products in fp32, P and dS in the storage type as
/// factors of the next, sums in fp32. Host memory.
void differentiate(const Problem& p, Mistake mistake = Mistake::none) {
    using MatrixF = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
    const int group = p.H / p.Hkv;
    const reference::Mask mask{p.causal && mistake != Mistake::mask_forgotten, p.Nq, p.Nk};
    with_type(p.dtype, [&](auto type) {
        using T = decltype(type);
        const auto rounded = [](const MatrixF& x) -> MatrixF {
            return x.template cast<T>().template cast<float>();
        };
        const auto of = [&](const View& view, int b, int h, int N) -> MatrixF {
            return head_of<T>(view, b, h, N, p.d).template cast<float>();
        };
        for (int item = 0; item < p.B * p.Hkv; ++item) {
            const int b = item / p.Hkv, kv = item % p.Hkv;
            const MatrixF K = of(p.K, b, kv, p.Nk), V = of(p.V, b, kv, p.Nk);
            MatrixF dK = MatrixF::Zero(p.Nk, p.d), dV = dK;
            for (int h = kv * group; h < (kv + 1) * group; ++h) {
                const MatrixF Q = of(p.Q, b, h, p.Nq), dO = of(p.dO, b, h, p.Nq), O = of(p.O, b, h, p.Nq);
                Eigen::VectorXf D =
                    dO.cwiseProduct(mistake == Mistake::D_of_dO_alone ? dO : O).rowwise().sum();
                if (mistake == Mistake::no_D) D.setZero();
                MatrixF P = Q * K.transpose(), dS = dO * V.transpose();
                for (int i = 0; i < p.Nq; ++i) {
                    int seen = mask.visible(i);
                    if (mistake == Mistake::last_key_forgotten) seen = std::min(seen, p.Nk - 1);
                    if (p.causal && !mask.causal && p.L[(b * p.H + h) * p.Nq + i] == -infinity) seen = 0;
                    const float L = p.L[(b * p.H + h) * p.Nq + i];
                    const float L_2 = mistake == Mistake::L_in_base_2 ? L : L * 1.44269504f;
                    for (int j = 0; j < p.Nk; ++j)
                        P(i, j) = j < seen ? std::exp2(p.scale * 1.44269504f * P(i, j) - L_2) : 0.0f;
                    const float D_i = mistake == Mistake::D_of_P             ? P.row(i).dot(dS.row(i))
                                      : mistake == Mistake::D_of_another_row ? D[(i + 1) % p.Nq]
                                                                             : D[i];
                    for (int j = 0; j < p.Nk; ++j) dS(i, j) = j < seen ? P(i, j) * (dS(i, j) - D_i) : 0.0f;
                }
                P = rounded(P);
                dS = rounded(dS);
                const float dQ_scale = mistake == Mistake::dQ_not_scaled     ? 1.0f
                                       : mistake == Mistake::dQ_scaled_twice ? p.scale * p.scale
                                                                             : p.scale;
                head_of<T>(p.dQ, b, h, p.Nq, p.d) = (dQ_scale * dS * K).template cast<T>();
                if (mistake == Mistake::one_head_of_group) dK.setZero();
                dK += dS.transpose() * Q;
                dV += (mistake == Mistake::dV_of_dS ? dS : P).transpose() * dO;
            }
            const float dK_scale = mistake == Mistake::dK_not_scaled     ? 1.0f
                                   : mistake == Mistake::dK_scaled_twice ? p.scale * p.scale
                                                                         : p.scale;
            head_of<T>(p.dK, b, kv, p.Nk, p.d) = (dK_scale * dK).template cast<T>();
            head_of<T>(p.dV, b, kv, p.Nk, p.d) = dV.template cast<T>();
        }
    });
}

Stage gradient_stage() {
    Stage stage = make_stage();
    stage.pass = Pass::backward;
    return stage;
}

Case gradient_case(Shape shape, DType dtype = DType::fp16, bool causal = false,
                   Layout layout = Layout::bhnd) {
    Case c = make_case(shape, dtype, causal, layout);
    c.pass = Pass::backward;
    return c;
}

/// The case answered so.
Outputs gradients(const Case& c, const Inputs& inputs, Mistake mistake = Mistake::none) {
    Outputs outputs;
    outputs.dQ.resize(inputs.Q.size());
    outputs.dK.resize(inputs.K.size());
    outputs.dV.resize(inputs.V.size());
    Inputs from = inputs;
    differentiate(make_problem(on_host(c), {.Q = from.Q.data(),
                                            .K = from.K.data(),
                                            .V = from.V.data(),
                                            .O = from.O.data(),
                                            .L = from.L.data(),
                                            .dO = from.dO.data(),
                                            .dQ = outputs.dQ.data(),
                                            .dK = outputs.dK.data(),
                                            .dV = outputs.dV.data()}),
                  mistake);
    return outputs;
}

TEST_CASE("the inputs of the backward pass are those of the forward one, dO, and the O and L of attention") {
    const Case c = gradient_case({2, 4, 2, 5, 7, 64}, DType::bf16, true, Layout::bnhd);
    const Inputs inputs = make_inputs(c);
    Case forward = c;
    forward.pass = Pass::forward;
    const Answer a = answer(forward);
    CHECK(inputs.Q == a.inputs.Q);
    CHECK(inputs.V == a.inputs.V);
    CHECK(inputs.dO.size() == inputs.Q.size());
    CHECK(inputs.dO != inputs.Q);
    CHECK(inputs.O == a.outputs.O);
    CHECK(inputs.L == a.outputs.L);
    CHECK(a.inputs.dO.empty());
    CHECK(contains(c.description(), "d=64 bf16 backward causal bnhd"));
    CHECK(c.description() != forward.description());
    Stage stage = gradient_stage();
    stage.tilings = {{64, 128, 2}, {64, 64, 3}};  // rings of query tiles, which wrap
    const auto cases = verification_cases(stage, Cover::each);
    for (const Case& one : cases) CHECK(one.pass == Pass::backward);
    for (const auto& [d, rows] : {std::pair{64, 5 * 64}, {128, 7 * 64}}) {
        CHECK(std::any_of(cases.begin(), cases.end(), [d = d, rows = rows](const Case& one) {
            return one.shape.d == d && one.shape.Nq > rows;
        }));
    }
}

TEST_CASE("the judge accepts a kernel's rounding of gradients in every verification case") {
    std::map<Mistake, double> nearest;  // to the bound on relative L2
    for (const Case& c : verification_cases(gradient_stage(), Cover::pairs)) {
        CAPTURE(c.description());
        const Inputs inputs = make_inputs(c);
        const Expected expected(c, inputs);
        for (const Mistake kernel : {Mistake::none, Mistake::D_of_P}) {
            const Verdict verdict = judge(c, expected, gradients(c, inputs, kernel));
            CHECK(verdict.report == "");
            CHECK(verdict.passed);
            nearest[kernel] =
                std::max(nearest[kernel], verdict.relative_l2 / (c.dtype == DType::fp16 ? 1e-3 : 8e-3));
        }
    }
    CHECK(nearest[Mistake::none] < 0.5);
    CHECK(nearest[Mistake::D_of_P] < 0.8);
}

TEST_CASE("the judge rejects what kernels get wrong in gradients, on the quick cases") {
    std::map<Mistake, int> rejected;
    for (const Case& c : verification_cases(gradient_stage(), Cover::each)) {
        CAPTURE(c.description());
        const Inputs inputs = make_inputs(c);
        const Expected expected(c, inputs);
        for (const Mistake mistake : mistakes) {
            const Outputs wrong = gradients(c, inputs, mistake);
            const Verdict verdict = judge(c, expected, wrong);
            rejected[mistake] += !verdict.passed;
            CHECK(verdict.passed == verdict.report.empty());
        }
    }
    for (const Mistake mistake : mistakes) {
        CAPTURE(static_cast<int>(mistake), rejected[mistake]);
        // Not in every case: where a row's weight sits on one key, dS is what rounding leaves, and scale 0
        // makes dQ and dK 0.
        CHECK(rejected[mistake] >= 3);
    }
}

TEST_CASE("the judge says which gradient is wrong, and where") {
    const Case c = gradient_case({2, 4, 2, 150, 97, 64}, DType::fp16, true);
    const Inputs inputs = make_inputs(c);
    const Expected expected(c, inputs);
    Outputs outputs = gradients(c, inputs);
    REQUIRE(judge(c, expected, outputs).passed);
    const auto report = [&](Mistake mistake) {
        return judge(c, expected, gradients(c, inputs, mistake)).report;
    };
    CHECK(contains(report(Mistake::dQ_scaled_twice), "dQ is wrong in"));
    CHECK(!contains(report(Mistake::dQ_scaled_twice), "dK"));
    CHECK(contains(report(Mistake::dK_not_scaled), "dK is wrong in"));
    CHECK(contains(report(Mistake::dV_of_dS), "dV is wrong in"));
    CHECK(contains(report(Mistake::mask_forgotten), "dV is wrong in"));
    CHECK(judge(c, expected, gradients(c, inputs, Mistake::dV_of_dS)).tensor == "dV");

    const auto element = [](int head, int N, int row, int column) {
        return (static_cast<std::size_t>(head) * N + row) * 64 + column;
    };
    const std::uint16_t eight = 0x4800;
    SECTION("in one place of dK") {
        outputs.dK[element(2, 97, 70, 5)] = eight;
        const Verdict verdict = judge(c, expected, outputs);
        CHECK(contains(verdict.report, "dK is wrong in 1 of 24832 elements"));
        CHECK(contains(verdict.report, "worst at b=1 h_kv=0 key=70 column=5, key tile 1"));
        CHECK(verdict.tensor == "dK");
    }
    SECTION("in the keys of a ragged tile") {
        for (int head = 0; head < 4; ++head) {
            for (int key = 64; key < 97; ++key) {
                for (int column = 0; column < 64; ++column)
                    outputs.dV[element(head, 97, key, column)] = eight;
            }
        }
        CHECK(contains(judge(c, expected, outputs).report,
                       "pattern: only the keys of the last, ragged key tile"));
    }
    SECTION("NaN") {
        outputs.dV[element(3, 97, 96, 63)] = 0x7e00;
        CHECK(contains(judge(c, expected, outputs).report,
                       "dV is not finite in 1 of 24832 elements\n  first at b=1 h_kv=1 key=96"));
    }
    SECTION("not written") {
        outputs.dQ[element(7, 150, 3, 0)] = 0x7fed;
        CHECK(contains(judge(c, expected, outputs).report, "dQ was not written in 1 of 76800"));
    }
    SECTION("a row without keys") {
        outputs.dQ[element(0, 150, 52, 0)] = 1;
        CHECK(contains(judge(c, expected, outputs).report, "dQ is not 0 where a row sees no key"));
        CHECK(contains(judge(c, Expected(c, inputs, 2), outputs).report, "row=52"));
    }
    CHECK(!judge(c, expected, outputs).passed);
}

TEST_CASE("of a large problem some rows of dQ and some keys are compared") {
    const DType dtype = GENERATE(DType::fp16, DType::bf16);
    const Case c = gradient_case({1, 4, 2, 200, 220, 64}, dtype, true);
    const Inputs inputs = make_inputs(c);
    const Expected all(c, inputs), some(c, inputs, 9);
    for (std::size_t t = 0; t < 3; ++t) {
        REQUIRE(some.tensors[t].rows.size() == 9);
        const std::size_t N = all.tensors[t].rows.size(), heads = t == 0 ? 4 : 2;
        for (std::size_t head = 0; head < heads; ++head) {
            for (std::size_t k = 0; k < 9; ++k) {
                const std::size_t row = head * N + some.tensors[t].rows[k];
                CHECK(std::abs(some.tensors[t].size[head * 9 + k] / all.tensors[t].size[row] - 1) < 1e-12);
                for (std::size_t column = 0; column < 64; ++column) {
                    REQUIRE(std::abs(some.tensors[t].values[(head * 9 + k) * 64 + column] -
                                     all.tensors[t].values[row * 64 + column]) < 1e-12);
                }
            }
        }
        CHECK(some.tensors[t].standard_error > 0);
        CHECK(some.tensors[t].standard_error < 2 * all.tensors[t].standard_error);
    }
    CHECK(judge(c, some, gradients(c, inputs)).passed);
    for (const Mistake mistake : mistakes) CHECK(!judge(c, some, gradients(c, inputs, mistake)).passed);
}

TEST_CASE("a device runs a stage of the backward pass between canaries") {
    const Case c = gradient_case({2, 4, 2, 37, 65, 64}, DType::bf16, true, Layout::bnhd);
    const Inputs inputs = make_inputs(c);
    const auto element = [](const View& view) { return static_cast<std::uint16_t*>(view.data); };
    const auto verdict_of = [&](const std::function<void(const Problem&)>& damage) {
        FakeDevice device([&](const Problem& p) {
            CHECK(std::isnan(std::bit_cast<float>(element(p.dK)[0] << 16)));
            differentiate(p);
            damage(p);
        });
        return verify(device, gradient_stage(), c);
    };
    FakeDevice device([](const Problem& p) { differentiate(p); });
    const Outputs outputs = run_stage(device, gradient_stage(), c, inputs), expected = gradients(c, inputs);
    CHECK(outputs.dQ == expected.dQ);
    CHECK(outputs.dK == expected.dK);
    CHECK(outputs.dV == expected.dV);
    CHECK((outputs.O.empty() && outputs.L.empty()));
    CHECK(verdict_of([](const Problem&) {}).passed);
    CHECK(contains(verdict_of([&](const Problem& p) { element(p.dK)[2 * 2 * 65 * 64] = 0; }).report,
                   "wrote outside of dK: to element 16640 of 16640"));
    CHECK(contains(verdict_of([&](const Problem& p) { element(p.dV)[-1] = 0; }).report,
                   "wrote outside of dV: to element -1 of"));
    CHECK(contains(verdict_of([&](const Problem& p) { element(p.dQ)[3] = 0x7fed; }).report,
                   "dQ was not written in 1 of"));

    // Two runs that differ in the last bit: only of a stage that says so.
    class Gpu : public FakeDevice {
      public:
        using FakeDevice::FakeDevice;
        Backend backend() const override { return Backend::gpu; }
    };
    int runs = 0;
    Gpu atomic([&](const Problem& p) {
        differentiate(p);
        element(p.dV)[5] ^= ++runs % 2;
    });
    Stage stage = gradient_stage();
    CHECK(contains(verify(atomic, stage, c).report, "a second run changed dV in 1 of"));
    stage.repeats_exactly = false;
    CHECK(verify(atomic, stage, c).passed);
    Gpu sometimes([&, calls = 0](const Problem& p) mutable {
        differentiate(p, ++calls == 2 ? Mistake::no_D : Mistake::none);
    });
    const Verdict second = verify(sometimes, stage, c);
    CHECK(!second.passed);
    CHECK(contains(second.report, "is wrong in"));
    CHECK(contains(second.report, "in a second run: the first passed"));
    Gpu gpu([](const Problem& p) { differentiate(p); });
    CHECK(verify(gpu, stage, c).passed);
    CHECK(gpu.runs == 10);
}

TEST_CASE("a loop on all cores does everything once, and passes on what went wrong") {
    std::vector<int> done(1000);
    parallel_for(1000, [&](int i) { done[i] += i; });
    for (int i = 0; i < 1000; ++i) REQUIRE(done[i] == i);
    parallel_for(0, [](int) { FAIL("there is nothing to do"); });
    CHECK_THROWS_AS(parallel_for(100,
                                 [](int i) {
                                     if (i == 50) throw BadUsage("50");
                                 }),
                    BadUsage);
}

TEST_CASE("inputs are the same for the same case, and only for it") {
    Case c = make_case({2, 4, 2, 5, 7, 64});
    const Inputs inputs = make_inputs(c);
    CHECK(make_inputs(c).Q == inputs.Q);
    CHECK(make_inputs(c).K == inputs.K);
    CHECK(inputs.Q.size() == 2 * 4 * 5 * 64);
    CHECK(inputs.K.size() == 2 * 2 * 7 * 64);
    CHECK(inputs.K != inputs.V);
    // Recorded once: the same on every machine and with every compiler.
    CHECK(std::vector<std::uint16_t>(inputs.Q.begin(), inputs.Q.begin() + 4) ==
          std::vector<std::uint16_t>{48202, 12832, 13471, 13988});
    c.seed = 2;
    CHECK(make_inputs(c).Q != inputs.Q);
}

TEST_CASE("a layout places tensors, and moves no two of their rows to one place") {
    const auto dense = [](Layout layout, Tensor tensor) {
        Case c = make_case({2, 6, 3, 5, 7, 64}, DType::fp16, false, layout);
        c.pass = Pass::backward;
        const Placement p = placement(c, tensor);
        std::set<std::size_t> rows;
        p.for_each_row([&](std::size_t offset) {
            CHECK(offset % 8 == 0);
            rows.insert(offset);
        });
        CHECK(rows.size() * 64 == p.count());
        for (auto row = rows.begin(); std::next(row) != rows.end(); ++row)
            CHECK(*std::next(row) >= *row + 64);
        CHECK(*rows.rbegin() + 64 == p.span());
        CHECK(p.is_sparse() == (layout == Layout::far));
        return p;
    };
    const Placement bhnd = dense(Layout::bhnd, Tensor::V), bnhd = dense(Layout::bnhd, Tensor::V);
    CHECK((bhnd.row == 64 && bhnd.head == 7 * 64 && bhnd.batch == 3 * 7 * 64));
    CHECK((bnhd.row == 3 * 64 && bnhd.head == 64 && bnhd.batch == bhnd.batch));
    constexpr Tensor all[] = {Tensor::Q,  Tensor::K,  Tensor::V,  Tensor::O,
                              Tensor::dO, Tensor::dQ, Tensor::dK, Tensor::dV};
    // Of the same heads and rows, no two have their strides in common.
    std::set<std::tuple<int, std::int64_t, std::int64_t>> strides;
    for (const Tensor tensor : all) {
        const Placement mixed = dense(Layout::mixed, tensor);
        CHECK(strides.emplace(mixed.heads, mixed.head, mixed.row).second);
        const Placement far = dense(Layout::far, tensor);
        CHECK(far.batch >= std::int64_t{1} << 31);
        CHECK(far.head >= std::int64_t{1} << 31);
        CHECK(256 * far.row >= std::int64_t{1} << 31);
    }
}

TEST_CASE("every input kind is what it says") {
    for (const DType dtype : {DType::fp16, DType::bf16}) {
        for (const int d : {64, 128}) {
            for (const InputKind& kind : input_kinds()) {
                CAPTURE(kind.name, d, name(dtype));
                Case c = make_case({1, 1, 1, 40, 256, d}, dtype);
                c.input = kind.name;
                Answer a{c, make_inputs(c), {}};
                const auto as_matrix = [&](std::vector<std::uint16_t>& tensor, int N) -> Matrix {
                    return with_type(dtype, [&](auto type) -> Matrix {
                        const View view = dense_view(tensor.data(), 1, N, d);
                        return head_of<decltype(type)>(view, 0, 0, N, d).template cast<double>();
                    });
                };
                const Matrix Q = as_matrix(a.inputs.Q, 40), K = as_matrix(a.inputs.K, 256),
                             V = as_matrix(a.inputs.V, 256);
                const Matrix S = c.softmax_scale() * Q * K.transpose();
                const std::string input = kind.name;

                CHECK(std::abs(V.mean()) < 0.05);
                CHECK(std::abs(V.squaredNorm() / V.size() - 1) < 0.05);
                CHECK(V.maxCoeff() > 3);
                CHECK(V.maxCoeff() < 6.5);
                if (input == "normal") CHECK(std::abs(S.squaredNorm() / S.size() - 1) < 0.2);
                if (input == "huge") {
                    CHECK(S.maxCoeff() > 8e6);
                    CHECK(S.minCoeff() < -8e6);
                    CHECK(S.cwiseAbs().maxCoeff() < 3e7);
                    for (const auto& [pass, seed] : {std::pair{Pass::forward, 2}, {Pass::backward, 1}}) {
                        c.pass = pass;
                        c.seed = static_cast<std::uint64_t>(seed);
                        Inputs smaller = make_inputs(c);
                        const Matrix S_smaller = c.softmax_scale() * as_matrix(smaller.Q, 40) *
                                                 as_matrix(smaller.K, 256).transpose();
                        CHECK(S_smaller.maxCoeff() > 8e3);
                        CHECK(S_smaller.cwiseAbs().maxCoeff() < 3e4);
                    }
                }
                if (input == "huge_constant") {
                    CHECK((S.rowwise().maxCoeff() - S.rowwise().minCoeff()).maxCoeff() < 1e-6);
                    CHECK(S.maxCoeff() > 3e6);
                    CHECK(S.minCoeff() < -3e6);
                    CHECK((S.col(0).array() < -1e4).count() >
                          10);  // so that exp(S - 0) is 0 in all of such a row
                }
                if (input == "rising" || input == "falling") {
                    for (int tile = 1; tile < 4; ++tile) {
                        const Eigen::VectorXd before = S.middleCols(64 * (tile - 1), 64).rowwise().maxCoeff();
                        const Eigen::VectorXd here = S.middleCols(64 * tile, 64).rowwise().maxCoeff();
                        CHECK((input == "rising" ? here - before : before - here).minCoeff() > 1);
                    }
                }
                if (input == "constant") {
                    CHECK((S.rowwise().maxCoeff() - S.rowwise().minCoeff()).maxCoeff() < 1e-12);
                    CHECK(S.cwiseAbs().maxCoeff() > 0.5);
                }
                if (input == "one_hot") {
                    std::set<Eigen::Index> keys;
                    for (int i = 0; i < 40; ++i) {
                        Eigen::Index key = 0;
                        const double top = S.row(i).maxCoeff(&key);
                        keys.insert(key);
                        CHECK((S.row(i).array() > top - 10).count() == 1);
                    }
                    CHECK(keys.size() > 20);
                }
            }
        }
    }
}

TEST_CASE("one_hot puts each row's weight on a key that it sees") {
    Case c = make_case({1, 4, 2, 40, 50, 64}, DType::fp16, true);
    c.input = "one_hot";
    Answer a = answer(c);
    for (int h = 0; h < 4; ++h) {
        for (int row = 0; row < 40; ++row) CHECK(std::abs(a.L(0, h, row) - 64) < 1);
    }
}

TEST_CASE("inputs that make no sense are refused") {
    Case c = make_case({});
    c.input = "zeros";
    CHECK_THROWS_AS(make_inputs(c), BadUsage);
    c.input = "huge";
    c.scale = 1e-12f;  // would need Q and K beyond fp16
    CHECK_THROWS_AS(make_inputs(c), BadUsage);
}

TEST_CASE("a case describes itself") {
    Case c = make_case({1, 2, 1, 37, 65, 64}, DType::fp16, true, Layout::bnhd);
    c.input = "rising";
    CHECK(c.description() == "B=1 H=2 Hkv=1 Nq=37 Nk=65 d=64 fp16 causal bnhd rising");
    CHECK(c.softmax_scale() == 0.125f);
    c.scale = 0.5f;
    c.seed = 9;
    c.multiprocessors = 132;
    CHECK(contains(c.description(), "scale=0.5 seed=9 sms=132"));
    CHECK(c.options() ==
          "--shape 1,2,1,37,65,64 --causal --layout bnhd --input rising --seed 9 --scale 0.5 --sms 132");
    CHECK(c.softmax_scale() == 0.5f);
}

TEST_CASE("the judge accepts a kernel's rounding in every verification case", "[slow]") {
    for (const Case& c : verification_cases(make_stage(), Cover::all)) {
        CAPTURE(c.description());
        const Verdict verdict = answer(c, as_a_kernel).verdict();
        CHECK(verdict.report == "");
        CHECK(verdict.passed);
    }
}

TEST_CASE("the judge accepts standard attention in the storage type") {
    for (const DType dtype : {DType::fp16, DType::bf16}) {
        for (const bool causal : {false, true}) {
            CAPTURE(name(dtype), causal);
            const Verdict verdict =
                answer(make_case({1, 2, 1, 97, 130, 64}, dtype, causal), standard).verdict();
            CHECK(verdict.report == "");
            CHECK(verdict.passed);
            CHECK(verdict.max_error > 0);
            CHECK(verdict.max_error == verdict.standard_max_error);
            CHECK(verdict.relative_l2 > 0);
        }
    }
}

TEST_CASE("the judge needs no help from standard attention where scores overflow its fp16") {
    Case c = make_case({1, 1, 1, 37, 65, 64});
    c.scale = 4000;
    REQUIRE(answer(c, standard).get(0, 0, 0, 0) != answer(c, standard).get(0, 0, 0, 0));  // NaN
    Answer a = answer(c);
    CHECK(a.verdict().passed);
    a.spoil([](int, int, int row, int) { return row == 3; });
    CHECK(!a.verdict().passed);
}

TEST_CASE("L may be off by what fp32 rounds where a small score is a sum of large products") {
    // One query and one key: L is their score, 0 = x y - x y, with scale |q| |k| = x y / 4.
    Answer a = answer(make_case({1, 1, 1, 1, 1, 64}));
    const auto stored = [](float x) {
        return with_type(DType::fp16, [&](auto type) {
            return std::bit_cast<std::uint16_t>(static_cast<decltype(type)>(x));
        });
    };
    const auto set = [&](float x, float y) {
        for (auto* tensor : {&a.inputs.Q, &a.inputs.K}) std::fill(tensor->begin(), tensor->end(), 0);
        for (const int column : {0, 1}) {
            a.inputs.Q[column] = stored(x);
            a.inputs.K[column] = stored(column == 0 ? y : -y);
        }
    };
    const auto accepts = [&](float L) {
        a.L(0, 0, 0) = L;
        return a.verdict().passed;
    };
    set(1, 1);
    CHECK(accepts(0.9e-4f));
    CHECK(!accepts(1.1e-4f));
    set(200, 100);  // 2^-21 * 5000 = 2.38e-3
    CHECK(accepts(2.4e-3f));
    CHECK(!accepts(2.6e-3f));
    CHECK(contains(a.verdict().report, "L is wrong in 1 of 1"));
}

TEST_CASE(
    "where parts are merged by an L of fp32, O may be off by what that loses of huge scores, and no more") {
    // Parts of 64 keys, whose L is rounded twice.
    const auto merged = [](const Matrix& Q, const Matrix& K, const Matrix& V, const Case& c) {
        reference::Result all{Matrix::Zero(Q.rows(), V.cols()), exact(Q, K, V, c).L};
        for (Eigen::Index i = 0; i < Q.rows(); ++i) {
            double sum = 0;
            for (Eigen::Index first = 0; first < K.rows(); first += 64) {
                const Eigen::Index n = std::min<Eigen::Index>(64, K.rows() - first);
                Case part = c;
                part.causal = false;
                part.shape.Nq = 1;
                part.shape.Nk = static_cast<int>(n);
                const auto of = exact(Q.row(i), K.middleRows(first, n), V.middleRows(first, n), part);
                const float in_base_2 = static_cast<float>(of.L[0] * 1.4426950408889634);
                const double weight = std::exp(static_cast<double>(in_base_2 * 0.693147181f) - all.L[i]);
                all.O.row(i) += weight * of.O;
                sum += weight;
            }
            all.O.row(i) /= sum;
        }
        return all;
    };
    for (const char* input : {"huge_constant", "normal", "huge"}) {
        for (const DType dtype : {DType::fp16, DType::bf16}) {
            Case c = make_case({1, 2, 1, 40, 130, 64}, dtype);
            c.input = input;
            CAPTURE(c.description());
            Answer a = answer(c, merged);
            const Expected expected(c, a.inputs);
            CHECK(judge(c, expected, a.outputs, true).report == "");
            // Two equal parts and two keys: without their logarithms each would have a third of the weight.
            CHECK(judge(c, expected, a.outputs).passed == (std::string(input) != "huge_constant"));
            CHECK(judge(c, expected, answer(c).outputs).passed);

            // It is an allowance for rows with large scores, and in these for less than V differs by.
            const auto spoiled_by = [&](float by, bool only_small) {
                Answer wrong = answer(c);
                wrong.spoil([&](int, int h, int row,
                                int) { return !only_small || std::abs(wrong.L(0, h, row)) < 100; },
                            by);
                return judge(c, expected, wrong.outputs, true);
            };
            CHECK(!spoiled_by(12.0f, false).passed);
            if (std::string(input) == "normal") {
                CHECK(!spoiled_by(0.02f, true).passed);
                CHECK(contains(spoiled_by(0.02f, true).report, "O is wrong in"));
            }
            a.set(0, 1, 3, 5, nan);
            CHECK(!judge(c, expected, a.outputs, true).passed);
        }
    }
    std::vector<int> rounding;
    for (const Stage& stage : stages()) {
        if (stage.rounds_large_scores) rounding.push_back(stage.number);
    }
    CHECK(rounding ==
          std::vector<int>{6, 10, 11, 12, 13, 14, 15, 16, 17, 23, 24, 25, 26, 30, 31, 32, 33, 34, 35, 36});
}

TEST_CASE("what is expected is attention of each head, and the error of standard attention") {
    const DType dtype = GENERATE(DType::fp16, DType::bf16);
    const Case c =
        make_case({2, 4, 2, 300, 290, 64}, dtype, true, Layout::bnhd);  // more rows than one thread
    const int sampled = GENERATE(0, 7);                                 // takes at a time
    CAPTURE(name(dtype), sampled);
    Inputs inputs = make_inputs(c);
    const Expected expected(c, inputs, sampled);
    const std::size_t rows = expected.tensors[0].rows.size();
    REQUIRE(rows == (sampled == 0 ? 300 : 7));
    REQUIRE(expected.tensors[0].values.size() == 8 * rows * 64);
    REQUIRE(expected.L.size() == 8 * rows);

    const reference::Mask mask{true, 300, 290};
    const Eigen::VectorXi indices =
        Eigen::Map<const Eigen::VectorXi>(expected.tensors[0].rows.data(), static_cast<Eigen::Index>(rows));
    double standard_error = 0;
    for (int head = 0; head < 8; ++head) {
        const auto of = [&](std::vector<std::uint16_t>& tensor, int heads, int h, int N) -> Matrix {
            return with_type(dtype, [&](auto type) -> Matrix {
                const View view = dense_view(tensor.data(), heads, N, 64);
                return head_of<decltype(type)>(view, head / 4, h, N, 64).template cast<double>();
            });
        };
        const int h = head % 4;
        const Matrix Q = of(inputs.Q, 4, h, 300)(indices, Eigen::all), K = of(inputs.K, 2, h / 2, 290),
                     V = of(inputs.V, 2, h / 2, 290);
        const auto exact = reference::attention(Q, indices, K, V, c.softmax_scale(), mask);
        const auto standard = with_type(dtype, [&](auto type) {
            return reference::standard_attention<decltype(type)>(Q, indices, K, V, c.softmax_scale(), mask);
        });
        standard_error = std::max(standard_error, (standard.O - exact.O).cwiseAbs().maxCoeff());
        const Eigen::Map<const Matrix> O(expected.tensors[0].values.data() + head * rows * 64,
                                         static_cast<Eigen::Index>(rows), 64);
        CHECK((O - exact.O).cwiseAbs().maxCoeff() < 1e-14);
        for (std::size_t k = 0; k < rows; ++k) {
            const double L = expected.L[head * rows + k];
            CHECK((L == exact.L[k] || std::abs(L - exact.L[k]) < 1e-13));
        }
    }
    CHECK(standard_error > 0);
    CHECK(std::abs(expected.tensors[0].standard_error / standard_error - 1) < 1e-6);
}

TEST_CASE("the judge rejects a tail padded with 0 instead of -inf") {
    const auto padded = [](const Matrix& Q, const Matrix& K, const Matrix& V, const Case& c) {
        const Eigen::Index tiles = (K.rows() + 63) / 64 * 64;
        Matrix K0 = Matrix::Zero(tiles, K.cols()), V0 = Matrix::Zero(tiles, V.cols());
        K0.topRows(K.rows()) = K;
        V0.topRows(V.rows()) = V;
        return reference::attention(Q, K0, V0, c.softmax_scale(),
                                    {false, c.shape.Nq, static_cast<int>(tiles)});
    };
    for (const DType dtype : {DType::fp16, DType::bf16}) {
        for (const int Nk : {1, 37, 65, 127, 1025}) {
            CAPTURE(name(dtype), Nk);
            Answer a = answer(make_case({1, 1, 1, 37, Nk, 64}, dtype), padded);
            CHECK(!a.verdict().passed);
            CHECK(contains(a.verdict().report, "L is wrong"));
            if (Nk == 127) continue;  // a single 0 is lost in bf16's rounding of O: L alone shows it
            const Answer right = answer(a.c);
            a.outputs.L = right.outputs.L;
            CHECK(contains(a.verdict().report, "O is wrong"));
        }
        CHECK(answer(make_case({1, 1, 1, 37, 128, 64}, dtype), padded).verdict().passed);
    }
}

TEST_CASE("the judge rejects what is wrong in one place") {
    const DType dtype = GENERATE(DType::fp16, DType::bf16);
    CAPTURE(name(dtype));
    Answer a = answer(make_case({2, 2, 1, 70, 90, 64}, dtype, true, Layout::bnhd));
    REQUIRE(a.verdict().passed);

    SECTION("NaN") {
        a.set(1, 1, 69, 63, nan);
        CHECK(contains(a.verdict().report, "O is not finite in 1 of 17920 elements"));
        CHECK(contains(a.verdict(4).report, "b=1 h=1 row=69 column=63"));
    }
    SECTION("NaN in a row that is not sampled") {
        a.set(1, 0, 33, 1, nan);
        CHECK(contains(a.verdict(2).report, "b=1 h=0 row=33 column=1"));
    }
    SECTION("infinity") {
        a.set(0, 0, 0, 0, -infinity);
        CHECK(contains(a.verdict().report, "O is not finite"));
    }
    SECTION("unwritten") {
        a.stored(0, 1, 5, 7) = 0x7fed;
        CHECK(contains(a.verdict().report, "O was not written in 1 of 17920"));
        CHECK(!contains(a.verdict().report, "finite"));
    }
    SECTION("L unwritten") {
        a.L(0, 1, 5) = std::bit_cast<float>(0x7fed7fedu);
        CHECK(contains(a.verdict().report, "L was not written in 1 of 280"));
    }
    SECTION("NaN in L") {
        a.L(0, 1, 5) = nan;
        CHECK(contains(a.verdict().report, "L is not finite"));
    }
    SECTION("a row that belongs elsewhere") {
        for (int column = 0; column < 64; ++column) a.set(0, 0, 41, column, a.get(0, 0, 42, column));
        CHECK(contains(a.verdict().report, "only row 41"));
    }
    SECTION("L off by 1e-3") {
        a.L(1, 0, 69) *= 1.001f;
        CHECK(contains(a.verdict().report, "L is wrong in 1 of 280"));
        CHECK(contains(a.verdict().report, "b=1 h=0 row=69, query tile 1"));
        CHECK(std::abs(a.verdict().max_L_error - 1e-3) < 1e-5);
    }
    SECTION("L off by 2e-4") {
        a.L(1, 0, 69) *= 1.00005f;
        CHECK(a.verdict().passed);
        a.L(1, 0, 69) *= 1.00015f;
        CHECK(contains(a.verdict().report, "L is wrong"));
    }
    SECTION("L -inf where there are keys") {
        a.L(1, 0, 69) = -infinity;
        CHECK(!a.verdict().passed);
    }
    CHECK(!a.verdict().passed);
}

TEST_CASE("the judge wants exactly 0 and -inf from rows without keys") {
    Answer a = answer(make_case({1, 2, 2, 150, 37, 64}, DType::fp16, true));
    REQUIRE(a.verdict().passed);
    SECTION("O is tiny") {
        a.set(0, 1, 3, 2, 1e-6f);
        CHECK(contains(a.verdict().report, "O is not 0 where a row sees no key"));
    }
    SECTION("O is tiny in all of them") {
        a.spoil([](int, int, int row, int) { return row < 113; }, 1e-4f);
        CHECK(contains(a.verdict().report, "only the rows without keys"));
    }
    SECTION("L is 0") {
        a.L(0, 0, 0) = 0;
        CHECK(contains(a.verdict().report, "expected -inf, got 0"));
    }
    SECTION("L is 0 in a row that is not sampled") {
        a.L(0, 0, 50) = 0;
        CHECK(!a.verdict(1).passed);
    }
    SECTION("L is +inf") {
        a.L(0, 0, 0) = infinity;
    }
    CHECK(!a.verdict().passed);
}

TEST_CASE("the bounds on the largest error and on relative L2 each reject alone") {
    SECTION("one element, in many") {
        Answer a = answer(make_case({1, 2, 2, 200, 37, 128}));
        a.spoil([](int, int h, int row, int column) { return h == 1 && row == 70 && column == 5; }, 0.02f);
        const Verdict verdict = a.verdict();
        CHECK(verdict.relative_l2 < 1e-3);
        CHECK(!verdict.passed);
        CHECK(contains(verdict.report, "O is wrong in 1 of 51200 elements"));
    }
    SECTION("every element, a little") {
        Answer a = answer(make_case({1, 1, 1, 200, 200, 64}, DType::fp16, true));
        a.spoil([](int, int, int, int) { return true; }, 5e-4f);
        const Verdict verdict = a.verdict();
        CHECK(verdict.max_error < 2 * verdict.standard_max_error);
        CHECK(!verdict.passed);
        CHECK(contains(verdict.report, "relative L2"));
        CHECK(contains(verdict.report, "worst at"));  // although no element breaks the bound on its own
    }
}

TEST_CASE("the judge compares only the sampled rows with the reference") {
    Answer a = answer(make_case({1, 1, 1, 500, 37, 64}));
    a.spoil([](int, int, int row, int) { return row == 499; });
    CHECK(!a.verdict(8).passed);
    CHECK(a.verdict(1).passed);
    CHECK(!a.verdict(500).passed);
    CHECK(!a.verdict(100000).passed);
}

TEST_CASE("the report names the place") {
    Answer a = answer(make_case({2, 2, 2, 150, 97, 128}));
    a.set(1, 0, 130, 70, 8.0f);
    a.set(1, 0, 131, 71, 4.0f);
    const std::string report = a.verdict().report;
    INFO(report);
    CHECK(contains(report, "O is wrong in 2 of 76800 elements"));
    CHECK(contains(report, "worst at b=1 h=0 row=130 column=70, query tile 2"));
    CHECK(contains(report, "got 8"));
}

TEST_CASE("the report finds the pattern") {
    struct Example {
        const char* pattern;  ///< null for none
        Case c;
        std::function<bool(int b, int h, int row, int column)> wrong;
    };
    const Case ragged = make_case({1, 2, 2, 150, 97, 64}),
               causal = make_case({1, 2, 2, 200, 200, 64}, DType::fp16, true);
    const std::vector<Example> examples{
        {"everything is wrong", ragged, [](int, int, int, int) { return true; }},
        {"only the rows of the last, ragged query tile", ragged,
         [](int, int, int row, int) { return row >= 128; }},
        {"only the rows of the first query tile", ragged, [](int, int, int row, int) { return row < 64; }},
        {"only every row past the first query tile", ragged,
         [](int, int, int row, int) { return row >= 64; }},
        {"only every row past the first key tile", make_case({1, 1, 1, 200, 140, 64}, DType::fp16, true),
         [](int, int, int row, int) { return row >= 124; }},
        {"only the rows that see the last, ragged key tile",
         make_case({1, 1, 1, 192, 230, 64}, DType::fp16, true),
         [](int, int, int row, int) { return row >= 192 - 38; }},
        {"only the rows that see only part of a key tile (mask?)", causal,
         [](int, int, int row, int) { return row % 64 != 63; }},
        {"only rows 8..15 of every 16", ragged, [](int, int, int row, int) { return row % 16 >= 8; }},
        {"only rows 32..47 of every 64 (warp 2?)", ragged,
         [](int, int, int row, int) { return row % 64 / 16 == 2; }},
        {"only rows 20..30", ragged, [](int, int, int row, int) { return row >= 20 && row <= 30; }},
        {"only columns 64..127", make_case({1, 1, 1, 50, 50, 128}),
         [](int, int, int, int c) { return c >= 64; }},
        {"only odd columns", ragged, [](int, int, int, int c) { return c % 2 == 1; }},
        {"only column 9", ragged, [](int, int, int, int c) { return c == 9; }},
        {"only columns 8..15 of every 16", ragged, [](int, int, int, int c) { return c % 16 >= 8; }},
        {"whole heads: only h = 1, 2 (GQA mapping?)", make_case({2, 4, 2, 50, 50, 64}),
         [](int, int h, int, int) { return h == 1 || h == 2; }},
        {"whole heads: only h = 1, 3, all but the first of each group", make_case({2, 4, 2, 50, 50, 64}),
         [](int, int h, int, int) { return h % 2 == 1; }},
        {"whole heads: only h = 0\n", make_case({2, 4, 2, 50, 50, 64}),
         [](int, int h, int, int) { return h == 0; }},
        {"whole heads: only b = 0\n", make_case({2, 4, 2, 50, 50, 64}),
         [](int b, int, int, int) { return b == 0; }},
        {"whole heads: only b = 1 (batch stride?)", make_case({2, 4, 2, 50, 50, 64}),
         [](int b, int, int, int) { return b == 1; }},
        {"only h = 1; only the rows of the last, ragged query tile; only column 3", ragged,
         [](int, int h, int row, int c) { return h == 1 && row >= 128 && c == 3; }},
        {nullptr, ragged, [](int, int h, int row, int c) { return (h + 7 * row + 3 * c) % 11 == 0; }},
    };
    for (const Example& example : examples) {
        Answer a = answer(example.c);
        a.spoil(example.wrong);
        const Verdict verdict = a.verdict();
        INFO(verdict.report);
        CHECK(!verdict.passed);
        if (example.pattern == nullptr) {
            CHECK(!contains(verdict.report, "pattern"));
        } else {
            CHECK(contains(verdict.report + "\n", "pattern: " + std::string(example.pattern)));
        }
    }
}

TEST_CASE("the report finds the rows whose maximum rises after the first key tile, which a kernel rescales") {
    const std::string pattern =
        "pattern: only the rows whose maximum rises after the first key tile (rescale?)";
    for (const bool causal : {false, true}) {
        // Which rows they are differs from head to head; together they are all that see a second tile.
        const Case c = make_case({2, 4, 2, 150, 192, 64}, DType::fp16, causal);
        Answer a = answer(c);
        const std::vector<int> peak = Expected(c, a.inputs).peak;
        const auto rises = [&](int b, int h, int row, int) {
            return peak[(b * 4 + h) * std::size_t{150} + static_cast<std::size_t>(row)] >= 64;
        };
        a.spoil(rises);
        CHECK(contains(a.verdict().report, pattern));
        CHECK(!contains(a.verdict().report, "% of the elements there"));
        // One row more, and it is something else.
        a.spoil(
            [&](int b, int h, int row, int) { return b == 0 && h == 0 && row == 0 && !rises(b, h, row, 0); });
        a.spoil([&](int b, int h, int row, int) { return b == 1 && h == 2 && !rises(b, h, row, 0); });
        CHECK(!contains(a.verdict().report, "rescale?"));
    }
}

TEST_CASE("the report sees an error that grows with the keys that a row sees") {
    const Case c = make_case({1, 1, 1, 200, 200, 64}, DType::fp16, true);
    const auto report = [&](float slope) {
        Answer a = answer(c);
        for (int row = 0; row < 200; ++row) {
            for (int column = 0; column < 64; ++column) {
                a.set(0, 0, row, column, a.get(0, 0, row, column) + 1 + slope * static_cast<float>(row));
            }
        }
        return a.verdict().report;
    };
    CHECK(contains(report(0.1f), "the error grows with the number of keys that a row sees"));
    CHECK(contains(report(0.001f), "everything is wrong"));  // too little to speak of
    CHECK(contains(report(0), "everything is wrong"));
}

TEST_CASE("a device runs a stage, and what it wrote comes back") {
    for (const Layout layout : {Layout::bhnd, Layout::bnhd, Layout::mixed}) {
        for (const DType dtype : {DType::fp16, DType::bf16}) {
            const Case c = make_case({2, 4, 2, 37, 65, 64}, dtype, true, layout);
            FakeDevice device([&](const Problem& p) {
                CHECK(p.sm_count == 4);
                CHECK(reinterpret_cast<std::uintptr_t>(p.O.data) % 256 == 0);
                CHECK(reinterpret_cast<std::uintptr_t>(p.L) % 256 == 0);
                CHECK(std::isnan(p.L[0]));
                attend(p, exact);
            });
            const Inputs inputs = make_inputs(c);
            const Outputs outputs = run_stage(device, make_stage(), c, inputs);
            const Answer expected = answer(c);
            CHECK(outputs.O == expected.outputs.O);
            CHECK(outputs.L == expected.outputs.L);
            CHECK(verify(device, make_stage(), c).passed);
            CHECK(device.runs == 2);
        }
    }
}

TEST_CASE("a run that writes too much or too little is reported") {
    const Case c = make_case({1, 2, 2, 37, 65, 64});
    const auto verdict_of = [&](const std::function<void(const Problem&)>& damage) {
        FakeDevice device([&](const Problem& p) {
            attend(p, exact);
            damage(p);
        });
        const Verdict verdict = verify(device, make_stage(), c);
        CHECK(!verdict.passed);
        CHECK_THROWS_AS(run_stage(device, make_stage(), c, make_inputs(c)), CheckFailed);
        return verdict.report;
    };
    const auto O = [](const Problem& p) { return static_cast<std::uint16_t*>(p.O.data); };
    CHECK(contains(verdict_of([&](const Problem& p) {
                       O(p)[2 * 37 * 64] = 0;
                   }),
                   "wrote outside of O: to element 4736 of 4736"));
    CHECK(contains(verdict_of([&](const Problem& p) {
                       O(p)[2 * 64 * 64] = 0;
                   }),
                   "wrote outside of O: to element 8192 of"));
    CHECK(contains(verdict_of([&](const Problem& p) {
                       O(p)[-1] = 0;
                   }),
                   "wrote outside of O: to element -1 of"));
    CHECK(contains(verdict_of([&](const Problem& p) { p.L[2 * 37] = 0; }),
                   "wrote outside of L: to element 74 of 74"));
    CHECK(
        contains(verdict_of([&](const Problem& p) { p.L[-2] = 0; }), "wrote outside of L: to element -2 of"));
    CHECK(contains(verdict_of([&](const Problem& p) {
                       O(p)[(37 + 36) * 64 + 63] = 0x7fed;
                   }),
                   "O was not written in 1 of 4736 elements\n  first at b=0 h=1 row=36 column=63"));
    CHECK(contains(verdict_of([&](const Problem& p) { p.L[40] = std::bit_cast<float>(0x7fed7fedu); }),
                   "L was not written in 1 of 74 elements"));
}

TEST_CASE(
    "a stage that takes the strides of one tensor for another is reported, and so is what lies between "
    "rows") {
    const Case c = make_case({2, 4, 2, 37, 65, 64}, DType::fp16, true, Layout::mixed);
    const auto forward = [&](const std::function<void(Problem&)>& mistake) {
        FakeDevice device([&](const Problem& p) {
            Problem wrong = p;
            mistake(wrong);
            attend(wrong, exact);
        });
        return verify(device, make_stage(), c);
    };
    const auto strides_of = [](View& of, const View& from) {
        of = {of.data, from.batch, from.head, from.row};
    };
    CHECK(forward([](Problem&) {}).passed);
    CHECK(contains(forward([&](Problem& p) { strides_of(p.O, p.Q); }).report, "wrote "));
    CHECK(contains(forward([&](Problem& p) { strides_of(p.V, p.K); }).report, " is "));
    CHECK(!forward([&](Problem& p) { strides_of(p.K, p.V); }).passed);
    CHECK(!forward([&](Problem& p) { strides_of(p.Q, p.O); }).passed);
    CHECK(!forward([&](Problem& p) { p.Q.row = p.d; }).passed);

    FakeDevice device([&](const Problem& p) {
        attend(p, exact);
        static_cast<std::uint16_t*>(p.O.data)[p.O.row - 1] = 0;
    });
    CHECK(contains(verify(device, make_stage(), c).report, "wrote between the rows of O: to element "));

    const Case of_gradients = gradient_case(c.shape, DType::bf16, true, Layout::mixed);
    const std::vector<std::pair<View Problem::*, View Problem::*>> confused{
        {&Problem::dO, &Problem::O},  {&Problem::O, &Problem::dO}, {&Problem::dQ, &Problem::Q},
        {&Problem::dQ, &Problem::dO}, {&Problem::dK, &Problem::K}, {&Problem::dV, &Problem::V},
        {&Problem::dK, &Problem::dV}, {&Problem::dV, &Problem::dK}};
    for (std::size_t k = 0; k <= confused.size(); ++k) {
        FakeDevice backward([&](const Problem& p) {
            Problem wrong = p;
            if (k < confused.size()) strides_of(wrong.*confused[k].first, p.*confused[k].second);
            differentiate(wrong);
        });
        CAPTURE(k);
        CHECK(verify(backward, gradient_stage(), of_gradients).passed == (k == confused.size()));
    }
}

TEST_CASE("runs that differ are reported") {
    const Case c = make_case({1, 1, 1, 37, 65, 64});
    int runs = 0;
    FakeDevice device([&](const Problem& p) {
        attend(p, exact);
        if (++runs == 2)
            static_cast<std::uint16_t*>(p.O.data)[5 * 64 + 3] ^= 1;  // the last bit, well within bounds
    });
    device.kind = Backend::gpu;
    const Verdict verdict = verify(device, make_stage(), c);
    CHECK(!verdict.passed);
    CHECK(contains(verdict.report, "a second run changed O in 1 of 2368 elements"));
    CHECK(contains(verdict.report, "row=5 column=3"));
}

TEST_CASE("stages share the inputs of a case and what is expected") {
    const Stage small = [] {
        Stage stage = make_stage();
        stage.number = 8;
        stage.head_dims = {64};
        return stage;
    }();
    const Stage both = make_stage();
    const Case shared = make_case({1, 2, 1, 37, 65, 64}), other = make_case({1, 1, 1, 5, 5, 64}),
               wide = make_case({1, 1, 1, 5, 5, 128});
    std::vector<Verification> verifications;
    verifications.emplace_back(&both, std::vector{other, shared, wide});
    verifications.emplace_back(&small, std::vector{shared, wide});

    FakeDevice device(attend_exactly);
    std::vector<std::string> steps;
    verify_all(device, verifications, [&](const std::string& what, int done, int total) {
        CHECK(done == std::ssize(steps));
        CHECK(total == 5);
        steps.push_back(what);
    });
    // Case by case, since each is made but once.
    REQUIRE(steps.size() == 5);
    CHECK(contains(steps[0], "07_fake, " + other.description()));
    CHECK(contains(steps[1], "07_fake, " + shared.description()));
    CHECK(contains(steps[2], "08_fake, " + shared.description()));
    CHECK(contains(steps[3], "07_fake, " + wide.description()));
    CHECK(verifications[0].passed == 3);
    CHECK(verifications[1].passed == 1);
    CHECK(verifications[1].why_not == "it has no head dimension 128");
    CHECK(device.runs == 4);

    Reference reference(shared);
    CHECK(reference.seconds() == 0);
    CHECK(&reference.expected() == &reference.expected());
    CHECK(&reference.inputs() == &reference.inputs());
    CHECK(reference.inputs().Q == make_inputs(shared).Q);
    CHECK(reference.seconds() > 0);
}

#ifdef LADDER_HAS_CPU
TEST_CASE("a case has its own number of multiprocessors, if the machine is played") {
    class Played : public FakeDevice {
      public:
        using FakeDevice::FakeDevice;
        int sm_count() const override { return simt::options().multiprocessors; }
    };
    Stage stage = make_stage();
    std::vector<int> seen;
    stage.workspace_bytes = [&](const Shape&, int sm_count) -> std::size_t {
        seen.push_back(sm_count);
        return 8;
    };
    Played device([&](const Problem& p) {
        seen.push_back(p.sm_count);
        attend(p, exact);
    });
    const int usual = simt::options().multiprocessors;
    Case c = make_case({1, 1, 1, 5, 5, 64});
    for (const int multiprocessors : {0, 1, 132}) {
        seen.clear();
        c.multiprocessors = multiprocessors;
        CHECK(verify(device, stage, c).passed);
        CHECK(seen.size() > 2);
        for (const int count : seen) CHECK(count == (multiprocessors == 0 ? usual : multiprocessors));
        CHECK(simt::options().multiprocessors == usual);
    }

    FakeDevice gpu(attend_exactly);
    gpu.kind = Backend::gpu;
    CHECK_THROWS_AS(verify(gpu, make_stage(), c), CannotRun);
    CHECK(gpu.runs == 0);
    c.multiprocessors = 0;
    CHECK(verify(gpu, make_stage(), c).passed);
}

TEST_CASE("all orders of threads must give the same bits") {
    const Case c = make_case({1, 1, 1, 37, 65, 64});
    using simt::Order;
    std::vector<std::pair<Order, std::uint64_t>> seen;
    const auto verdict_of = [&](const std::function<void(const Problem&)>& damage) {
        FakeDevice device([&](const Problem& p) {
            seen.emplace_back(simt::options().order, simt::options().seed);
            attend(p, exact);
            damage(p);
        });
        seen.clear();
        Reference reference(c);
        const Verdict verdict = verify(device, make_stage(), reference, Runs::in_all_orders);
        CHECK(simt::options().order == Order::forward);
        return verdict;
    };
    CHECK(verdict_of([](const Problem&) {}).passed);
    REQUIRE(seen.size() == 5);
    CHECK(seen[0].first == Order::forward);
    CHECK(seen[1].first == Order::reversed);
    CHECK(seen[2] == std::pair{Order::shuffled, std::uint64_t{1}});
    CHECK(seen[3] == std::pair{Order::shuffled, std::uint64_t{2}});
    CHECK(seen[4] == std::pair{Order::delayed, std::uint64_t{1}});

    // The last bit, well within bounds.
    const Verdict changed = verdict_of([](const Problem& p) {
        if (simt::options().order == Order::reversed) static_cast<std::uint16_t*>(p.O.data)[3] ^= 1;
    });
    CHECK(!changed.passed);
    CHECK(contains(changed.report, "--order reversed changed O in 1 of 2368 elements"));
    const Verdict late = verdict_of([](const Problem& p) {
        if (simt::options().seed == 2 && simt::options().order == Order::shuffled) p.L[3] += 1e-6f;
    });
    CHECK(contains(late.report, "--order shuffled --order-seed 2 changed L in 1 of 37 elements"));
    const Verdict raced = verdict_of([](const Problem&) {
        if (simt::options().order == Order::shuffled) throw CheckFailed("a race");
    });
    CHECK(!raced.passed);
    CHECK(contains(raced.report, "a race\n"));
    CHECK(contains(raced.report, "--order shuffled --order-seed 1"));
}
#endif

TEST_CASE("what the device says of a kernel passes through") {
    const Case c = make_case({});
    FakeDevice racing([](const Problem&) { throw CheckFailed("a race"); });
    CHECK(verify(racing, make_stage(), c).report == "a race");
    CHECK(!verify(racing, make_stage(), c).passed);
    FakeDevice lacking([](const Problem&) { throw CannotRun("no bf16"); });
    CHECK_THROWS_AS(verify(lacking, make_stage(), c), CannotRun);
}

TEST_CASE("a stage that needs too much memory does not start") {
    Stage stage = make_stage();
    stage.workspace_bytes = [](const Shape& s, int sm_count) -> std::size_t {
        return static_cast<std::size_t>(s.Nq) * s.Nk * sm_count;
    };
    const Case c = make_case({1, 1, 1, 1024, 1024, 64});
    FakeDevice device(attend_exactly);
    device.memory = std::size_t{4} << 20;
    std::string message;
    try {
        run_stage(device, stage, c, make_inputs(c));
    } catch (const CannotRun& failure) {
        message = failure.what();
    }
    INFO(message);
    CHECK(contains(message, "07_fake"));
    CHECK(contains(message, "4 MiB of it workspace"));
    CHECK(contains(message, "(4194304 bytes) free"));
    CHECK(device.runs == 0);
    CHECK_THROWS_AS(verify(device, stage, c), CannotRun);
    device.memory = std::size_t{8} << 20;
    CHECK(verify(device, stage, c).passed);
}

TEST_CASE("the workspace starts as NaN at every run") {
    Stage stage = make_stage();
    stage.workspace_bytes = [](const Shape&, int) -> std::size_t { return (std::size_t{16} << 20) + 100; };
    int clean = 0;
    FakeDevice device([&](const Problem& p) {
        auto* bytes = static_cast<unsigned char*>(p.workspace);
        clean +=
            std::all_of(bytes, bytes + (16 << 20) + 100, [](unsigned char byte) { return byte == 0xff; });
        std::fill_n(bytes, (16 << 20) + 100, static_cast<unsigned char>(0));
        attend(p, exact);
    });
    device.kind = Backend::gpu;  // which runs twice
    CHECK(verify(device, stage, make_case({})).passed);
    CHECK(clean == 2);
}

TEST_CASE("counters at the end of the workspace start at 0, and must be 0 again") {
    Stage stage = make_stage();
    stage.workspace_bytes = [](const Shape&, int) -> std::size_t { return 100; };
    stage.counter_bytes = [](const Shape&, int) -> std::size_t { return 12; };
    const auto run_leaving = [&](int place, unsigned char value) {
        FakeDevice device([&](const Problem& p) {
            auto* bytes = static_cast<unsigned char*>(p.workspace);
            CHECK(std::all_of(bytes, bytes + 88, [](unsigned char byte) { return byte == 0xff; }));
            CHECK(std::all_of(bytes + 88, bytes + 100, [](unsigned char byte) { return byte == 0; }));
            bytes[place] = value;
            attend(p, exact);
        });
        return verify(device, stage, make_case({}));
    };
    CHECK(run_leaving(87, 1).passed);
    CHECK(run_leaving(88, 0).passed);
    CHECK(run_leaving(99, 1).report == "left a counter that is not 0 at byte 99 of the workspace");
    CHECK(!run_leaving(88, 1).passed);
}

TEST_CASE("a covering holds every two levels together, as far as that is feasible") {
    const Levels levels{3, 2, 5, 4};
    const auto feasible = [](const Levels& row) { return row[2] + row[3] < 6; };
    const auto cost = [&](const Levels& row) { return feasible(row) ? (1 + row[0]) / 3.0 : 2; };
    const std::vector<Levels> rows = cover(levels, 2, {{2, 1, -1, 3}}, cost);
    CHECK(rows.size() <= 26);  // 4 x 5 is the least
    REQUIRE(!rows.empty());
    CHECK((rows[0][0] == 2 && rows[0][1] == 1 && rows[0][3] == 3));
    const auto some = [&](std::size_t f, int a, std::size_t g, int b) {
        return std::any_of(rows.begin(), rows.end(),
                           [&](const Levels& row) { return row[f] == a && row[g] == b; });
    };
    for (std::size_t f = 0; f < levels.size(); ++f) {
        for (std::size_t g = f + 1; g < levels.size(); ++g) {
            for (int a = 0; a < levels[f]; ++a) {
                for (int b = 0; b < levels[g]; ++b) CHECK(some(f, a, g, b) == (f != 2 || a + b < 6));
            }
        }
    }
    for (const Levels& row : rows) CHECK(feasible(row));
    CHECK(cover(levels, 1, {}, cost).size() <= 6);
    // What costs more is chosen less often where either will do.
    const auto count = [&](int level) {
        return std::count_if(rows.begin(), rows.end(), [=](const Levels& row) { return row[0] == level; });
    };
    CHECK(count(1) > count(2));
}

TEST_CASE("the verification cases cover what they promise") {
    Stage stage = make_stage();
    stage.tilings = {{64, 64, 1}, {16, 64, 2}};
    const std::vector<Case> each = verification_cases(stage, Cover::each),
                            pairs = verification_cases(stage, Cover::pairs),
                            all = verification_cases(stage, Cover::all);
    CHECK(each.size() <= 14);
    CHECK(pairs.size() <= 96 + 64);  // a diagonal for each key of a tile
    CHECK(all.size() <= 190 + 64 + 2);
    const auto tiling = [&](const Case& c) { return stage.tilings[c.shape.d == 64 ? 0 : 1]; };

    /// An idea, and whether a case has it.
    struct Idea {
        std::string name;
        std::function<bool(const Case&)> has;
    };
    std::vector<std::vector<Idea>> factors{
        {{"fp16", [](const Case& c) { return c.dtype == DType::fp16; }},
         {"bf16", [](const Case& c) { return c.dtype == DType::bf16; }}},
        {{"bnhd", [](const Case& c) { return c.layout == Layout::bnhd; }},
         {"bhnd", [](const Case& c) { return c.layout == Layout::bhnd; }},
         {"mixed", [](const Case& c) { return c.layout == Layout::mixed; }}},
        {{"mask", [](const Case& c) { return c.causal; }},
         {"no mask", [](const Case& c) { return !c.causal; }}},
        {{"usual scale", [](const Case& c) { return !c.scale; }},
         {"scale < 0", [](const Case& c) { return c.scale && *c.scale < 0; }},
         {"scale 0", [](const Case& c) { return c.scale == 0.0f; }}},
        {{"one row", [](const Case& c) { return c.shape.Nq == 1; }},
         {"a row less", [&](const Case& c) { return c.shape.Nq == tiling(c).Br - 1; }},
         {"one tile", [&](const Case& c) { return c.shape.Nq == tiling(c).Br; }},
         {"a row more", [&](const Case& c) { return c.shape.Nq == tiling(c).Br + 1; }},
         {"several", [&](const Case& c) { return c.shape.Nq > 2 * tiling(c).Br; }}},
        {{"one key", [](const Case& c) { return c.shape.Nk == 1; }},
         {"a key less", [&](const Case& c) { return c.shape.Nk == tiling(c).Bc - 1; }},
         {"one tile of keys", [&](const Case& c) { return c.shape.Nk == tiling(c).Bc; }},
         {"a key more", [&](const Case& c) { return c.shape.Nk == tiling(c).Bc + 1; }},
         {"wrapped twice", [&](const Case& c) { return c.shape.Nk > 2 * tiling(c).depth * tiling(c).Bc; }}}};
    std::vector<Idea> batches, groups, machines, inputs;
    for (const int n : {1, 2, 3})
        batches.push_back({fmt::format("B {}", n), [=](const Case& c) { return c.shape.B == n; }});
    for (const int n : {1, 2, 3, 8})
        groups.push_back(
            {fmt::format("group {}", n), [=](const Case& c) { return c.shape.H == n * c.shape.Hkv; }});
    for (const int n : {0, 1, 3, 132})
        machines.push_back({fmt::format("{} sms", n), [=](const Case& c) { return c.multiprocessors == n; }});
    for (const InputKind& kind : input_kinds())
        inputs.push_back({kind.name, [name = kind.name](const Case& c) { return c.input == name; }});
    for (const auto& more : {batches, groups, machines, inputs}) factors.push_back(more);

    const auto some = [](const std::vector<Case>& cases, auto&& predicate) {
        return std::any_of(cases.begin(), cases.end(), predicate);
    };
    for (std::size_t f = 0; f < factors.size(); ++f) {
        for (const Idea& one : factors[f]) {
            CAPTURE(one.name);
            CHECK(some(each, one.has));
            for (std::size_t g = f + 1; g < factors.size(); ++g) {
                for (const Idea& other : factors[g]) {
                    CAPTURE(other.name);
                    CHECK(some(pairs, [&](const Case& c) { return one.has(c) && other.has(c); }));
                    for (const int d : stage.head_dims)
                        CHECK(some(all, [&](const Case& c) {
                            return c.shape.d == d && one.has(c) && other.has(c);
                        }));
                }
            }
        }
    }
    // In threes: every two sizes under a mask, and what no two ideas bring about.
    for (const Idea& rows : factors[4]) {
        for (const Idea& keys : factors[5]) {
            CAPTURE(rows.name, keys.name);
            CHECK(some(pairs, [&](const Case& c) { return c.causal && rows.has(c) && keys.has(c); }));
        }
    }
    CHECK(some(pairs, [&](const Case& c) {
        return c.causal && c.multiprocessors == 132 && c.shape.Nq > c.shape.Nk &&
               c.shape.Nk > 2 * tiling(c).Bc;
    }));
    CHECK(some(pairs, [&](const Case& c) {
        return c.shape.B * c.shape.H == 1 && c.multiprocessors == 132 && c.shape.Nk > 32 * tiling(c).Bc;
    }));
}

TEST_CASE("what takes sizes of its own is among the cases: diagonals, groups, turns, many bytes, offsets") {
    Stage stage = make_stage();
    stage.tilings = {{192, 128, 4}, {128, 64, 2}};
    const auto some = [](const std::vector<Case>& cases, auto&& predicate) {
        return std::any_of(cases.begin(), cases.end(), predicate);
    };
    for (const Pass pass : {Pass::forward, Pass::backward}) {
        stage.pass = pass;
        const std::vector<Case> pairs = verification_cases(stage, Cover::pairs),
                                all = verification_cases(stage, Cover::all);
        CAPTURE(name(pass));
        for (std::size_t k = 0; k < 2; ++k) {
            const Tiling& t = stage.tilings[k];
            const int modulus = pass == Pass::forward ? t.Bc : std::max(t.Br, t.Bc);
            const auto fits = [&](const Case& c) { return c.shape.d == stage.head_dims[k]; };
            for (int residue = 0; residue < modulus; ++residue) {
                CAPTURE(t.Br, t.Bc, residue);
                CHECK(some(pairs, [&](const Case& c) {
                    const int distance = c.shape.Nk - c.shape.Nq;
                    return fits(c) && c.causal && distance >= modulus && distance % modulus == residue;
                }));
            }
            for (const int group : {2, 3, 5, 6, 7, 8}) {
                CAPTURE(group);
                CHECK(some(pairs, [&](const Case& c) {
                    return fits(c) && c.causal && c.shape.H == group * c.shape.Hkv && c.shape.Nq > 1 &&
                           c.shape.Nq * group > t.Br && c.shape.Nk > 2 * t.Bc;
                }));
            }
            const int warpgroups = (pass == Pass::forward ? t.Br : t.Bc) / 64;
            for (const bool causal : {false, true}) {
                CHECK((warpgroups == 1 || some(pairs, [&](const Case& c) {
                           const int shared = pass == Pass::forward ? c.shape.Nq : c.shape.Nk,
                                     other = pass == Pass::forward ? c.shape.Nk : c.shape.Nq,
                                     tile = pass == Pass::forward ? t.Bc : t.Br;
                           const int tiles = (other + tile - 1) / tile;
                           return fits(c) && c.causal == causal && shared == 64 * warpgroups && tiles >= 8 &&
                                  tiles > t.depth && tiles % warpgroups != 0;
                       })));
            }
        }
        const auto has_many_bytes = [&](const Case& c) {
            const Shape& s = c.shape;
            const double bytes = 4.0 * s.Nk * s.d * s.Hkv / s.H;
            return c.causal && s.B * s.H > int(double(16 << 20) / bytes) && s.Nq > (s.d == 64 ? 192 : 128);
        };
        CHECK(some(pairs, has_many_bytes) == (pass == Pass::forward));
        CHECK(some(all, [](const Case& c) { return c.layout == Layout::far && c.shape.B > 1; }));
        CHECK(some(all, [](const Case& c) { return c.layout == Layout::far && c.shape.Hkv > 1; }));
        CHECK(some(all, [](const Case& c) {
            return c.layout == Layout::far &&
                   (c.shape.Nk - 1) * placement(c, Tensor::K).row >= std::int64_t{1} << 31;
        }));
    }
}

TEST_CASE(
    "stages with the same tilings have their cases in common where they have a head dimension in common") {
    Stage narrow = make_stage(), wide = make_stage();
    narrow.head_dims = {64};
    wide.head_dims = {64, 128, 256};
    std::set<std::string> all;
    for (const Case& c : verification_cases(wide, Cover::all)) {
        CAPTURE(c.description());
        CHECK(all.insert(c.description()).second);  // each once
    }
    for (const Stage& stage : {narrow, make_stage()}) {
        for (const Case& c : verification_cases(stage, Cover::all)) CHECK(all.contains(c.description()));
    }
}

TEST_CASE("random problems are problems, and a failing one shrinks to what makes it fail") {
    std::mt19937_64 random(7);
    std::vector<Case> drawn;
    for (int k = 0; k < 40; ++k) {
        drawn.push_back(random_case(random, {64, 128}, k));
        CAPTURE(drawn.back().description());
        CHECK_NOTHROW(validate(drawn.back().shape));
        CHECK_NOTHROW(make_inputs(drawn.back()));
    }
    for (const auto& [name, layout] : layouts()) {
        CAPTURE(name);
        CHECK(std::any_of(drawn.begin(), drawn.end(),
                          [layout = layout](const Case& c) { return c.layout == layout; }));
    }
    const auto fails = [](const Case& c) {
        return c.shape.Nk > 37 && c.shape.H >= 2 * c.shape.Hkv && c.causal;
    };
    const auto failing = std::find_if(drawn.begin(), drawn.end(), fails);
    REQUIRE(failing != drawn.end());
    const Case smallest = shrink(*failing, fails);
    CHECK(smallest.options() == fmt::format("--shape 1,2,1,1,38,{} --causal", smallest.shape.d));
}

#ifdef LADDER_HAS_CPU
TEST_CASE("an offset of 32 bits reads and writes other rows of tensors far apart, which is reported") {
    const auto device = open_device(Backend::cpu);
    Stage stage = make_stage();
    stage.tilings = {{64, 64, 1}, {64, 64, 1}};
    int far = 0;
    for (const Case& c : verification_cases(stage, Cover::all)) {
        if (c.layout != Layout::far) continue;
        far += 1;
        CAPTURE(c.description());
        static View Problem::*in_32_bits;
        const auto passes = [&](View Problem::*wrong) {
            in_32_bits = wrong;
            Stage kernel = stage;
            kernel.run = [](const Problem& p) {
                const simt::DuringLaunch launch;  // as if a kernel did it
                Problem q = p;
                if (in_32_bits != nullptr) {
                    View& view = q.*in_32_bits;
                    for (std::int64_t* stride : {&view.batch, &view.head})
                        *stride = static_cast<int>(*stride);
                }
                attend(q, exact);
            };
            return verify(*device, kernel, c).passed;
        };
        CHECK(passes(nullptr));
        CHECK(!passes(&Problem::O));
        CHECK(!passes(&Problem::K));
    }
    CHECK(far == 2);
}
#endif

}  // namespace
