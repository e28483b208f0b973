#include "harness/verify/parts.h"

#include <algorithm>
#include <cstddef>
#include <type_traits>
#include <utility>
#include <vector>

#include "stages/ring.h"

namespace ladder {
namespace {

/// Calls f(first row, rows) for the chunks of N rows that a rank holds, in their order: number `rank`, and if
/// there are two the same from the end.
template <class F>
void for_each_chunk(int N, int per_rank, int ranks, int rank, F&& f) {
    const int chunks = per_rank * ranks;
    for (int k = 0; k < per_rank; ++k) {
        const int chunk = k == 0 ? rank : chunks - 1 - rank;
        f(chunk_begin(N, chunks, chunk), chunk_rows(N, chunks, chunk));
    }
}

int rows_of_part(int N, int per_rank, int ranks, int rank) {
    int rows = 0;
    for_each_chunk(N, per_rank, ranks, rank, [&](int, int count) { rows += count; });
    return rows;
}

/// Calls copy(element of the whole, element of the part, elements) for the rank's rows of (matrices, N,
/// width).
template <class F>
void for_each_piece(int matrices, int N, int width, const Case& c, int chunks, int rank, F&& copy) {
    std::size_t of_part = 0;
    for (int m = 0; m < matrices; ++m) {
        for_each_chunk(N, chunks, c.features.ranks, rank, [&](int first, int rows) {
            const std::size_t count = std::size_t(rows) * width;
            copy((std::size_t(m) * N + first) * width, of_part, count);
            of_part += count;
        });
    }
}

Inputs part_inputs(const Stage& stage, const Case& c, int rank, const Inputs& all) {
    const Shape &s = c.shape, part = part_case(stage, c, rank).shape;
    const auto rows_of = [&](const auto& from, int heads, int N, int part_N, int width) {
        std::remove_cvref_t<decltype(from)> to(from.empty() ? 0 : std::size_t(s.B) * heads * part_N * width);
        if (from.empty()) return to;  // of the other pass
        for_each_piece(s.B * heads, N, width, c, stage.chunks, rank,
                       [&](std::size_t whole, std::size_t of_part, std::size_t count) {
                           std::copy_n(from.begin() + whole, count, to.begin() + of_part);
                       });
        return to;
    };
    const auto of_rows = [&](const auto& from, int width) {
        return stage.divides_rows ? rows_of(from, s.H, s.Nq, part.Nq, width) : from;
    };
    return {of_rows(all.Q, s.d),
            rows_of(all.K, s.Hkv, s.Nk, part.Nk, s.d),
            rows_of(all.V, s.Hkv, s.Nk, part.Nk, s.d),
            of_rows(all.dO, s.d),
            of_rows(all.O, s.d),
            of_rows(all.L, 1)};
}

}  // namespace

Case part_case(const Stage& stage, const Case& c, int rank) {
    if (c.features.ranks == 1) return c;
    Case part = c;
    if (stage.divides_rows) part.shape.Nq = rows_of_part(c.shape.Nq, stage.chunks, c.features.ranks, rank);
    part.shape.Nk = rows_of_part(c.shape.Nk, stage.chunks, c.features.ranks, rank);
    part.features.ranks = 1;
    return part;
}

std::list<DeviceInputs> inputs_of_ranks(Device& device, const Stage& stage, const Case& c,
                                        const Inputs& inputs) {
    std::list<DeviceInputs> of_ranks;
    if (c.features.ranks == 1) {
        of_ranks.emplace_back(device, c, inputs);
        return of_ranks;
    }
    for (int rank = 0; rank < c.features.ranks; ++rank) {
        of_ranks.emplace_back(device.of_rank(rank, c.features.ranks), part_case(stage, c, rank),
                              part_inputs(stage, c, rank, inputs));
    }
    return of_ranks;
}

void run_parts(Device& device, const Stage& stage, const std::vector<Problem>& problems, const Shape& whole) {
    if (problems.size() == 1) {
        device.run(stage, problems.front());
    } else {
        device.run_ranks(stage, problems, whole);
    }
}

void add_part(const Stage& stage, const Case& c, int rank, Outputs part, Outputs& all) {
    if (c.features.ranks == 1 || !stage.divides_rows) {
        if (rank == 0) all = std::move(part);
        return;
    }
    const Shape& s = c.shape;
    for (const OutputTensor& tensor : output_tensors(c)) {
        const int matrices = tensor.batches(s) * tensor.heads(s), rows = tensor.rows(s),
                  width = tensor.columns(s);
        const auto add = [&](const auto& from, auto& to) {
            to.resize(std::size_t(matrices) * rows * width);
            for_each_piece(matrices, rows, width, c, stage.chunks, rank,
                           [&](std::size_t whole, std::size_t of_part, std::size_t count) {
                               std::copy_n(from.begin() + of_part, count, to.begin() + whole);
                           });
        };
        if (tensor.has_floats()) {
            add(part.*tensor.floats, all.*tensor.floats);
        } else {
            add(part.*tensor.elements, all.*tensor.elements);
        }
    }
}

}  // namespace ladder
