#include "harness/verify/divided_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "harness/device/workspace.h"

namespace ladder {
namespace {

/// Calls f(first row, rows) for the chunks of N rows that a rank holds, in their order.
template <class F>
void for_each_chunk(int N, int per_rank, int ranks, int rank, F&& f) {
    const int chunks = per_rank * ranks;
    for (int k = 0; k < per_rank; ++k) {
        const int chunk = k == 0 ? rank : chunks - 1 - rank;
        f(chunk_begin(N, chunks, chunk), chunk_rows(N, chunks, chunk));
    }
}

int part_rows(int N, int per_rank, int ranks, int rank) {
    int rows = 0;
    for_each_chunk(N, per_rank, ranks, rank, [&](int, int count) { rows += count; });
    return rows;
}

/// Copies a rank's rows from all (matrices, N, width) to its own (matrices, its rows, width), or back.
template <class V>
void copy_part(V* all, V* part, bool back, int matrices, int N, int width, int per_rank, int ranks,
               int rank) {
    for (int m = 0; m < matrices; ++m) {
        for_each_chunk(N, per_rank, ranks, rank, [&](int first, int rows) {
            V* there = all + (std::size_t(m) * N + first) * width;
            const std::size_t count = std::size_t(rows) * width;
            back ? std::copy_n(part, count, there) : std::copy_n(there, count, part);
            part += count;
        });
    }
}

/// A rank's memory
struct Part {
    Part(Device& device, const Stage& stage, const Case& all, const Shape& part)
        : c(all),
          Q(device, bytes(part.H, part.Nq), "Q", false),
          K(device, bytes(part.Hkv, part.Nk), "K", false),
          V(device, bytes(part.Hkv, part.Nk), "V", false),
          O(device, bytes(part.H, part.Nq), "O", true),
          L(device, std::size_t(part.B) * part.H * part.Nq * sizeof(float), "L", true),
          workspace(device, stage, part) {
        c.shape = part;
        c.layout = Layout::bhnd;
        device.fill(O.data(), 0xff, O.bytes());
        device.fill(L.data(), 0xff, L.bytes());
        workspace.poison();
        problem = make_problem(c, {Q.data(), K.data(), V.data(), O.data(), L.data()});
        problem.workspace = workspace.data();
        problem.sm_count = device.sm_count();
    }
    std::size_t bytes(int heads, int rows) const {
        return std::size_t(c.shape.B) * heads * rows * c.shape.d * sizeof(std::uint16_t);
    }

    Case c;
    Buffer Q, K, V, O, L;
    Workspace workspace;
    Problem problem;
};

}  // namespace

DividedRun run_divided(Device& device, const Stage& stage, const Case& c, const Inputs& inputs, int ranks,
                       std::uint64_t seed) {
    const Shape& s = c.shape;
    if (stage.chunks == 0) throw BadUsage(fmt::format("{} is for one GPU alone", stage.folder()));
    if (std::min(s.Nq, s.Nk) < stage.chunks * ranks) {
        throw BadUsage(fmt::format("{} divides a sequence over {} ranks by {} chunks: {} rows are too few",
                                   stage.folder(), ranks, stage.chunks * ranks, std::min(s.Nq, s.Nk)));
    }
    const auto copy = [&](auto* all, auto* part, bool back, int heads, int N, int width, int rank) {
        copy_part(all, part, back, s.B * heads, N, width, stage.chunks, ranks, rank);
    };
    std::vector<Part> parts;
    std::vector<Problem> problems;
    parts.reserve(ranks);
    for (int rank = 0; rank < ranks; ++rank) {
        Shape part = s;
        part.Nq = part_rows(s.Nq, stage.chunks, ranks, rank);
        part.Nk = part_rows(s.Nk, stage.chunks, ranks, rank);
        Part& own = parts.emplace_back(device, device.ready(stage), c, part);
        const auto upload = [&](const Buffer& to, const std::vector<std::uint16_t>& from, int heads, int N) {
            std::vector<std::uint16_t> rows(to.bytes() / sizeof(std::uint16_t));
            copy(const_cast<std::uint16_t*>(from.data()), rows.data(), false, heads, N, s.d, rank);
            device.upload(to.data(), rows.data(), to.bytes());
        };
        upload(own.Q, inputs.Q, s.H, s.Nq);
        upload(own.K, inputs.K, s.Hkv, s.Nk);
        upload(own.V, inputs.V, s.Hkv, s.Nk);
        problems.push_back(own.problem);
    }
    DividedRun run{{}, run_ranks(device, stage, problems, s, seed)};
    run.outputs.O.resize(std::size_t(s.B) * s.H * s.Nq * s.d);
    run.outputs.L.resize(std::size_t(s.B) * s.H * s.Nq);
    for (int rank = 0; rank < ranks; ++rank) {
        const Part& own = parts[rank];
        own.workspace.check_counters();
        const auto download = [&](const Buffer& from, auto& to, int width) {
            auto rows = to;
            rows.resize(from.bytes() / sizeof rows[0]);
            device.download(rows.data(), from.data(), from.bytes());
            copy(to.data(), rows.data(), true, s.H, s.Nq, width, rank);
        };
        download(own.O, run.outputs.O, s.d);
        download(own.L, run.outputs.L, 1);
    }
    return run;
}

}  // namespace ladder
