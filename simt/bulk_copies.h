/// @file
/// Bulk copies (TMA) between global and shared memory: of boxes, and of lines. Internal to simt/.
#pragma once

#include <functional>
#include <numeric>

#include "simt/context.h"
#include "simt/hopper.h"
#include "simt/mbarriers.h"

namespace simt {

/// The bulk copies of a block. A load signals an mbarrier, which holds it; a store or an addition, which
/// goes the other way, is of a group that its thread waits for.
class BulkCopies : Part {
  public:
    BulkCopies(Context& context, Mbarriers& mbarriers) : Part(context), mbarriers_(mbarriers) {}

    void begin_block() { threads_.assign(context_.threads, {}); }
    /// The running thread leaves the kernel.
    void end_thread() {
        if (own().stores.in_flight() == 0) return;
        fail(Kind::copy_in_flight,
             "thread {} leaves the kernel before the bulk store at {} has read shared memory: no "
             "bulk_wait_read",
             thread(), own().stores[own().stores.over()].caller);
    }

    /// What a copy moves: places of 16 bytes in shared memory, each with its global memory or null.
    struct Operand {
        std::size_t first, bytes, alignment;  ///< of shared memory, from its start
        std::vector<std::pair<std::size_t, std::byte*>> pieces = {};
    };
    /// The pieces of a box. Outside of the tensor there is no global memory.
    Operand box(const TensorMap& map, const void* shared, const TensorMap::Index& first) const {
        const std::size_t row_bytes = 2 * map.box[0];
        const std::size_t rows =
            std::accumulate(map.box.begin() + 1, map.box.end(), std::size_t{1}, std::multiplies<>());
        const std::size_t place = context_.shared.place_of(shared);
        Operand box{.first = place, .bytes = rows * 128, .alignment = 128};
        box.pieces.reserve(rows * row_bytes / piece_bytes);
        for (std::size_t row = 0; row < rows; ++row) {
            std::byte* global = map.data + 2 * std::ptrdiff_t{first[0]};
            bool is_inside = true;
            int left = static_cast<int>(row);
            for (int n = 1; n < TensorMap::dims; ++n) {
                const int at = first[n] + left % map.box[n];
                left /= map.box[n];
                is_inside = is_inside && at >= 0 && at < map.extent[n];
                global += at * map.stride[n];
            }
            for (std::size_t byte = 0; byte < row_bytes; byte += piece_bytes) {
                const int element = first[0] + static_cast<int>(byte / 2);
                const bool exists = is_inside && element >= 0 && element < map.extent[0];
                box.pieces.push_back({swizzled(place + 128 * row + byte), exists ? global + byte : nullptr});
            }
        }
        return box;
    }
    /// The pieces of bytes that lie together on both sides.
    Operand line(const void* global, const void* shared, int bytes, Caller caller) {
        const std::size_t place = context_.shared.place_of(shared);
        if (bytes <= 0 || bytes % piece_bytes != 0 || !is_aligned(global, piece_bytes)) {
            fail(Kind::misaligned,
                 "bulk copy of {} bytes of global memory at {}: the address and the bytes must be multiples "
                 "of 16",
                 bytes, caller);
        }
        Operand line{.first = place, .bytes = static_cast<std::size_t>(bytes), .alignment = piece_bytes};
        auto* first = const_cast<std::byte*>(static_cast<const std::byte*>(global));
        for (std::size_t byte = 0; byte < line.bytes; byte += piece_bytes)
            line.pieces.push_back({place + byte, first + byte});
        return line;
    }

    // What the running thread does.

