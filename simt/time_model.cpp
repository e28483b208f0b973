#include "simt/time_model.h"

#include <algorithm>
#include <array>
#include <limits>
#include <span>

namespace simt {

constexpr double never = std::numeric_limits<double>::infinity();

// What threads do.

void TimeModel::begin(int threads) {
    *this = {};
    steps_.resize((threads + 31) / 32);
    lanes_.resize(32 * steps_.size());
    products_.resize((steps_.size() + warps_of_group - 1) / warps_of_group);
    products_of_warp_.resize(steps_.size());
}

/// Lanes run one after the other, each as far as it gets, and their warp has steps in common: a step that
/// another lane has brought already, since all of them met, is the same one.
void TimeModel::insert(int thread, Step step) {
    auto& steps = steps_[thread / 32];
    Lane& lane = lanes_[thread];
    const auto begin = steps.begin() + lane.cursor;
    auto found = std::find_if(begin, steps.end(), [&](const Step& other) { return other.same_as(step); });
    if (found == steps.end()) {
        found = steps.insert(begin, step);
        for (Lane& other : std::span(lanes_).subspan(thread / 32 * 32, 32))
            other.cursor += other.cursor > lane.cursor;
    } else if (step.kind == Step::Kind::signal || step.kind == Step::Kind::await) {
        found->count += step.count;
    } else {
        found->count = std::max(found->count, step.count);
    }
    lane.cursor = found - steps.begin() + 1;
}

void TimeModel::load(int thread, const void* mbarrier, int phase, std::size_t begin, std::size_t end,
                     const char* tensor) {
    if (!is_on_) return;
    const int place =
        place_of_mbarrier_.try_emplace(mbarrier, static_cast<int>(places_.size())).first->second;
    places_.resize(std::max<std::size_t>(places_.size(), place + 1));
    auto& tensors = places_[place].tensors;
    if (std::find(tensors.begin(), tensors.end(), tensor) == tensors.end()) tensors.emplace_back(tensor);
    loaded_[begin] = {end, {place, tensor}};
    add(thread, {Step::Kind::load, static_cast<int>(loads_.size())});
    loads_.push_back({event_of(mbarrier, phase), place, static_cast<double>(end - begin)});
}

void TimeModel::note(int thread, const Tile& tile) {
    // Mostly, it is the last one.
    auto found = std::find(notes_.rbegin(), notes_.rend(), tile);
    if (found == notes_.rend()) {
        notes_.push_back(tile);
        found = notes_.rbegin();
    }
    add(thread, {Step::Kind::note, static_cast<int>(notes_.rend() - found) - 1});
}

void TimeModel::meet(int warp, std::uint32_t lanes) {
    if (!is_on_) return;
    for_each_lane(lanes, [&](int lane) { flush(32 * warp + lane); });
    for_each_lane(lanes, [&](int lane) { lanes_[32 * warp + lane].cursor = steps_[warp].size(); });
}

void TimeModel::meet() {
    for (std::size_t warp = 0; warp < steps_.size(); ++warp) meet(static_cast<int>(warp), ~0u);
}

Timeline::Product::Operand TimeModel::operand_at(std::size_t byte) const {
    const auto after = loaded_.upper_bound(byte);
    if (after == loaded_.begin()) return {};
    const auto& [end, what] = std::prev(after)->second;
    return byte < end ? what : Timeline::Product::Operand{};
}

void TimeModel::product(int warp, int columns, std::size_t A, std::size_t B) {
    if (!is_on_) return;
    auto& group = products_[warp / warps_of_group];
    const int number = products_of_warp_[warp]++;
    if (group.size() == static_cast<std::size_t>(number))
        group.push_back({warp / warps_of_group, columns, operand_at(A), operand_at(B)});
    add_together(warp, {Step::Kind::product, number});
}

// When they do it.

struct TimeModel::Run {
    struct Event {
        int missing = 0;  ///< signals
        bool has_loads = false, has_begun = false;
        double complete = 0;
    };
    struct Warp {
        std::size_t next = 0;     ///< step
        double since = 0;         ///< it is at it
        bool computes = false;    ///< exponentials
        double left = 0;          ///< of them, those of all lanes, of the present step
        int sharing = 1;          ///< how many warps compute some on this one's quarter
        double last_awaited = 0;  ///< when what it waited for last was complete
    };
    struct Group {
        std::vector<Timeline::Product> products;
        std::vector<int> issued;  ///< by how many warps, of each product
        int waiting = 0;          ///< products issued
        int started = 0, ended = 0;
    };

    explicit Run(const TimeModel& m) : model(m), warps(m.steps_.size()), groups(m.products_.size()) {
        for (std::size_t g = 0; g < groups.size(); ++g) {
            groups[g].products = m.products_[g];
            groups[g].issued.resize(m.products_[g].size());
        }
        events.resize(m.events_.size());
        for (const auto& steps : m.steps_) {
            for (const Step& step : steps) {
                if (step.kind == Step::Kind::signal) events[step.number].missing += step.count;
            }
        }
        for (const TimeModel::Load& load : m.loads_) {
            events[load.event].missing += 1;
            events[load.event].has_loads = true;
        }
        times.warps.resize(warps.size());
        times.places = m.places_;
    }

    void signal(int number, int count) {
        events[number].missing -= count;
        if (events[number].missing == 0) events[number].complete = now;
    }

