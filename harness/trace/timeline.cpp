#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

#include "harness/trace/trace_json.h"

namespace ladder {
namespace {

using nlohmann::ordered_json;

// What a product of a warpgroup computes, as its operands say. Those of the backward pass that have one in
// registers, or in shared memory that warps have stored to, are of P or dS.
const char* result_of(const simt::Timeline::Product& product, Pass pass) {
    const std::string &A = product.A.tensor, &B = product.B.tensor;
    if (pass == Pass::forward) return B == "V" ? "values" : "scores";
    if (A.empty() != B.empty()) {
        const std::string& tensor = A.empty() ? B : A;
        if (tensor == "dO") return "dV";
        if (tensor == "Q") return "dK";
        if (tensor == "K") return "dQ";
    }
    return A == "dO" || B == "dO" ? "dP" : "scores";
}

/// Writes the lanes of one timeline.
class TimelineWriter {
  public:
    TimelineWriter(const TracedBlock& block, Pass pass, int d)
        : timeline_(block.record.timeline), start_(block.start), pass_(pass), d_(d) {
        add_loads();
        add_places();
        for (int group = 0; group < static_cast<int>(timeline_.warps.size() + 3) / 4; ++group)
            add_warpgroup(group);
    }

    ordered_json& lanes() { return lanes_; }

  private:
    double at(double time) const { return rounded((start_ + time) / d_); }

    ordered_json& add_lane(const char* kind, const std::string& name) {
        lanes_.push_back({{"name", name}, {"kind", kind}, {"spans", ordered_json::array()}});
        return lanes_.back();
    }

    // Spans of the same kind that touch are one.
    void add(ordered_json& lane, double start, double end, const char* what) const {
        ordered_json& spans = lane["spans"];
        if (at(start) >= at(end)) return;
        if (!spans.empty() && spans.back()[2] == what && spans.back()[1] >= at(start)) {
            spans.back()[1] = std::max(spans.back()[1].get<double>(), at(end));
        } else {
            spans.push_back({at(start), at(end), what});
        }
    }

    void add_waits(ordered_json& lane, std::size_t warp) const {
        static constexpr const char* names[] = {"loads", "mbarrier", "barrier", "products", "tensor_units"};
        for (const auto& wait : timeline_.warps[warp].waits)
            add(lane, wait.start, wait.end, names[static_cast<std::size_t>(wait.what)]);
    }

    void add_loads() {
        for (std::size_t w = 0; w < timeline_.warps.size(); ++w) {
            ordered_json* lane = nullptr;
            for (const auto& load : timeline_.loads) {
                if (load.warp != static_cast<int>(w)) continue;
                if (lane == nullptr) lane = &add_lane("loads", fmt::format("warp {}", w));
                (*lane)["start"].push_back(at(load.issued));
                add(*lane, load.issued, load.landed, "copy");
            }
            if (lane != nullptr) add_waits(*lane, w);
        }
    }

    void add_places() {
        const auto first = static_cast<std::ptrdiff_t>(lanes_.size());
        std::map<std::string, int> places;  // of each tensor
        for (const auto& place : timeline_.places) {
            std::vector<std::string> tensors = place.tensors;
            std::erase(tensors, "workspace");  // a place that it is read into is named after the other tensor
            const std::string name = fmt::format("{}", fmt::join(tensors, " "));
            ordered_json& lane = add_lane("place", fmt::format("{} {}", name, places[name]++));
            for (const auto& fill : place.fills) {
                const double freed = std::max(fill.freed, std::max(fill.landed, fill.last_read));
                add(lane, fill.issued, fill.landed, "copy");
                add(lane, fill.landed, fill.last_read > 0 ? std::max(fill.first_read, fill.landed) : freed,
                    "full");
                add(lane, fill.first_read, fill.last_read, "read");
                if (fill.last_read > 0) add(lane, fill.last_read, freed, "full");
            }
        }
        // The places of Q before those of K, and these before those of V.
        const auto rank = [](const ordered_json& lane) {
            const auto name = lane["name"].get<std::string>();
            return std::pair(std::string_view("QKV").find(name.front()), name);
        };
        std::sort(lanes_.begin() + first, lanes_.end(),
                  [&](const ordered_json& a, const ordered_json& b) { return rank(a) < rank(b); });
    }

    void add_warpgroup(int group) {
        std::vector<simt::Timeline::Product> own;
        std::copy_if(timeline_.products.begin(), timeline_.products.end(), std::back_inserter(own),
                     [&](const auto& product) { return product.warpgroup == group; });
        if (own.empty()) return;
        ordered_json& products = add_lane("products", fmt::format("group {}", group));
        for (std::size_t first = 0, next = 0; first < own.size(); first = next) {
            while (next < own.size() && own[next].A == own[first].A && own[next].B == own[first].B) ++next;
            products["spans"].push_back({at(own[first].issued), at(own[next - 1].ended), "flight"});
        }
        for (const auto& product : own)
            add(products, product.started, product.ended, result_of(product, pass_));
        const auto warp = static_cast<std::size_t>(4 * group);
        ordered_json& lane = add_lane("warpgroup", fmt::format("group {}", group));
        for (const auto& span : timeline_.warps[warp].exponentials) add(lane, span.start, span.end, "exp");
        add_waits(lane, warp);
    }

    const simt::Timeline& timeline_;
    const double start_;
    const Pass pass_;
    const int d_;
    ordered_json lanes_ = ordered_json::array();
};

}  // namespace

ordered_json timeline_json(const TracedBlock& block, Pass pass, int d) {
    const simt::Timeline& timeline = block.record.timeline;
    double busy = 0, exponentials = 0;
    for (const auto& product : timeline.products) busy += product.ended - product.started;
    for (const auto& phase : block.record.phases) {
        for (const auto& warp : phase.warps) exponentials += static_cast<double>(warp.work.exponentials);
    }
    const auto part = [&](double own) { return rounded(own / std::max(exponentials, 1.0)); };
    return {{"products", rounded(busy / std::max(timeline.end, 1.0))},
            {"during", part(timeline.exponentials_during_products)},
            {"during_own", part(timeline.exponentials_during_own_products)},
            {"lanes", std::move(TimelineWriter(block, pass, d).lanes())}};
}

}  // namespace ladder
