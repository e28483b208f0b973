// lab run: tensors from .npy files and back, against the reference.

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "harness/base/npy.h"
#include "reference/attention.h"
#include "tests/any_stage.h"
#include "tests/cli.h"

using namespace ladder;
using namespace ladder::test;

namespace {

// A tensor of small numbers, each a multiple of 1/64 so that both types hold it exactly.
NpyArray tensor(NpyArray::Type type, std::vector<std::int64_t> shape, int seed) {
    NpyArray array{type, std::move(shape), ""};
    std::int64_t size = 1;
    for (const std::int64_t n : array.shape) size *= n;
    for (std::int64_t i = 0; i < size; ++i) {
        const float value = static_cast<float>((i * 37 + seed * 101) % 193 - 96) / 64.0f;
        const Eigen::half half(value);
        const char* bytes = type == NpyArray::Type::float16 ? reinterpret_cast<const char*>(&half)
                                                            : reinterpret_cast<const char*>(&value);
        array.bytes.append(bytes, element_size(type));
    }
    return array;
}

std::vector<float> values(const NpyArray& array) {
    std::vector<float> result(array.bytes.size() / element_size(array.type));
    for (std::size_t i = 0; i < result.size(); ++i) {
        if (array.type == NpyArray::Type::float32) {
            std::memcpy(&result[i], array.bytes.data() + 4 * i, 4);
        } else {
            std::uint16_t bits;
            std::memcpy(&bits, array.bytes.data() + 2 * i, 2);
            result[i] = static_cast<float>(Eigen::numext::bit_cast<Eigen::half>(bits));
        }
    }
    return result;
}

// Q, K and V in a folder, and the command line that runs a stage on them.
struct Files {
    Folder folder;

    explicit Files(NpyArray::Type type = NpyArray::Type::float16, bool bnhd = false) {
        write("q.npy",
              tensor(type,
                     bnhd ? std::vector<std::int64_t>{1, 37, 4, 64} : std::vector<std::int64_t>{1, 4, 37, 64},
                     1));
        for (const char* file : {"k.npy", "v.npy"}) {
            write(file, tensor(type,
                               bnhd ? std::vector<std::int64_t>{1, 65, 2, 64}
                                    : std::vector<std::int64_t>{1, 2, 65, 64},
                               file[0]));
        }
    }
    void write(const std::string& file, const NpyArray& array) { folder.write(file, format_npy(array)); }

    std::vector<std::string> command(std::vector<std::string> more = {}) const {
        std::vector<std::string> words{"run",       "4",
                                       "--q",       folder / "q.npy",
                                       "--k",       folder / "k.npy",
                                       "--v",       folder / "v.npy",
                                       "--out",     folder / "o.npy",
                                       "--backend", some_backend()};
        words.insert(words.end(), more.begin(), more.end());
        return words;
    }
};

// The largest difference between o.npy, l.npy and the reference.
double error_against_reference(const Files& files, bool bnhd, bool causal, double scale) {
    const auto q = values(read_npy(files.folder / "q.npy", 4)),
               k = values(read_npy(files.folder / "k.npy", 4)),
               v = values(read_npy(files.folder / "v.npy", 4)),
               o = values(read_npy(files.folder / "o.npy", 4)),
               l = values(read_npy(files.folder / "l.npy", 3));
    const auto head = [&](const std::vector<float>& x, int h, int heads, int N) {
        reference::Matrix m(N, 64);
        for (int i = 0; i < N; ++i) {
            for (int c = 0; c < 64; ++c)
                m(i, c) = x[static_cast<std::size_t>(bnhd ? (i * heads + h) * 64 + c : (h * N + i) * 64 + c)];
        }
        return m;
    };
    double error = 0;
    for (int h = 0; h < 4; ++h) {
        const auto expected =
            reference::attention(head(q, h, 4, 37), head(k, h / 2, 2, 65), head(v, h / 2, 2, 65), scale,
                                 {.causal = causal, .Nq = 37, .Nk = 65});
        error = std::max(error, (head(o, h, 4, 37) - expected.O).cwiseAbs().maxCoeff());
        for (int i = 0; i < 37; ++i) {
            error =
                std::max(error, std::abs(double(l[static_cast<std::size_t>(h * 37 + i)]) - expected.L[i]));
        }
    }
    return error;
}

const char* const gradients = "recompute";  // a stage of the backward pass

}  // namespace

