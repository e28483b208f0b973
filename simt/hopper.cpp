/// @file
/// What Hopper's instructions do: the executable specification of stages/hopper.cuh, and the state that it
/// needs. Compiled without instrumentation.

#include "simt/hopper.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <optional>
#include <utility>

#include "simt/block.h"
#include "simt/product.h"

namespace simt {
namespace {

#define SIMT_HOPPER_CALLER reinterpret_cast<std::uintptr_t>(__builtin_return_address(0))

constexpr std::uint32_t all_lanes = 0xffffffffu;
constexpr int warps_of_group = 4;
constexpr std::size_t piece = 16;  ///< bytes that lie together in a swizzled tile
constexpr int register_file = 64 * 1024;
/// What accumulators hold while they are in flight: a NaN that nothing computes.
constexpr std::uint32_t poison = 0xffff'dead;

/// 128-byte swizzle: the place of a byte of shared memory, from its place in rows of 128 bytes.
constexpr std::size_t swizzled(std::size_t place) {
    return place ^ (place >> 7 & 7) << 4;
}

/// A matrix descriptor. Offsets in bytes.
struct Descriptor {
    explicit Descriptor(std::uint64_t bits)
        : start((bits & 0x3fff) << 4),
          leading((bits >> 16 & 0x3fff) << 4),
          stride((bits >> 32 & 0x3fff) << 4),
          swizzle(static_cast<int>(bits >> 62)) {}
    std::size_t start, leading, stride;
    int swizzle;

