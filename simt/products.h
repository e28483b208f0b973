/// @file
/// Products of a warpgroup (wgmma) that are in flight. Internal to simt/.
#pragma once

#include "simt/context.h"
#include "simt/product.h"
#include "simt/product_registers.h"

namespace simt {

/// The products of a block's warpgroups. One is over for all four warps at once, since it is theirs together.
class Products : Part {
  public:
    explicit Products(Context& context) : Part(context), registers(context) {}

    ProductRegisters registers;

    void begin_block() {
        registers.begin_block();
        warps_.clear();
        warps_.resize((context_.threads + 31) / 32);
        warpgroups_.assign((warps_.size() + warps_of_group - 1) / warps_of_group, {});
        tiles_.clear();
    }

    /// All threads have ended. Throws a Report if warps of a warpgroup have not executed the same products.
    void end_block() const {
        for (std::size_t w = 0; w < warps_.size(); ++w) {
            const Warpgroup& group = warpgroups_[w / warps_of_group];
            const std::size_t started = warps_[w].queue.started();
            if (started == group.products.size()) continue;
            const Warpgroup::Step& step = group.products[started];
            throw report(Kind::divergence,
                         "divergence: warp {} executes wgmma at {}, and warp {} of its warpgroup does not",
                         step.warp, step.site, w);
        }
    }

    /// A tile of shared memory: products whose descriptors start in it must stay in it.
    void describe_tile(const void* begin, std::size_t bytes) {
        const Range tile{static_cast<const std::byte*>(begin), bytes};
        if (std::find(tiles_.begin(), tiles_.end(), tile) == tiles_.end()) tiles_.push_back(tile);
    }

    // What the running warp does, whose lanes have met.

    void fence() {
        context_.time.start();
        registers.fence();
    }
    void start(const Wgmma* const (&lanes)[32], Site site, Caller caller) {
        context_.time.start();
        const Wgmma& operands = *lanes[0];
        if (warps_.size() < static_cast<std::size_t>(first_warp() + warps_of_group))
            fail(Kind::unsupported, "wgmma at {} by a warpgroup of fewer than four warps", site);
        compare_with_group(operands, site);
        if (group().agent == 0) group().agent = context_.add_agent("wgmma", 32 * warp());
        for (const int id : std::exchange(group().waiting, {})) context_.wake(id);
        check_operands(operands, site, caller);
        registers.take(lanes, site);
        Accumulators& accumulators = accumulators_of(lanes, site);
        accumulators.in_flight += 1;
        accumulators.product = site;
        Product product{&accumulators, {}, operands};
        for (int lane = 0; lane < 32; ++lane) product.A[lane] = lanes[lane]->A;
        own().queue.start(product);
        context_.time.product(
            warp(), operands.columns,
            operands.A == nullptr ? Descriptor(operands.A_descriptor).start : TimeModel::in_registers,
            Descriptor(operands.B_descriptor).start);
        if (warp() == first_warp())
            context_.tally.wgmma += 1, context_.tally.wgmma_columns += operands.columns;
    }
    void commit() { own().queue.commit(); }
    void wait(std::size_t pending) {
        registers.end_fences();
        auto& queue = own().queue;
        const Epoch over = queue.forget_groups_before_last(pending);
        if (warp() == first_warp()) context_.tally.wgmma_left_in_flight += queue.started() - over;
        context_.time.await_products(warp(), over);
        if (over == queue.over()) return;
        land(queue.over(), over);
        for (Epoch n = queue.over(); n < over; ++n) give_back(queue[n]);
        queue.forget(over);
        if (context_.is_checked)
            context_.clocks.learn(context_.threads_from(32 * warp(), 32), group().agent, over);
    }

    /// What each lane does before: waits until all four warps have started what its own is to wait for.
    void wait_for_starts(std::size_t pending, Site site) {
        const Epoch over = own().queue.before_last(pending);
        const auto first = warps_.begin() + first_warp();
        const auto lacks_some = [&] {
            return std::any_of(first, first + warps_of_group,
                               [&](const Warp& other) { return other.queue.started() < over; });
        };
        while (over > 0 && lacks_some()) {
            group().waiting.push_back(thread());
            context_.scheduler.wait("wgmma_wait", site);
        }
    }

  private:
    struct Warp {
        AsyncQueue<Product> queue;
        std::vector<std::unique_ptr<Accumulators>> accumulators;  ///< in flight
    };
    /// What a warpgroup's warps must do alike, each in the order in which its first one did it.
    struct Warpgroup {
        struct Step {
            Site site;
            std::uint64_t A, B;
            int warp;
        };
        std::vector<Step> products;
        Agent agent = 0;           ///< its products: the n-th is epoch n
        std::vector<int> waiting;  ///< threads, for products that another warp has not started
    };

    Warp& own() { return warps_[warp()]; }
    Warpgroup& group() { return warpgroups_[warp() / warps_of_group]; }
    /// The first warp of the running one's warpgroup.
    int first_warp() const { return warp() / warps_of_group * warps_of_group; }

    /// Does another warp of the warpgroup start the same product?
    void compare_with_group(const Wgmma& operands, Site site) {
        const std::uint64_t A = operands.A == nullptr ? operands.A_descriptor : 0;
        auto& steps = group().products;
        const Epoch number = own().queue.started();
        if (number == steps.size()) steps.push_back({site, A, operands.B_descriptor, warp()});
        const Warpgroup::Step& step = steps[number];
        if (step.site.line == site.line && step.A == A && step.B == operands.B_descriptor) return;
        fail(Kind::divergence,
             "divergence: warp {} executes wgmma at {}, and warp {} of its warpgroup at {}{}", warp(), site,
             step.warp, step.site, step.site.line == site.line ? " with other descriptors" : "");
    }