TEST_CASE("lab run: float16 and float32, both layouts, against the reference", "[cli]") {
    if (std::string(some_backend()) == "none") return;
    for (const auto type : {NpyArray::Type::float16, NpyArray::Type::float32}) {
        for (const bool bnhd : {false, true}) {
            CAPTURE(name(type), bnhd);
            const Files files(type, bnhd);
            const ProcessResult result =
                lab(files.command({"--lse", files.folder / "l.npy", "--layout", bnhd ? "bnhd" : "bhnd"}));
            INFO(result.err);
            REQUIRE(result.status == 0);
            const NpyArray o = read_npy(files.folder / "o.npy", 4), l = read_npy(files.folder / "l.npy", 3);
            CHECK(o.type == type);
            CHECK(o.shape == read_npy(files.folder / "q.npy", 4).shape);
            CHECK(l.type == NpyArray::Type::float32);
            CHECK(l.shape == std::vector<std::int64_t>{1, 4, 37});
            CHECK(error_against_reference(files, bnhd, false, 0.125) < 1e-3);
        }
    }
}

TEST_CASE("lab run: causal, another scale, bf16", "[cli]") {
    if (std::string(some_backend()) == "none") return;
    const Files files(NpyArray::Type::float32);
    REQUIRE(lab(files.command({"--lse", files.folder / "l.npy", "--causal", "--scale", "0.3"})).status == 0);
    CHECK(error_against_reference(files, false, true, 0.3) < 2e-3);
    REQUIRE(lab(files.command({"--lse", files.folder / "l.npy", "--dtype", "bf16"})).status == 0);
    const double error = error_against_reference(files, false, false, 0.125);
    CHECK(error < 1e-2);
    CHECK(error > 1e-5);  // it was rounded to bf16
}

TEST_CASE("lab run: gradients, against the reference", "[cli]") {
    if (std::string(some_backend()) == "none") return;
    for (const bool bnhd : {false, true}) {
        CAPTURE(bnhd);
        const Files files(NpyArray::Type::float32, bnhd);
        files.folder.write("do.npy", format_npy(tensor(NpyArray::Type::float32,
                                                       read_npy(files.folder / "q.npy", 4).shape, 7)));
        std::vector<std::string> command{"run",      gradients,  "--backend",           some_backend(),
                                         "--causal", "--layout", bnhd ? "bnhd" : "bhnd"};
        for (const char* tensor : {"q", "k", "v", "do"})
            command.insert(command.end(),
                           {std::string("--") + tensor, files.folder / (std::string(tensor) + ".npy")});
        expect_failure(command, 2, "--dq, --dk or --dv is required");
        for (const char* tensor : {"dq", "dk", "dv"})
            command.insert(command.end(),
                           {std::string("--") + tensor, files.folder / (std::string(tensor) + ".npy")});
        const ProcessResult result = lab(command);
        INFO(result.err);
        REQUIRE(result.status == 0);
        CHECK(result.out.find("dk.npy, float32 (1, ") != std::string::npos);
        const auto head = [&](const std::string& file, int h, int heads, int N) {
            const auto x = values(read_npy(files.folder / (file + ".npy"), 4));
            reference::Matrix m(N, 64);
            for (int i = 0; i < N; ++i) {
                for (int c = 0; c < 64; ++c)
                    m(i, c) =
                        x[static_cast<std::size_t>(bnhd ? (i * heads + h) * 64 + c : (h * N + i) * 64 + c)];
            }
            return m;
        };
        for (int kv = 0; kv < 2; ++kv) {
            reference::Matrix dK = reference::Matrix::Zero(65, 64), dV = dK;
            for (int h = 2 * kv; h < 2 * kv + 2; ++h) {
                const auto expected = reference::attention_gradient(
                    head("q", h, 4, 37), head("k", kv, 2, 65), head("v", kv, 2, 65), head("do", h, 4, 37),
                    0.125, {true, 37, 65});
                CHECK((head("dq", h, 4, 37) - expected.dQ).cwiseAbs().maxCoeff() < 2e-3);
                dK += expected.dK;
                dV += expected.dV;
            }
            CHECK((head("dk", kv, 2, 65) - dK).cwiseAbs().maxCoeff() < 5e-3);
            CHECK((head("dv", kv, 2, 65) - dV).cwiseAbs().maxCoeff() < 5e-3);
        }

        auto wrong = command;
        wrong.insert(wrong.end(), {"--out", files.folder / "o.npy"});
        expect_failure(wrong, 2,
                       "--out is for stages that compute attention; " + folder_of("recompute") +
                           " computes dQ, dK and dV");
        expect_failure(files.command({"--do", files.folder / "do.npy"}), 2,
                       "--do is for stages that compute gradients; 04_split_q computes O and L");
        files.folder.write("do.npy", files.folder.read("k.npy"));
        expect_failure(command, 2, "dO is float32 (1, ");
        *(std::find(command.begin(), command.end(), "--dv") + 1) = files.folder / "dk.npy";
        expect_failure(command, 2, "--dk and --dv name the same file");
    }
}