    /// Calls f(place, row, k) for each 16 bytes of `rows` x 16 elements whose 16 elements of a row lie
    /// together (K-major): those of (row, k .. k + 7), at that place in shared memory.
    template <class F>
    void by_rows(int first_row, int rows, F f) const {
        for (int row = first_row; row < first_row + rows; ++row) {
            const std::size_t place = start + row / 8 * stride + row % 8 * 128;
            for (int k = 0; k < 16; k += 8) f(swizzled(place + 2 * k), row, k);
        }
    }
    /// The same where a column's elements lie together (MN-major): those of (row .. row + 7, k).
    template <class F>
    void by_columns(int rows, F f) const {
        for (int k = 0; k < 16; ++k) {
            for (int row = 0; row < rows; row += 8)
                f(swizzled(start + row / 64 * leading + row % 64 * 2 + k / 8 * stride + k % 8 * 128), row, k);
        }
    }
};

void values_of(const void* from, float (&values)[8], bool is_fp16) {
    std::uint16_t bits[8];
    std::memcpy(bits, from, sizeof bits);
    if (is_fp16) {
        for (int i = 0; i < 8; ++i) values[i] = value_of(fp16{bits[i]});
    } else {
        for (int i = 0; i < 8; ++i) values[i] = value_of(bf16{bits[i]});
    }
}

/// Row and column of accumulator i of a lane, in its warp's 16 rows.
constexpr int row_of(int lane, int i) {
    return lane / 4 + i / 2 % 2 * 8;
}
constexpr int column_of(int lane, int i) {
    return lane % 4 * 2 + i % 2 + i / 4 * 8;
}

bool is_poison(float x) {
    return std::bit_cast<std::uint32_t>(x) == poison;
}

}  // namespace

// ---------------------------------------------------------------------------------------------------------------
// The block

HopperBlock::Thread& HopperBlock::self() {
    return threads_[block_.scheduler_.current()];
}

void HopperBlock::begin() {
    if (!is_used_ && threads_.size() == block_.threads_.size()) return;
    const std::size_t count = block_.threads_.size(), warps = (count + 31) / 32;
    is_used_ = false;
    // What the compiler gives a thread if a block is to have the multiprocessor.
    const int registers = std::min(248, register_file / static_cast<int>(count) / 8 * 8);
    threads_.assign(count, {});
    for (Thread& thread : threads_) thread.registers = registers;
    warps_.clear();
    warps_.resize(warps);
    warpgroups_.assign((warps + warps_of_group - 1) / warps_of_group, {});
    named_ = {};
    tiles_.clear();
    claims_.clear();
    free_registers_ = 0;
}

void HopperBlock::use() {
    is_used_ = true;
    block_.time_.start();
}

void HopperBlock::end() {
    if (!is_used_) return;
    for (std::size_t w = 0; w < warps_.size(); ++w) {
        const Warpgroup& group = warpgroups_[w / warps_of_group];
        if (warps_[w].started == group.products.size()) continue;
        const Warpgroup::Step& step = group.products[warps_[w].started];
        throw Report(
            Report::Kind::divergence,
            fmt::format("divergence: warp {} executes wgmma at {}, and warp {} of its warpgroup does "
                        "not",
                        step.warp, to_string(step.site), w));
    }
}

void HopperBlock::end_thread() {
    if (!is_used_ || self().stores.empty()) return;
    block_.fail(Report::Kind::copy_in_flight,
                fmt::format("thread {} leaves the kernel before the bulk store at {} has read shared memory: "
                            "no bulk_wait_read",
                            block_.scheduler_.current(), source_of(self().stores.front().caller)));
}

std::string HopperBlock::describe_waiting() const {
    std::string text;
    for (const Block::Mbarrier& m : block_.mbarriers_) {
        if (m.waiting.empty()) continue;
        if (m.missing > 0) {
            text +=
                fmt::format("; the mbarrier at byte {} of shared memory lacks {} of {} arrivals in phase {}",
                            block_.place_of(m.address), m.missing, m.arrivals, m.phase);
        } else {
            text += fmt::format(
                "; the mbarrier at byte {} of shared memory expects {} bytes in phase {}, and "
                "bulk loads bring {}",
                block_.place_of(m.address), m.expected, m.phase, m.started);
        }
    }
    for (std::size_t id = 0; id < named_.size(); ++id) {
        if (named_[id].arrived > 0)
            text += fmt::format("; named barrier {} has {} of {} threads", id, named_[id].arrived,
                                named_[id].threads);
    }
    if (!claims_.empty())
        text += fmt::format("; {} registers of the block are free, and a thread asks for {} more",
                            free_registers_, claims_.front().count);
    return text;
}

Agent HopperBlock::new_agent(const char* what, int thread) {
    const Agent agent = block_.clocks_.add_agent();
    block_.checker_.name_agent(agent, what, thread);
    return agent;
}

// ---------------------------------------------------------------------------------------------------------------
// Bulk copies

/// The pieces of a box. Outside of the tensor there is no global memory.
HopperBlock::Operand HopperBlock::box(const TensorMap& map, const void* shared,
                                      const TensorMap::Index& first) {
    const std::size_t row_bytes = 2 * static_cast<std::size_t>(map.box[0]);
    const std::size_t rows =
        static_cast<std::size_t>(std::accumulate(map.box.begin() + 1, map.box.end(), 1, std::multiplies<>()));
    const std::size_t place = block_.place_of(shared);
    Operand box{.first = place, .bytes = rows * 128, .alignment = 128};
    box.pieces.reserve(rows * row_bytes / piece);
    for (std::size_t row = 0; row < rows; ++row) {
        std::byte* global = map.data + 2 * std::ptrdiff_t{first[0]};
        bool is_inside = true;
        std::size_t left = row;
        for (int n = 1; n < TensorMap::dims; ++n) {
            const int at = first[n] + static_cast<int>(left % static_cast<std::size_t>(map.box[n]));
            left /= static_cast<std::size_t>(map.box[n]);
            is_inside = is_inside && at >= 0 && at < map.extent[n];
            global += at * map.stride[n];
        }
        for (std::size_t byte = 0; byte < row_bytes; byte += piece) {
            const int element = first[0] + static_cast<int>(byte / 2);
            const bool is_there = is_inside && element >= 0 && element < map.extent[0];
            box.pieces.push_back({swizzled(place + 128 * row + byte), is_there ? global + byte : nullptr});
        }
    }
    return box;
}

/// The pieces of bytes that lie together on both sides.
HopperBlock::Operand HopperBlock::line(const void* global, const void* shared, int bytes,
                                       std::uintptr_t caller) {
    const std::size_t place = block_.place_of(shared);
    if (bytes <= 0 || bytes % piece != 0 || reinterpret_cast<std::uintptr_t>(global) % piece != 0) {
        block_.fail(
            Report::Kind::misaligned,
            fmt::format("bulk copy of {} bytes of global memory at {}: the address and the bytes must be "
                        "multiples of 16",
                        bytes, source_of(caller)));
    }
    Operand line{.first = place, .bytes = static_cast<std::size_t>(bytes), .alignment = piece};
    for (std::size_t byte = 0; byte < line.bytes; byte += piece) {
        auto* there = const_cast<std::byte*>(static_cast<const std::byte*>(global)) + byte;
        line.pieces.push_back({place + byte, there});
    }
    return line;
}

/// A copy of these pieces, checked and counted. Where there is no global memory a load writes zeros and a
/// store nothing.
BulkCopy HopperBlock::make_copy(const Operand& of, Direction direction, Moment reads, Moment writes,
                                std::uintptr_t caller) {
    use();
    const bool load = direction == Direction::load;
    const char* what = load ? "bulk_load" : direction == Direction::store ? "bulk_store" : "bulk_add";
    if (options().compute_capability < 80)
        block_.fail(Report::Kind::unsupported, fmt::format("{} at {} needs sm_90", what, source_of(caller)));
    if (of.first % of.alignment != 0) {
        block_.fail(Report::Kind::misaligned,
                    fmt::format("{} of shared memory that is not {}-byte aligned, at {}", what, of.alignment,
                                source_of(caller)));
    }
    if (of.first >= block_.shared_bytes_ || of.bytes > block_.shared_bytes_ - of.first) {
        block_.fail(Report::Kind::out_of_bounds,
                    fmt::format("{} of {} bytes that leaves shared memory, at {}", what, of.bytes,
                                source_of(caller)));
    }
    BulkCopy copy;
    copy.caller = caller;
    copy.pieces.reserve(of.pieces.size());
    std::size_t inside = 0;
    const auto check = [&](const Moment& at, const void* address, bool write, Via via) {
        if (block_.config_->checked) block_.checked(at, address, piece, write, via, caller);
    };
    for (const auto& [at, there] : of.pieces) {
        std::byte* here = block_.shared_.get() + at;
        inside += there != nullptr ? piece : 0;
        if (load) {
            copy.pieces.push_back({.reads = there, .writes = here, .bytes = piece});
            if (block_.trace_ != nullptr) block_.origins_.copy(block_.place_of(here), there);
        } else if (there != nullptr) {
            copy.pieces.push_back(
                {.reads = here, .writes = there, .bytes = piece, .adds = direction == Direction::add});
        }
        check(load ? writes : reads, here, load, Via::bulk);
        if (there != nullptr)
            check(load ? reads : writes, there, !load,
                  direction == Direction::add ? Via::addition : Via::bulk);
    }
    Counters& tally = block_.tally;
    (load ? tally.bulk_loads : direction == Direction::store ? tally.bulk_stores : tally.bulk_adds) += 1;
    tally.bulk_bytes += of.pieces.size() * piece;
    tally.shared_tile_bytes += of.pieces.size() * piece;
    (load ? tally.global_load_bytes : tally.global_store_bytes) += inside;
    return copy;
}

void HopperBlock::bulk_load(const Operand& of, const void* tensor, void* address, std::uintptr_t caller) {
    Block::Mbarrier& mbarrier = block_.find_mbarrier(address, caller);
    block_.complete_if_over(mbarrier, true, caller);
    if (!mbarrier.is_visible) {
        block_.fail(
            Report::Kind::missing_fence,
            fmt::format("bulk_load at {} signals an mbarrier without a mbarrier_fence_init behind its "
                        "mbarrier_init",
                        source_of(caller)));
    }
    const int thread = block_.scheduler_.current();
    if (block_.config_->checked && mbarrier.agent == 0) mbarrier.agent = new_agent("bulk load", thread);
    const Moment at{block_.config_->checked ? block_.clocks_.now(thread).block : 0, mbarrier.phase + 1,
                    mbarrier.agent};
    BulkCopy load = make_copy(of, Direction::load, at, at, caller);
    const std::size_t bytes = of.pieces.size() * piece;
    mbarrier.started += static_cast<std::int64_t>(bytes);
    if (block_.time_.is_on()) {
        const char* name = place_in_global_memory(tensor).allocation;
        block_.time_.load(thread, address, static_cast<int>(mbarrier.phase), of.first, of.first + bytes,
                          name == nullptr ? "?" : name);
    }
    if (!options().late_copies) load.land();
    mbarrier.loads.push_back(std::move(load));
    block_.complete_if_over(mbarrier, false, caller);
}

void HopperBlock::expect(void* address, int bytes, std::uintptr_t caller) {
    Block::Mbarrier& mbarrier = block_.find_mbarrier(address, caller);
    block_.complete_if_over(mbarrier, true, caller);
    mbarrier.expected += bytes;
    block_.arrive(address, false, caller);
}

void HopperBlock::fence_mbarrier_init() {
    use();
    for (Block::Mbarrier& mbarrier : block_.mbarriers_)
        mbarrier.is_visible = mbarrier.is_visible || mbarrier.set_up_by == block_.scheduler_.current();
}

void HopperBlock::fence_proxy() {
    if (block_.config_->checked) block_.clocks_.fence_proxy(block_.scheduler_.current());
}

void HopperBlock::land_some() {
    if (!is_used_ || block_.mbarriers_.empty()) return;
    auto& loads = block_.mbarriers_[block_.scheduler_.draw(static_cast<int>(block_.mbarriers_.size()))].loads;
    if (!loads.empty()) loads[block_.scheduler_.draw(static_cast<int>(loads.size()))].land();
}

void HopperBlock::bulk_store(const Operand& of, Direction direction, std::uintptr_t caller) {
    Thread& thread = self();
    const int id = block_.scheduler_.current();
    const bool checked = block_.config_->checked;
    if (checked && thread.reads == 0) {
        thread.reads = new_agent("bulk store", id);
        thread.writes = new_agent("bulk store", id);
    }
    thread.started += 1;
    const std::uint32_t number = checked ? block_.clocks_.now(id).block : 0;
    const auto epoch = static_cast<Epoch>(thread.started);
    BulkCopy store =
        make_copy(of, direction, {number, epoch, thread.reads}, {number, epoch, thread.writes}, caller);
    if (!options().late_copies) store.land();
    thread.stores.push_back(std::move(store));
}

void HopperBlock::bulk_commit() {
    self().groups.push_back(self().started);
}

/// Who waits for the reads alone may write the shared memory again. Here the global memory is written then
/// too, though nobody knows it.
void HopperBlock::bulk_wait(std::size_t pending, bool reads_alone) {
    Thread& thread = self();
    if (thread.groups.size() <= pending) return;
    const auto open = thread.groups.end() - static_cast<std::ptrdiff_t>(pending);
    const std::size_t over = open[-1], before = thread.started - thread.stores.size();
    if (over > before) {
        const auto last = thread.stores.begin() + static_cast<std::ptrdiff_t>(over - before);
        std::for_each(thread.stores.begin(), last, [](BulkCopy& store) { store.land(); });
        thread.stores.erase(thread.stores.begin(), last);
    }
    if (!reads_alone) thread.groups.erase(thread.groups.begin(), open);
    if (!block_.config_->checked || thread.reads == 0) return;
    const int id = block_.scheduler_.current();
    block_.clocks_.learn({&id, 1}, thread.reads, static_cast<Epoch>(over));
    if (!reads_alone) block_.clocks_.learn({&id, 1}, thread.writes, static_cast<Epoch>(over));
}

// ---------------------------------------------------------------------------------------------------------------
// Named barriers and registers

void HopperBlock::named_barrier(int id, int threads, bool waits, Site site) {
    use();
    if (id < 1 || id > 15 || threads % 32 != 0 || threads < 32 ||
        threads > static_cast<int>(block_.threads_.size())) {
        block_.fail(Report::Kind::unsupported,
                    fmt::format("named barrier {} with {} threads, at {}", id, threads, to_string(site)));
    }
    block_.tally.named_barriers += 1;
    block_.tally.named_waits += waits;
    NamedBarrier& barrier = named_[static_cast<std::size_t>(id)];
    if (barrier.arrived > 0 && barrier.threads != threads) {
        block_.fail(Report::Kind::divergence,
                    fmt::format("named barrier {} takes {} threads at {}, and {} at {}", id, barrier.threads,
                                to_string(barrier.first), threads, to_string(site)));
    }
    const int thread = block_.scheduler_.current();
    barrier.arrivals.resize(block_.threads_.size());
    NamedBarrier::Arrival& last = barrier.arrivals[static_cast<std::size_t>(thread)];
    if (last.use == barrier.uses) {
        block_.fail(Report::Kind::wrong_phase,
                    fmt::format("thread {} arrives twice in one phase of named barrier {}, at {} and at {}, "
                                "with {} of {} arrivals",
                                thread, id, to_string(last.site), to_string(site), barrier.arrived, threads));
    }
    last = {site, barrier.uses};
    if (barrier.arrived == 0) barrier.first = site;
    barrier.threads = threads;
    barrier.arrived += 1;
    block_.time_.signal(thread, &barrier, barrier.uses);
    if (waits) block_.time_.await(thread, &barrier, barrier.uses, &Timeline::named_stalls);
    const bool checked = block_.config_->checked;
    if (checked) block_.clocks_.release(thread, barrier.told);
    if (barrier.arrived < threads) {
        if (!waits) return;
        barrier.waiting.push_back(thread);
        return block_.scheduler_.wait("a named barrier", site);
    }
    const std::vector<int> waiting = std::exchange(barrier.waiting, {});
    const ClockRef told = std::exchange(barrier.told, nullptr);
    barrier.arrived = 0;
    barrier.uses += 1;
    for (const int other : waiting) {
        if (checked) block_.clocks_.acquire(other, told);
        block_.scheduler_.make_ready(other / 32, 1u << other % 32);
    }
    if (checked && waits) block_.clocks_.acquire(thread, told);
}

void HopperBlock::set_registers(int count, bool more, Site site) {
    use();
    const int id = block_.scheduler_.current();
    Thread& thread = self();
    const auto refuse = [&](const std::string& why) {
        block_.fail(Report::Kind::unsupported,
                    fmt::format("setmaxnreg of {} registers at {}: {}", count, to_string(site), why));
    };
    if (count % 8 != 0 || count < 24 || count > 256) refuse("a multiple of 8 from 24 to 256");
    if (more != (count > thread.registers) && count != thread.registers)
        refuse(fmt::format("thread {} has {} already", id, thread.registers));
    std::vector<int>& steps = warpgroups_[static_cast<std::size_t>(id / 128)].registers;
    if (thread.register_changes == steps.size()) steps.push_back(count);
    const int others = steps[thread.register_changes];
    if (others != count) {
        block_.fail(Report::Kind::divergence,
                    fmt::format("divergence: thread {} asks for {} registers at {}, and another of its "
                                "warpgroup for {}",
                                id, count, to_string(site), others));
    }
    thread.register_changes += 1;
    const int change = count - thread.registers;
    thread.registers = count;
    block_.tally.registers_moved += static_cast<std::uint64_t>(std::abs(change));
    if (change > free_registers_ || (change > 0 && !claims_.empty())) {
        claims_.push_back({id, change});
        return block_.scheduler_.wait("setmaxnreg", site);
    }
    free_registers_ -= change;
    while (!claims_.empty() && claims_.front().count <= free_registers_) {
        const Claim claim = claims_.front();
        claims_.erase(claims_.begin());
        free_registers_ -= claim.count;
        block_.scheduler_.make_ready(claim.thread / 32, 1u << claim.thread % 32);
    }
}

// ---------------------------------------------------------------------------------------------------------------
// Products

unsigned HopperBlock::describe_tile(unsigned offset, std::size_t bytes) {
    const Tile tile{offset, offset + static_cast<unsigned>(bytes)};
    const bool known = std::any_of(tiles_.begin(), tiles_.end(), [&](const Tile& other) {
        return other.begin == tile.begin && other.end == tile.end;
    });
    if (!known) tiles_.push_back(tile);
    return offset;
}

void HopperBlock::touch_another(const void* address, std::size_t bytes, bool write, std::uintptr_t caller) {
    auto& all = current_->registers_of_products;
    const auto* first = static_cast<const std::byte*>(address);
    const auto found =
        std::upper_bound(all.begin(), all.end(), first,
                         [](const std::byte* a, const Registers& r) { return a < r.begin + r.bytes; });
    if (found == all.end() || found->begin >= first + bytes) {
        const Registers* before = found == all.begin() ? nullptr : &found[-1];
        current_->gap = {before == nullptr ? first : before->begin + before->bytes,
                         found == all.end() ? first + bytes : found->begin};
        return;
    }
    if (found->in_flight > 0) {
        block_.fail(Report::Kind::registers_in_flight,
                    fmt::format("thread {} {} {} at {} before the wgmma at {} was waited for",
                                block_.scheduler_.current(), write ? "writes" : "reads", found->what,
                                source_of(caller), to_string(found->product)));
    }
    found->touched = found->touched || write;
    current_->touched_last = &*found;
}

HopperBlock::Registers& HopperBlock::registers_of(int id, const void* begin, std::size_t bytes,
                                                  const char* what, Site site) {
    Thread& thread = threads_[static_cast<std::size_t>(id)];
    auto& all = thread.registers_of_products;
    const auto* first = static_cast<const std::byte*>(begin);
    auto found = std::lower_bound(all.begin(), all.end(), first,
                                  [](const Registers& r, const std::byte* a) { return r.begin < a; });
    const bool known = found != all.end() && found->begin == first && found->bytes == bytes;
    const bool is_chained = known && found->in_flight > 0;
    if (!is_chained && (known ? found->touched : !thread.fenced)) {
        block_.fail(Report::Kind::missing_fence,
                    fmt::format("wgmma at {} by thread {} of {} that no wgmma_fence made fit for it",
                                to_string(site), id, what));
    }
    if (!known) {  // what was there before is gone
        thread.gap = {};
        thread.touched_last = nullptr;
        std::erase_if(
            all, [&](const Registers& r) { return r.begin < first + bytes && first < r.begin + r.bytes; });
        found = std::lower_bound(all.begin(), all.end(), first,
                                 [](const Registers& r, const std::byte* a) { return r.begin < a; });
        found = all.insert(found, {.begin = first, .bytes = bytes, .what = what});
    }
    found->product = site;
    return *found;
}

void HopperBlock::fence_products() {
    use();
    const int first = block_.scheduler_.current() / 32 * 32;
    for (int id = first; id < first + 32; ++id) {
        threads_[id].fenced = true;
        for (Registers& registers : threads_[id].registers_of_products) registers.touched = false;
    }
}

/// The accumulators in flight with these registers, or what they are now.
HopperBlock::Accumulators& HopperBlock::accumulators_of(const Wgmma* const (&lanes)[32], int warp,
                                                        Site site) {
    auto& in_flight = warps_[warp].accumulators;
    const int columns = lanes[0]->columns;
    const auto found = std::find_if(in_flight.begin(), in_flight.end(),
                                    [&](const auto& other) { return other->D[0] == lanes[0]->D; });
    if (found != in_flight.end()) {
        if ((*found)->columns != columns) {
            block_.fail(Report::Kind::registers_in_flight,
                        fmt::format("wgmma at {} into accumulators of a wgmma of another shape at {} that is "
                                    "in flight",
                                    to_string(site), to_string((*found)->product)));
        }
        return **found;
    }
    auto fresh = std::make_unique<Accumulators>();
    fresh->columns = columns;
    fresh->value.resize(static_cast<std::size_t>(16 * columns));
    for (int lane = 0; lane < 32; ++lane) {
        float* D = fresh->D[lane] = lanes[lane]->D;
        for (int i = 0; i < columns / 2; ++i) {
            fresh->value[row_of(lane, i) * columns + column_of(lane, i)] = D[i];
            D[i] = std::bit_cast<float>(poison);
        }
    }
    in_flight.push_back(std::move(fresh));
    return *in_flight.back();
}

/// What the warp reads of shared memory: is it there, inside its tile, and is it fit for it?
void HopperBlock::check_product(const Wgmma& operands, int warp, Site site, std::uintptr_t caller) {
    const int thread = 32 * warp;
    // Lanes that know different things each must know that it may be read.
    int lanes[32], count = 0;
    for (int lane = 0; lane < 32 && block_.config_->checked; ++lane) {
        const Clock* known = block_.clocks_.known(thread + lane);
        if (count == 0 || block_.clocks_.known(lanes[count - 1]) != known) lanes[count++] = thread + lane;
    }
    const Moment at{block_.config_->checked ? block_.clocks_.now(thread).block : 0,
                    static_cast<Epoch>(warps_[warp].started), warpgroups_[warp / warps_of_group].agent};
    const auto check = [&](const Descriptor& descriptor, const char* which, bool transposed,
                           auto&& each_piece) {
        if (descriptor.swizzle != 1) {
            block_.fail(Report::Kind::unsupported,
                        fmt::format("wgmma at {}: the descriptor of {} has no 128-byte swizzle",
                                    to_string(site), which));
        }
        std::size_t first = ~std::size_t{0}, last = 0;
        each_piece([&](std::size_t place, int, int) {
            first = std::min(first, place);
            last = std::max(last, place + piece);
        });
        const auto holds = [&](const Tile& tile) { return tile.begin <= first && last <= tile.end; };
        const auto starts_in = [&](const Tile& tile) {
            return tile.begin <= descriptor.start && descriptor.start < tile.end;
        };
        const bool leaves_tile = std::any_of(tiles_.begin(), tiles_.end(), starts_in) &&
                                 std::none_of(tiles_.begin(), tiles_.end(), holds);
        if (last > block_.shared_bytes_ || leaves_tile) {
            block_.fail(
                Report::Kind::out_of_bounds,
                fmt::format("wgmma at {}: the descriptor of {} starts at byte {} of shared memory and "
                            "reaches bytes {} to {}, outside its {}",
                            to_string(site), which, descriptor.start, first, last - 1,
                            leaves_tile ? "tile" : "memory"));
        }
        std::optional<Moment> known;  // a write that all lanes know of
        each_piece([&](std::size_t place, int, int) {
            const std::byte* address = block_.shared_.get() + place;
            block_.record_matrix_row(address, transposed);
            for (int i = 0; i < count; ++i) {
                block_.checked(at, address, piece, false, Via::product, caller, lanes[i]);
                const std::optional<Moment> written = block_.checker_.last_write(address);
                if (written && written == known) break;
                if (i == count - 1) known = written;
            }
        });
    };
    if (operands.A == nullptr) {
        const Descriptor A(operands.A_descriptor);
        check(A, "A", false, [&](auto&& f) { A.by_rows(warp % warps_of_group * 16, 16, f); });
    }
    const Descriptor B(operands.B_descriptor);
    check(B, "B", operands.B_transposed, [&](auto&& f) {
        operands.B_transposed ? B.by_columns(operands.columns, f) : B.by_rows(0, operands.columns, f);
    });
}

void HopperBlock::start_product(const Wgmma* const (&lanes)[32], Site site, std::uintptr_t caller) {
    use();
    const int warp = block_.scheduler_.current() / 32;
    Warp& own = warps_[warp];
    const Wgmma& operands = *lanes[0];

    if (warps_.size() < static_cast<std::size_t>(warp / warps_of_group + 1) * warps_of_group) {
        block_.fail(Report::Kind::unsupported,
                    fmt::format("wgmma at {} by a warpgroup of fewer than four warps", to_string(site)));
    }
    Warpgroup& group = warpgroups_[warp / warps_of_group];
    auto& steps = group.products;
    if (own.started == steps.size())
        steps.push_back(
            {site, operands.A == nullptr ? operands.A_descriptor : 0, operands.B_descriptor, warp});
    const Warpgroup::Step& step = steps[own.started];
    if (step.site.line != site.line || step.B != operands.B_descriptor ||
        step.A != (operands.A == nullptr ? operands.A_descriptor : 0)) {
        block_.fail(Report::Kind::divergence,
                    fmt::format("divergence: warp {} executes wgmma at {}, and warp {} of its warpgroup at "
                                "{}{}",
                                warp, to_string(site), step.warp, to_string(step.site),
                                step.site.line == site.line ? " with other descriptors" : ""));
    }
    if (group.agent == 0 && block_.config_->checked) group.agent = new_agent("wgmma", 32 * warp);
    own.started += 1;
    for (const int id : std::exchange(group.waiting, {}))
        block_.scheduler_.make_ready(id / 32, 1u << id % 32);
    check_product(operands, warp, site, caller);
    for (int lane = 0; lane < 32; ++lane) {
        const int id = 32 * warp + lane;
        const Wgmma& mine = *lanes[lane];
        registers_of(id, mine.D, sizeof(float) * (mine.columns / 2), "an accumulator", site).in_flight += 1;
        if (mine.A != nullptr)
            registers_of(id, mine.A, sizeof(std::uint32_t[4]), "a register of A", site).in_flight += 1;
    }
    Product product{&accumulators_of(lanes, warp, site), {}, operands};
    product.accumulators->in_flight += 1;
    product.accumulators->product = site;
    for (int lane = 0; lane < 32; ++lane) product.A[lane] = lanes[lane]->A;
    own.products.push_back(product);
    block_.time_.product(
        warp, operands.columns,
        operands.A == nullptr ? Descriptor(operands.A_descriptor).start : TimeModel::in_registers,
        Descriptor(operands.B_descriptor).start);
    if (warp % warps_of_group == 0) {
        block_.tally.wgmma += 1;
        block_.tally.wgmma_columns += static_cast<std::uint64_t>(operands.columns);
    }
}

void HopperBlock::commit_products() {
    Warp& own = warps_[block_.scheduler_.current() / 32];
    own.groups.push_back(own.started);
}

std::size_t HopperBlock::closed(const Warp& warp, std::size_t pending) {
    if (warp.groups.size() <= pending) return warp.started - warp.products.size();
    return warp.groups[warp.groups.size() - pending - 1];
}

void HopperBlock::wait_for_starts(std::size_t pending, Site site) {
    const int warp = block_.scheduler_.current() / 32, first = warp / warps_of_group * warps_of_group;
    const std::size_t over = closed(warps_[warp], pending);
    const auto lacks_some = [&] {
        return std::any_of(warps_.begin() + first, warps_.begin() + first + warps_of_group,
                           [&](const Warp& other) { return other.started < over; });
    };
    while (over > 0 && lacks_some()) {
        warpgroups_[warp / warps_of_group].waiting.push_back(block_.scheduler_.current());
        block_.scheduler_.wait("wgmma_wait", site);
    }
}

void HopperBlock::wait_for_products(std::size_t pending) {
    const int warp = block_.scheduler_.current() / 32, first = warp / warps_of_group * warps_of_group;
    Warp& own = warps_[warp];
    for (int id = 32 * warp; id < 32 * warp + 32; ++id) threads_[id].fenced = false;
    const std::size_t over = closed(own, pending), before = own.started - own.products.size();
    block_.time_.await_products(warp, static_cast<int>(over));
    if (own.groups.size() > pending)
        own.groups.erase(own.groups.begin(), own.groups.end() - static_cast<std::ptrdiff_t>(pending));
    if (over == before) return;
    // They have read memory, for all four warps, who may learn of it from this one.
    for (std::size_t n = own.executed; n < over; ++n) {
        bool B_is_there = false;  // which all four read
        for (int other = first; other < first + warps_of_group; ++other) {
            Warp& part = warps_[other];
            if (part.executed > n) continue;
            const std::size_t oldest = part.started - part.products.size();
            const Product& product = part.products[n - oldest];
            if (!std::exchange(B_is_there, true)) read_B(product.operands);
            execute(product, other);
            part.executed += 1;
        }
    }
    for (std::size_t n = 0; n < over - before; ++n) {
        const Product& product = own.products[n];
        for (int lane = 0; lane < 32; ++lane) {
            const auto* D = reinterpret_cast<const std::byte*>(product.accumulators->D[lane]);
            const auto* A = reinterpret_cast<const std::byte*>(product.A[lane]);
            for (Registers& registers : threads_[32 * warp + lane].registers_of_products)
                registers.in_flight -= registers.begin == D || registers.begin == A;
        }
        product.accumulators->in_flight -= 1;
        if (product.accumulators->in_flight == 0) give_back(*product.accumulators, warp);
    }
    own.products.erase(own.products.begin(),
                       own.products.begin() + static_cast<std::ptrdiff_t>(over - before));
    if (!block_.config_->checked) return;
    int lanes[32];
    std::iota(lanes, lanes + 32, 32 * warp);
    block_.clocks_.learn(lanes, warpgroups_[warp / warps_of_group].agent, static_cast<Epoch>(over));
}

/// The values of B, for execute().
void HopperBlock::read_B(const Wgmma& o) {
    const int N = o.columns;
    const std::byte* shared = block_.shared_.get();
    float values[8];
    if (o.B_transposed) {
        Descriptor(o.B_descriptor).by_columns(N, [&](std::size_t place, int column, int k) {
            values_of(shared + place, values, o.is_fp16);
            std::copy_n(values, 8, &B_[k * N + column]);
        });
    } else {
        Descriptor(o.B_descriptor).by_rows(0, N, [&](std::size_t place, int column, int k) {
            values_of(shared + place, values, o.is_fp16);
            for (int i = 0; i < 8; ++i) B_[(k + i) * N + column] = values[i];
        });
    }
}

/// D = A B (+ D) for the warp's 16 rows.
void HopperBlock::execute(const Product& product, int warp) {
    const Wgmma& o = product.operands;
    const int N = o.columns;
    const std::byte* shared = block_.shared_.get();
    float values[8];
    if (o.A == nullptr) {
        const int first = warp % warps_of_group * 16;
        Descriptor(o.A_descriptor).by_rows(first, 16, [&](std::size_t place, int row, int k) {
            values_of(shared + place, values, o.is_fp16);
            std::copy_n(values, 8, &A_[(row - first) * 16 + k]);
        });
    } else {
        for (int lane = 0; lane < 32; ++lane) {
            for (int r = 0; r < 4; ++r) {
                for (int half = 0; half < 2; ++half) {
                    const auto bits = static_cast<std::uint16_t>(product.A[lane][r] >> 16 * half);
                    A_[(lane / 4 + r % 2 * 8) * 16 + lane % 4 * 2 + half + r / 2 * 8] =
                        o.is_fp16 ? value_of(fp16{bits}) : value_of(bf16{bits});
                }
            }
        }
    }
    const float *A = A_.data(), *B = B_.data();
    float* D = product.accumulators->value.data();
    for (int row = 0; row < 16; row += 4) {
        for (int column = 0; column < N; column += 8)
            multiply_rows<16>(A + row * 16, 16, B + column, N, D + row * N + column, N, o.add);
    }
}

/// The accumulators are the threads' again.
void HopperBlock::give_back(Accumulators& accumulators, int warp) {
    const int N = accumulators.columns;
    for (int lane = 0; lane < 32; ++lane) {
        float* D = accumulators.D[lane];
        for (int i = 0; i < N / 2; ++i) {
            if (!is_poison(D[i])) {
                block_.fail(
                    Report::Kind::registers_in_flight,
                    fmt::format("thread {} writes an accumulator before the wgmma at {} was waited for",
                                32 * warp + lane, to_string(accumulators.product)));
            }
            D[i] = accumulators.value[row_of(lane, i) * N + column_of(lane, i)];
        }
    }
    std::erase_if(warps_[warp].accumulators, [&](const auto& other) { return other.get() == &accumulators; });
}

// ---------------------------------------------------------------------------------------------------------------
// The instructions

TensorMap tensor_map(void* data, const TensorMap::Index& extent,
                     const std::array<std::int64_t, TensorMap::dims>& stride, const TensorMap::Index& box) {
    const auto refuse = [](const char* why) {
        throw Report(Report::Kind::misaligned, fmt::format("tensor_map: {}", why));
    };
    if (reinterpret_cast<std::uintptr_t>(data) % piece != 0) refuse("the tensor is not 16-byte aligned");
    for (int n = 0; n < TensorMap::dims; ++n) {
        if (n > 0 && stride[n] % static_cast<std::int64_t>(piece) != 0)
            refuse("a stride is no multiple of 16 bytes");
        if (box[n] < 1 || box[n] > 256 || extent[n] < 1)
            refuse("a box has 1 to 256 elements in each dimension");
    }
    if (box[0] != 64 || extent[0] % 8 != 0)
        refuse("a row of a box with 128-byte swizzle has 64 elements here");
    return {static_cast<std::byte*>(data), extent, stride, box};
}

void bulk_load(void* shared, const TensorMap& map, const TensorMap::Index& first, void* mbarrier) {
    HopperBlock& block = running_block->hopper;
    block.bulk_load(block.box(map, shared, first), map.data, mbarrier, SIMT_HOPPER_CALLER);
}

void bulk_load(void* shared, const void* global, int bytes, void* mbarrier) {
    HopperBlock& block = running_block->hopper;
    const auto caller = SIMT_HOPPER_CALLER;
    block.bulk_load(block.line(global, shared, bytes, caller), global, mbarrier, caller);
}

void bulk_store(const TensorMap& map, const void* shared, const TensorMap::Index& first) {
    HopperBlock& block = running_block->hopper;
    block.bulk_store(block.box(map, shared, first), Direction::store, SIMT_HOPPER_CALLER);
}

void bulk_add(float* global, const float* shared, int bytes) {
    HopperBlock& block = running_block->hopper;
    const auto caller = SIMT_HOPPER_CALLER;
    block.bulk_store(block.line(global, shared, bytes, caller), Direction::add, caller);
}

void bulk_commit() {
    running_block->hopper.bulk_commit();
}

void bulk_wait(int pending_groups, bool reads_alone) {
    running_block->hopper.bulk_wait(static_cast<std::size_t>(pending_groups), reads_alone);
}

void fence_proxy_async() {
    running_block->hopper.fence_proxy();
}

void fence_mbarrier_init() {
    running_block->hopper.fence_mbarrier_init();
}

void mbarrier_expect(void* barrier, int bytes) {
    running_block->hopper.expect(barrier, bytes, SIMT_HOPPER_CALLER);
}

void named_sync(int id, int threads, Site site) {
    running_block->hopper.named_barrier(id, threads, true, site);
}

void named_arrive(int id, int threads, Site site) {
    running_block->hopper.named_barrier(id, threads, false, site);
}

void set_registers(int count, bool more, Site site) {
    running_block->hopper.set_registers(count, more, site);
}

unsigned shared_offset(const void* address) {
    return static_cast<unsigned>(static_cast<const std::byte*>(address) -
                                 static_cast<const std::byte*>(running_block->shared_memory()));
}

unsigned describe_tile(const void* tile, std::size_t bytes) {
    return running_block->hopper.describe_tile(shared_offset(tile), bytes);
}

void wgmma_fence(Site site) {
    running_block->meet(
        Op::wgmma_fence, all_lanes, nullptr,
        [](void* const(&)[32], std::uint32_t) { running_block->hopper.fence_products(); }, site);
}

void wgmma_commit(Site site) {
    running_block->meet(
        Op::wgmma_commit, all_lanes, nullptr,
        [](void* const(&)[32], std::uint32_t) { running_block->hopper.commit_products(); }, site);
}

void wgmma_wait(int pending_groups, Site site) {
    running_block->hopper.wait_for_starts(static_cast<std::size_t>(pending_groups), site);
    running_block->meet(
        Op::wgmma_wait, all_lanes, &pending_groups,
        [](void* const(&operands)[32], std::uint32_t) {
            running_block->hopper.wait_for_products(
                static_cast<std::size_t>(*static_cast<const int*>(operands[0])));
        },
        site);
}

namespace {

struct WgmmaOperands {
    Wgmma product;
    Site site;
    std::uintptr_t caller;
};

struct StmatrixOperands {
    const std::uint32_t* r;
    const void* row;
};

}  // namespace

void wgmma(const Wgmma& product, Site site) {
    WgmmaOperands operands{product, site, SIMT_HOPPER_CALLER};
    running_block->meet(
        Op::wgmma, all_lanes, &operands,
        [](void* const(&all)[32], std::uint32_t) {
            const Wgmma* lanes[32];
            for (int lane = 0; lane < 32; ++lane)
                lanes[lane] = &static_cast<const WgmmaOperands*>(all[lane])->product;
            const auto& first = *static_cast<const WgmmaOperands*>(all[0]);
            running_block->hopper.start_product(lanes, first.site, first.caller);
        },
        site);
}

template <bool transposed>
void stmatrix_body(void* const (&all)[32], std::uint32_t) {
    for (int lane = 0; lane < 32; ++lane) {
        const auto& own = *static_cast<const StmatrixOperands*>(all[lane]);
        const int g = lane / 4, t = lane % 4;
        // Half i % 2 of register i / 2: element (g, 2t + i % 2) of matrix i / 2.
        for (int i = 0; i < 8; ++i) {
            const int row = transposed ? 2 * t + i % 2 : g, column = transposed ? g : 2 * t + i % 2;
            const auto& named = *static_cast<const StmatrixOperands*>(all[8 * (i / 2) + row]);
            const auto half = static_cast<std::uint16_t>(own.r[i / 2] >> 16 * (i % 2));
            std::memcpy(static_cast<std::byte*>(const_cast<void*>(named.row)) + 2 * column, &half, 2);
        }
    }
    running_block->tally.stmatrix += 1;
}

void stmatrix(const void* row, const std::uint32_t (&r)[4], bool transposed, Site site) {
    Block& block = *running_block;
    if (reinterpret_cast<std::uintptr_t>(row) % 16 != 0) {
        block.fail(Report::Kind::misaligned,
                   fmt::format("stmatrix of a row that is not 16-byte aligned, at {}", to_string(site)));
    }
    block.check(row, 16, true, Via::wrapper, SIMT_HOPPER_CALLER);
    block.record_access(row, 16, true);
    block.tally.shared_tile_bytes += 16;
    StmatrixOperands operands{r, row};
    if (transposed) {
        block.meet(Op::stmatrix_transposed, all_lanes, &operands, stmatrix_body<true>, site);
    } else {
        block.meet(Op::stmatrix, all_lanes, &operands, stmatrix_body<false>, site);
    }
}

}  // namespace simt