    void load(const Operand& of, const void* tensor, void* mbarrier, Caller caller) {
        const Mbarriers::Signal signal = mbarriers_.begin_load(mbarrier, caller);
        BulkCopy load = make(of, Direction::load, caller);
        load.has_read = load.has_written = signal.over;
        context_.start(load, Via::bulk);
        const std::size_t bytes = of.pieces.size() * piece_bytes;
        const char* name = place_in_global_memory(tensor).allocation;
        context_.time.load(thread(), mbarrier, signal.phase, of.first, of.first + bytes,
                           name == nullptr ? "?" : name);
        mbarriers_.add_load(mbarrier, std::move(load), bytes);
    }
    void store(const Operand& of, bool adds, Caller caller) {
        auto& [stores, reads, writes] = own();
        if (reads == 0) {
            reads = context_.add_agent("bulk store", thread());
            writes = context_.add_agent("bulk store", thread());
        }
        const Epoch number = stores.started() + 1;
        BulkCopy store = make(of, adds ? Direction::add : Direction::store, caller);
        store.has_read = context_.clocks.moment(reads, number);
        store.has_written = context_.clocks.moment(writes, number);
        context_.start(store, Via::bulk);
        stores.start(std::move(store));
    }
    void commit() { own().stores.commit(); }
    /// Waits for all groups of its stores but the last `pending`: until they have read shared memory, or have
    /// written, too. Here they have written in either case, though no clock knows it.
    void wait(std::size_t pending, bool reads_alone) {
        auto& [stores, reads, writes] = own();
        if (stores.groups() <= pending) return;
        const Epoch over = stores.before_last(pending);
        stores.land(over);
        stores.forget(over);
        if (!reads_alone) stores.forget_groups_before_last(pending);
        if (reads == 0) return;
        context_.clocks.learn(context_.threads_from(thread(), 1), reads, over);
        if (!reads_alone) context_.clocks.learn(context_.threads_from(thread(), 1), writes, over);
    }

  private:
    enum class Direction : std::uint8_t { load, store, add };
    struct Thread {
        AsyncQueue<BulkCopy> stores;
        Agent reads = 0, writes = 0;  ///< the agents of its stores; 0: there have been none
    };

    Thread& own() { return threads_[thread()]; }

    /// A copy of these pieces, counted. Without global memory a load writes zeros and a store nothing.
    BulkCopy make(const Operand& of, Direction direction, Caller caller) {
        context_.time.start();
        const bool loads = direction == Direction::load, adds = direction == Direction::add;
        const char* what = loads ? "bulk_load" : adds ? "bulk_add" : "bulk_store";
        if (options().compute_capability < 80) fail(Kind::unsupported, "{} at {} needs sm_90", what, caller);
        if (of.first % of.alignment != 0) {
            fail(Kind::misaligned, "{} of shared memory that is not {}-byte aligned, at {}", what,
                 of.alignment, caller);
        }
        const SharedMemory& shared = context_.shared;
        if (of.first >= shared.bytes() || of.bytes > shared.bytes() - of.first) {
            fail(Kind::out_of_bounds, "{} of {} bytes that leaves shared memory, at {}", what, of.bytes,
                 caller);
        }
        BulkCopy copy{.pieces = {}, .caller = caller};
        copy.pieces.reserve(of.pieces.size());
        std::size_t inside = 0;
        for (const auto& [place, global] : of.pieces) {
            std::byte* here = shared.data() + place;
            inside += global != nullptr ? piece_bytes : 0;
            if (loads) context_.recorder.copy(here, global);
            copy.pieces.push_back(loads ? Piece{global, here, piece_bytes}
                                        : Piece{here, global, piece_bytes, adds});
        }
        Counters& tally = context_.tally;
        (loads ? tally.bulk_loads : adds ? tally.bulk_adds : tally.bulk_stores) += 1;
        tally.bulk_bytes += of.pieces.size() * piece_bytes;
        tally.shared_tile_bytes += of.pieces.size() * piece_bytes;
        (loads ? tally.global_load_bytes : tally.global_store_bytes) += inside;
        return copy;
    }

    Mbarriers& mbarriers_;
    std::vector<Thread> threads_;
};

}  // namespace simt
