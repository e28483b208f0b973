/// @file
/// The registers of products (wgmma): arrays of a kernel that lie on its threads' stacks. Internal to simt/.
#pragma once

#include "simt/context.h"
#include "simt/hopper.h"

namespace simt {

/// Which registers products use, and what their threads do with them meanwhile: a wgmma_fence makes them fit
/// for a product, and from its start until it has been waited for its threads must not touch them.
class ProductRegisters : Part {
  public:
    using Part::Part;

    void begin_block() { threads_.assign(context_.threads, {}); }
    /// A turn of this thread begins.
    void begin_turn(int thread) { running_ = &threads_[thread]; }

    /// May an access to the running thread's stack be one to registers of a product, in flight or past?
    bool watches(const void* address) const {
        return !running_->arrays.empty() && !running_->gap.contains(address);
    }
    void touch(const void* address, std::size_t bytes, bool write, Caller caller) {
        Array* last = running_->touched_last;  // mostly, a thread goes through one array
        if (last == nullptr || !last->contains(address) || last->in_flight > 0)
            return touch_another(address, bytes, write, caller);
        last->touched = last->touched || write;
    }

    // What the running warp does.

    void fence() {
        for (Thread& thread : lanes()) {
            thread.fenced = true;
            for (Array& array : thread.arrays) array.touched = false;
        }
    }
    /// It has waited for products: registers that are new need another fence.
    void end_fences() {
        for (Thread& thread : lanes()) thread.fenced = false;
    }
    /// A product begins to use these registers, or has been waited for.
    void take(const Wgmma* const (&lanes)[32], Site site) {
        for (int lane = 0; lane < 32; ++lane) {
            const int id = warp() * 32 + lane;
            const Wgmma& own = *lanes[lane];
            take(id, own.D, sizeof(float) * (own.columns / 2), "an accumulator", site);
            if (own.A != nullptr) take(id, own.A, sizeof(std::uint32_t[4]), "a register of A", site);
        }
    }
    void give_back(const std::array<float*, 32>& D, const std::array<const std::uint32_t*, 32>& A) {
        for (int lane = 0; lane < 32; ++lane) {
            for (Array& array : lanes()[lane].arrays)
                array.in_flight -= static_cast<const void*>(array.begin) == D[lane] ||
                                   static_cast<const void*>(array.begin) == A[lane];
        }
    }

  private:
    /// Registers of one thread.
    struct Array : Range {
        const char* what;
        int in_flight = 0;     ///< products that use them
        bool touched = false;  ///< written since the thread's last wgmma_fence
        Site product{};        ///< the last one that used them
    };
    struct Thread {
        bool fenced = false;  ///< wgmma_fence since the last wait
        Array* touched_last = nullptr;
        Range gap;                  ///< between two of the following, where the last access was
        std::vector<Array> arrays;  ///< by address
    };

    /// The threads of the running warp.
    std::span<Thread> lanes() { return std::span(threads_).subspan(32 * warp(), 32); }

    [[gnu::noinline]] void touch_another(const void* address, std::size_t bytes, bool write, Caller caller) {
        auto& all = running_->arrays;
        const auto* first = static_cast<const std::byte*>(address);
        const auto found =
            std::ranges::upper_bound(all, first, {}, [](const Array& r) { return r.begin + r.bytes; });
        if (found == all.end() || found->begin >= first + bytes) {
            const auto* begin = found == all.begin() ? first : found[-1].begin + found[-1].bytes;
            const auto* end = found == all.end() ? first + bytes : found->begin;
            running_->gap = {begin, static_cast<std::size_t>(end - begin)};
            return;
        }
        if (found->in_flight > 0) {
            fail(Kind::registers_in_flight, "thread {} {} {} at {} before the wgmma at {} was waited for",
                 thread(), write ? "writes" : "reads", found->what, caller, found->product);
        }
        found->touched = found->touched || write;
        running_->touched_last = &*found;
    }
    void take(int id, const void* begin, std::size_t bytes, const char* what, Site site) {
        Thread& thread = threads_[id];
        auto& all = thread.arrays;
        const auto* first = static_cast<const std::byte*>(begin);
        const auto place = [&] { return std::ranges::lower_bound(all, first, {}, &Array::begin); };
        auto found = place();
        const bool known = found != all.end() && found->begin == first && found->bytes == bytes;
        const bool is_chained = known && found->in_flight > 0;
        if (!is_chained && (known ? found->touched : !thread.fenced)) {
            fail(Kind::missing_fence, "wgmma at {} by thread {} of {} that no wgmma_fence made ready for it",
                 site, id, what);
        }
        if (!known) {  // what lay there before is gone
            thread.gap = {};
            thread.touched_last = nullptr;
            std::erase_if(
                all, [&](const Array& r) { return r.begin < first + bytes && first < r.begin + r.bytes; });
            found = all.insert(place(), {{first, bytes}, what});
        }
        found->product = site;
        found->in_flight += 1;
    }

    std::vector<Thread> threads_;
    Thread* running_ = nullptr;
};

}  // namespace simt
