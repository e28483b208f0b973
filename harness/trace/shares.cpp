#include "harness/trace/shares.h"
#include "harness/features/features.h"

#include <set>

namespace ladder {
namespace {

// Where a byte of a tensor is.
struct Element {
    int batch, head, row;
};

// Tensors have no gaps, so each index follows from its stride.
Element element_at(std::size_t byte, const View& view, int heads, int N, const Shape& s) {
    const auto at = static_cast<std::int64_t>(byte / sizeof(std::uint16_t));
    return {static_cast<int>(at / view.batch % s.B), static_cast<int>(at / view.head % heads),
            static_cast<int>(at / view.row % N)};
}

Ranges ranges_of(const std::set<int>& numbers) {
    Ranges ranges;
    for (const int n : numbers) {
        if (ranges.empty() || ranges.back().second != n) ranges.emplace_back(n, n);
        ranges.back().second = n + 1;
    }
    return ranges;
}

}  // namespace

std::vector<simt::BlockTrace::Phase> phases_of(const TracedBlock& block, std::size_t number) {
    const Visit& visit = block.visits[number];
    const auto& record = block.record.phases;
    const auto first = static_cast<std::size_t>(visit.first_phase);
    if (visit.warps == 0) {
        return {record.begin() + static_cast<std::ptrdiff_t>(first),
                record.begin() + static_cast<std::ptrdiff_t>(block.end_of(number))};
    }
    simt::BlockTrace::Phase own{.tiles = {visit.tile}, .warps = {}};
    own.warps.resize(record[first].warps.size());
    for (int warp = visit.first_warp; warp < visit.first_warp + visit.warps; ++warp) {
        const auto w = static_cast<std::size_t>(warp);
        own.warps[w] = record[first].warps[w];
        if (first == 0) continue;
        // Its scores may have been multiplied before the note of it.
        for (const auto what : {&simt::BlockTrace::Warp::read, &simt::BlockTrace::Warp::read_transposed}) {
            for (const auto& [tensor, bytes] : record[first - 1].warps[w].*what)
                (own.warps[w].*what)[tensor].add(bytes);
        }
    }
    return {own};
}

std::vector<Share> shares_of(const simt::BlockTrace::Phase& phase, const simt::Tile& tile, const Case& c) {
    const Shape& s = c.shape;
    const Problem problem = make_problem(c, {});
    const auto row_of = [&](const Element& at) {
        if (at.head / tile.group != tile.head) return -1;
        return at.row * tile.group + at.head % tile.group - tile.query_tile * tile.rows;
    };
    const auto key_of = [&](const Element& at) { return at.row - tile.key_tile * tile.keys; };
    std::vector<Share> shares;
    for (const auto& warp : phase.warps) {
        // The rows of the tile, numbered by `number_of`, of which the warp read anything of that tensor.
        const auto read_of = [&](const auto& read, const char* name, const View& view, int heads, int N,
                                 int rows, auto number_of) {
            std::set<int> numbers;
            const auto found = read.find(name);
            if (found == read.end()) return ranges_of(numbers);
            for (const auto& [first, end] : found->second.pieces()) {
                for (std::size_t byte = first; byte < end; byte += 16) {  // a copy's
                    const Element at = element_at(byte, view, heads, N, s);
                    const int number = number_of(at);
                    if (at.batch == tile.batch && number >= 0 && number < rows) numbers.insert(number);
                }
            }
            return ranges_of(numbers);
        };
        Share& share = shares.emplace_back();
        share.rows = read_of(warp.read, "Q", problem.Q, s.H, s.Nq, tile.rows, row_of);
        share.keys = read_of(warp.read, "K", problem.K, s.Hkv, s.Nk, tile.keys, key_of);
        share.value_keys = read_of(warp.read_transposed, "V", problem.V, s.Hkv, s.Nk, tile.keys, key_of);
        if (!warp.received.empty()) share.received.resize(phase.warps.size());
        for (const auto& [other, bytes] : warp.received)
            share.received[static_cast<std::size_t>(other)] = bytes;
    }
    return shares;
}

}  // namespace ladder
