/// @file
/// What a block of Hopper has besides: bulk copies in flight, products in flight, named barriers and a pool
/// of registers. Internal to simt/.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "simt/async.h"
#include "simt/clocks.h"
#include "simt/hopper.h"

namespace simt {

class Block;

/// A bulk copy from its start until it is over: a piece for each 16 bytes.
struct BulkCopy {
    std::vector<AsyncOp> pieces;
    std::uintptr_t caller = 0;
    bool landed = false;

    void land() {
        if (landed) return;
        for (AsyncOp& piece : pieces) piece.land();
        landed = true;
    }
};

/// Where a bulk copy goes. Sums are of floats.
enum class Direction : std::uint8_t { load, store, add };

/// The part of Block that Hopper's instructions need. Called by the running thread, but for begin() and
/// end().
class HopperBlock {
  public:
    explicit HopperBlock(Block& block) : block_(block) {}

    /// A block begins; all its threads have ended.
    void begin();
    void end();
    /// The running thread leaves the kernel.
    void end_thread();
    /// What those who wait for ever wait for: "; named barrier 1 has 128 of 256 threads".
    std::string describe_waiting() const;

    /// What a bulk copy moves: places of 16 bytes in shared memory, each with its global memory or null.
    struct Operand {
        std::size_t first, bytes, alignment;  ///< of shared memory, from its start
        std::vector<std::pair<std::size_t, std::byte*>> pieces = {};
    };
    Operand box(const TensorMap& map, const void* shared, const TensorMap::Index& first);
    Operand line(const void* global, const void* shared, int bytes, std::uintptr_t caller);
    void bulk_load(const Operand& of, const void* tensor, void* mbarrier, std::uintptr_t caller);
    void bulk_store(const Operand& of, Direction direction, std::uintptr_t caller);
    void bulk_commit();
    void bulk_wait(std::size_t pending, bool reads_alone);
    void fence_proxy();
    void fence_mbarrier_init();
    void expect(void* mbarrier, int bytes, std::uintptr_t caller);
    /// Of Order::shuffled: a bulk load lands before it has to.
    void land_some();

    void named_barrier(int id, int threads, bool waits, Site site);
    void set_registers(int count, bool more, Site site);

    unsigned describe_tile(unsigned offset, std::size_t bytes);
    void fence_products();
    void commit_products();
    /// Until all four warps have started what the running thread is about to wait for: a product is the
    /// warpgroup's, and is over for all of them at once.
    void wait_for_starts(std::size_t pending, Site site);
    void wait_for_products(std::size_t pending);
    /// One warp's part of a product: 16 of its 64 rows.
    void start_product(const Wgmma* const (&lanes)[32], Site site, std::uintptr_t caller);

    /// A turn of this thread begins.
    void begin_turn(int id) { current_ = &threads_[static_cast<std::size_t>(id)]; }
    /// May an access to the running thread's stack be one to registers of a product, in flight or past?
    bool watches(const void* address) const {
        const auto* first = static_cast<const std::byte*>(address);
        return !current_->registers_of_products.empty() &&
               (first < current_->gap.begin || first >= current_->gap.end);
    }
    void touch(const void* address, std::size_t bytes, bool write, std::uintptr_t caller) {
        Registers* last = current_->touched_last;  // mostly, a thread goes through one array
        if (last == nullptr || !last->holds(address) || last->in_flight > 0)
            return touch_another(address, bytes, write, caller);
        last->touched = last->touched || write;
    }

  private:
    /// Registers of one thread that products use.
    struct Registers {
        const std::byte* begin;
        std::size_t bytes;
        const char* what;
        int in_flight = 0;     ///< products that use them
        bool touched = false;  ///< written since the thread's last wgmma_fence
        Site product{};        ///< the last one that used them

        bool holds(const void* address) const {
            return static_cast<std::size_t>(static_cast<const std::byte*>(address) - begin) < bytes;
        }
    };
    struct Thread {
        std::vector<BulkCopy> stores;     ///< in flight, oldest first
        std::vector<std::size_t> groups;  ///< how many stores there had been at each commit
        std::size_t started = 0;          ///< stores
        Agent reads = 0, writes = 0;      ///< the agents of its stores; 0: it has had none
        int registers = 0;
        std::size_t register_changes = 0;
        bool fenced = false;  ///< wgmma_fence since the last wait
        Registers* touched_last = nullptr;
        struct {
            const std::byte *begin = nullptr, *end = nullptr;
        } gap;                                         ///< between two of the following, where it was last
        std::vector<Registers> registers_of_products;  ///< by address
    };
    /// The accumulators of products in flight: what they will be.
    struct Accumulators {
        std::array<float*, 32> D;
        int columns;
        std::vector<float> value;  ///< 16 rows
        int in_flight = 0;
        Site product{};
    };
    struct Product {
        Accumulators* accumulators;
        std::array<const std::uint32_t*, 32> A;
        Wgmma operands;
    };
    struct Warp {
        std::vector<std::unique_ptr<Accumulators>> accumulators;
        std::vector<Product> products;    ///< in flight, oldest first
        std::vector<std::size_t> groups;  ///< how many products there had been at each commit
        std::size_t started = 0, executed = 0;
    };
    /// What a warpgroup's warps must do alike, each in the order in which its first one did it.
    struct Warpgroup {
        struct Step {
            Site site;
            std::uint64_t A, B;
            int warp;
        };
        std::vector<Step> products;
        std::vector<int> registers;
        Agent agent = 0;           ///< its products: the n-th is epoch n
        std::vector<int> waiting;  ///< threads, for products that another warp has not started
    };
    struct NamedBarrier {
        int threads = 0;  ///< that it takes
        int arrived = 0;
        int uses = 0;  ///< that are complete
        Site first{};
        ClockRef told;
        std::vector<int> waiting;
        struct Arrival {
            Site site{};
            int use = -1;  ///< that it was part of
        };
        std::vector<Arrival> arrivals;  ///< the last of each thread of the block
    };
    struct Tile {
        unsigned begin, end;
    };
    struct Claim {  ///< of registers that are not free yet
        int thread;
        int count;
    };

    Thread& self();
    void touch_another(const void* address, std::size_t bytes, bool write, std::uintptr_t caller);
    /// One of Hopper's instructions.
    void use();
    BulkCopy make_copy(const Operand& of, Direction direction, Moment reads, Moment writes,
                       std::uintptr_t caller);
    Agent new_agent(const char* what, int thread);
    void check_product(const Wgmma& operands, int warp, Site site, std::uintptr_t caller);
    Accumulators& accumulators_of(const Wgmma* const (&lanes)[32], int warp, Site site);
    Registers& registers_of(int thread, const void* begin, std::size_t bytes, const char* what, Site site);
    /// Products of the warpgroup that are over when the warp waits for all its groups but the last `pending`.
    static std::size_t closed(const Warp& warp, std::size_t pending);
    void read_B(const Wgmma& operands);
    void execute(const Product& product, int warp);
    void give_back(Accumulators& accumulators, int warp);

    Block& block_;
    std::vector<Thread> threads_;
    Thread* current_ = nullptr;  ///< whose turn it is
    std::vector<Warp> warps_;
    std::vector<Warpgroup> warpgroups_;
    std::array<NamedBarrier, 16> named_;
    std::vector<Tile> tiles_;
    int free_registers_ = 0;
    std::vector<Claim> claims_;
    bool is_used_ = false;  ///< in this block
    std::array<float, 16 * 16> A_;
    std::array<float, 16 * 256> B_;
};

}  // namespace simt