    void issue_load(int number, std::size_t warp) {
        const TimeModel::Load& load = model.loads_[number];
        copies_free = std::max(copies_free, now) + load.bytes / load_bytes;
        const double landed = copies_free + load_latency;
        in_flight.emplace_back(landed, load.event);
        times.loads.push_back({static_cast<int>(warp), load.place, now, landed});
        auto& fills = times.places[load.place].fills;
        if (!std::exchange(events[load.event].has_begun, true)) {
            if (!fills.empty()) fills.back().freed = warps[warp].last_awaited;
            fills.emplace_back().issued = now;
        }
        fills.back().landed = std::max(fills.back().landed, landed);
    }

    /// The warp's present step, if it can be done now.
    bool advance(std::size_t w) {
        Warp& warp = warps[w];
        if (warp.next == model.steps_[w].size()) return false;
        const Step& step = model.steps_[w][warp.next];
        const std::size_t g = w / warps_of_group;
        Timeline::Warp& record = times.warps[w];
        auto what = Timeline::For::mbarrier;
        switch (step.kind) {
            case Step::Kind::exponentials:
                if (!std::exchange(warp.computes, true)) warp.left = 32.0 * step.count;
                if (warp.left > 0) return false;
                warp.computes = false;
                record.exponentials.push_back({warp.since, now});
                break;
            case Step::Kind::signal:
                signal(step.number, step.count);
                break;
            case Step::Kind::await:
                if (events[step.number].missing > 0) return false;
                warp.last_awaited = events[step.number].complete;
                if (step.stalls != &Timeline::mbarrier_stalls) what = Timeline::For::barrier;
                if (events[step.number].has_loads) what = Timeline::For::loads;
                if (step.stalls != nullptr && now > warp.since) times.*step.stalls += step.count;
                break;
            case Step::Kind::load:
                issue_load(step.number, w);
                break;
            case Step::Kind::note:
                record.tiles.emplace_back(now, model.notes_[step.number]);
                break;
            case Step::Kind::product: {
                Group& group = groups[g];
                if (step.number >= group.started + most_waiting) return false;
                what = Timeline::For::tensor_units;
                if (++group.issued[step.number] < warps_of_group) break;
                group.waiting += 1;
                group.products[step.number].issued = now;
                break;
            }
            case Step::Kind::await_products:
                if (groups[g].ended < step.number) return false;
                what = Timeline::For::products;
                break;
        }
        if (step.kind != Step::Kind::exponentials && now > warp.since)
            record.waits.push_back({{warp.since, now}, what});
        warp.next += 1;
        warp.since = now;
        return true;
    }

    /// Gives the free tensor units to the next warpgroup that has a product.
    bool start_product() {
        if (busy_until < never) return false;
        for (std::size_t n = 1; n <= groups.size(); ++n) {
            const std::size_t g = (last_group + n) % groups.size();
            Group& group = groups[g];
            if (group.waiting == 0) continue;
            Timeline::Product& product = group.products[group.started++];
            group.waiting -= 1;
            last_group = g;
            product.started = now;
            product.ended = busy_until = now + product.columns * 64.0 * 16.0 / multiply_adds;
            times.products.push_back(product);
            for (const int place : {product.A.place, product.B.place}) {
                if (place < 0 || times.places[place].fills.empty()) continue;
                auto& fill = times.places[place].fills.back();
                if (fill.last_read == 0) fill.first_read = now;
                fill.last_read = busy_until;
            }
            return true;
        }
        return false;
    }

    void go() {
        for (;;) {
            for (bool moved = true; moved;) {
                moved = false;
                for (std::size_t w = 0; w < warps.size(); ++w) {
                    while (advance(w)) moved = true;
                }
                moved |= start_product();
            }
            double next = busy_until;
            std::array<int, 4> computing{};  // warps of each quarter
            for (std::size_t w = 0; w < warps.size(); ++w) computing[w % 4] += warps[w].left > 0;
            for (std::size_t w = 0; w < warps.size(); ++w) {
                if (warps[w].left == 0) continue;
                warps[w].sharing = computing[w % 4];
                next = std::min(next, now + warps[w].left * warps[w].sharing / exponentials_of_quarter);
            }
            for (const auto& [landed, number] : in_flight) next = std::min(next, landed);
            if (next == never) break;
            pass(next);
        }
        times.end = now;
        // Lanes of one warp that wait for each other have no order of steps in common.
        for (std::size_t w = 0; w < warps.size(); ++w) {
            if (warps[w].next < model.steps_[w].size()) times = {};
        }
    }

    /// Time goes on to the next moment at which something is over.
    void pass(double next) {
        for (std::size_t w = 0; w < warps.size(); ++w) {
            Warp& warp = warps[w];
            if (warp.left == 0) continue;
            const double done = std::min((next - now) * exponentials_of_quarter / warp.sharing, warp.left);
            warp.left -= done;
            if (warp.left < 1e-6) warp.left = 0;
            if (busy_until < never)
                (w / warps_of_group == last_group ? times.exponentials_during_own_products
                                                  : times.exponentials_during_products) += done;
        }
        now = next;
        if (busy_until <= now) {
            groups[last_group].ended += 1;
            busy_until = never;
        }
        std::erase_if(in_flight, [&](const auto& load) {
            if (load.first > now) return false;
            signal(load.second, 1);
            return true;
        });
    }

    const TimeModel& model;
    std::vector<Warp> warps;
    std::vector<Group> groups;
    std::vector<Event> events;
    std::vector<std::pair<double, int>> in_flight;  ///< when it lands, and its event
    double now = 0;
    double copies_free = 0;     ///< when the next load's bytes can begin to come
    double busy_until = never;  ///< the tensor units; never: they are free
    std::size_t last_group = 0;
    Timeline times;
};

Timeline TimeModel::times() {
    if (!is_on_) return {};
    meet();
    Run run(*this);
    run.last_group = run.groups.size() - 1;
    run.go();
    return std::move(run.times);
}

}  // namespace simt