    /// What the warp reads of shared memory: has it arrived, inside its tile, and is it fit for a product?
    void check_operands(const Wgmma& operands, Site site, Caller caller) {
        // Lanes that know different things each must know that it may be read.
        int lanes[32], count = 0;
        for (int id = 32 * warp(); id < 32 * warp() + 32 && context_.is_checked; ++id) {
            const Clock* known = context_.clocks.known(id);
            if (count == 0 || context_.clocks.known(lanes[count - 1]) != known) lanes[count++] = id;
        }
        const Moment at = context_.clocks.moment(group().agent, own().queue.started() + 1);
        const auto check = [&](const Descriptor& descriptor, const char* which, bool transposed,
                               int first_row, int rows) {
            std::size_t first = ~std::size_t{0}, end = 0;
            descriptor.for_each_piece(transposed, first_row, rows, [&](std::size_t place, int, int) {
                first = std::min(first, place);
                end = std::max(end, place + piece_bytes);
            });
            check_place(descriptor, which, first, end, site);
            std::optional<Moment> known;  // a write that all lanes know of
            descriptor.for_each_piece(transposed, first_row, rows, [&](std::size_t place, int, int) {
                const std::byte* address = context_.shared.data() + place;
                context_.recorder.read_row(thread(), address, transposed);
                for (int i = 0; i < count; ++i) {
                    context_.access(at, address, piece_bytes, false, Via::product, caller, lanes[i]);
                    const std::optional<Moment> written = context_.checker.last_write(address);
                    if (written && written == known) break;
                    if (i == count - 1) known = written;
                }
            });
        };
        if (operands.A == nullptr)
            check(Descriptor(operands.A_descriptor), "A", false, (warp() - first_warp()) * 16, 16);
        check(Descriptor(operands.B_descriptor), "B", operands.B_transposed, 0, operands.columns);
    }
    void check_place(const Descriptor& descriptor, const char* which, std::size_t first, std::size_t end,
                     Site site) {
        if (descriptor.swizzle != 1)
            fail(Kind::unsupported, "wgmma at {}: the descriptor of {} has no 128-byte swizzle", site, which);
        const std::byte* memory = context_.shared.data();
        const auto holds = [&](const Range& tile) { return tile.contains(memory + first, end - first); };
        const auto starts_in = [&](const Range& tile) { return tile.contains(memory + descriptor.start); };
        const bool leaves_tile =
            std::ranges::any_of(tiles_, starts_in) && std::ranges::none_of(tiles_, holds);
        if (end <= context_.shared.bytes() && !leaves_tile) return;
        fail(Kind::out_of_bounds,
             "wgmma at {}: the descriptor of {} starts at byte {} of shared memory and reaches bytes {} to "
             "{}, outside its {}",
             site, which, descriptor.start, first, end - 1, leaves_tile ? "tile" : "memory");
    }

    /// The accumulators in flight with these registers, or new ones that hold what those hold now.
    Accumulators& accumulators_of(const Wgmma* const (&lanes)[32], Site site) {
        auto& in_flight = own().accumulators;
        const auto found = std::find_if(in_flight.begin(), in_flight.end(),
                                        [&](const auto& other) { return other->D[0] == lanes[0]->D; });
        if (found == in_flight.end()) return *in_flight.emplace_back(std::make_unique<Accumulators>(lanes));
        if ((*found)->columns != lanes[0]->columns) {
            fail(Kind::registers_in_flight,
                 "wgmma at {} into accumulators of a wgmma of another shape at {} that is in flight", site,
                 (*found)->product);
        }
        return **found;
    }

    /// These products read memory and compute now, for all four warps, which may learn of it from this one.
    void land(Epoch first, Epoch end) {
        const std::byte* shared = context_.shared.data();
        for (Epoch n = first; n < end; ++n) {
            bool B_is_read = false;  // by all four
            for (int i = 0; i < warps_of_group; ++i) {
                AsyncQueue<Product>& part = warps_[first_warp() + i].queue;
                if (n < part.over() || part[n].landed) continue;
                if (!std::exchange(B_is_read, true)) multiplier_.read_B(shared, part[n].operands);
                multiplier_.land(shared, part[n], 16 * i);
            }
        }
    }

    /// The registers of a product are the threads' again; so are its accumulators if no other adds to them.
    void give_back(const Product& product) {
        Accumulators& accumulators = *product.accumulators;
        registers.give_back(accumulators.D, product.A);
        accumulators.in_flight -= 1;
        if (accumulators.in_flight > 0) return;
        if (const int lane = accumulators.give_back(); lane >= 0) {
            fail(Kind::registers_in_flight,
                 "thread {} writes an accumulator before the wgmma at {} was waited for", 32 * warp() + lane,
                 accumulators.product);
        }
        std::erase_if(own().accumulators, [&](const auto& other) { return other.get() == &accumulators; });
    }

    std::vector<Warp> warps_;
    std::vector<Warpgroup> warpgroups_;
    std::vector<Range> tiles_;
    Multiplier multiplier_;
};

}  // namespace simt
