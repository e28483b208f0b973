/// @file
/// The race checker: who last wrote and read each byte that threads share, and when. Internal to simt/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "simt/simt.h"

namespace simt {

class Block;

/// Who is running, and when. Two moments of one block are ordered if a barrier lies between them, within a
/// warp a __syncwarp, or between warps an mbarrier at which the one arrived (behind a __syncwarp) and for
/// which the other waited. A shuffle does not order memory.
///
/// Two moments of different blocks of a launch are ordered if the first comes before a __threadfence of a
/// thread that then does an atomic, and the second comes behind a __threadfence of a thread that before it
/// did an atomic on the same address, later. "Before" and "behind" are the order within a block, above. That
/// is CUDA's rule: a fence orders what its own thread did, and what a barrier ordered before the fence. A
/// fence, then a barrier, then the atomic of another thread promises nothing. Chains through a third block,
/// with atomics on two addresses, would be ordered too, but are not followed.
struct Moment {
    std::uint32_t block = 0;   ///< serial number, unique in the process; 0 is never
    std::uint32_t time = 0;    ///< barriers passed << 16 | __syncwarp since
    std::uint16_t thread = 0;  ///< in the block
    std::uint16_t fences = 0;  ///< __threadfence that the thread has passed
};

/// An access that a shadow remembers.
struct Access {
    Moment at;
    bool several_lanes = false;  ///< of a read: other lanes of this warp read at the same time
    bool several_warps = false;  ///< of a read: other warps read since the last barrier
    bool in_flight = false;      ///< of a write: an asynchronous copy that has not been waited for
    bool atomic = false;         ///< of a write
    std::uint32_t caller = 0;    ///< return address, from the start of the executable
    int mbarrier = -1;           ///< of a write: the copy is there for who knows that this mbarrier ...
    std::uint32_t phase = 0;     ///< ... has completed this phase
};

/// The history of a piece of memory.
struct Shadow {
    static constexpr std::size_t unit = 2;  ///< bytes per cell: the smallest element that kernels share
    struct Cell {
        Access write, read;
    };

    const std::byte* data = nullptr;
    std::size_t bytes = 0;
    const char* name = "";
    bool writable = true;
    bool global = false;
    std::unique_ptr<Cell[]> cells;  ///< none for read-only memory: reads do not race
    /// Of each cell and warp: the time after its last read. Only where mbarriers order some warps and not
    /// others, so that one reader does not stand for all.
    std::vector<std::uint32_t> readers;
    /// By the place of an atomic: the fences behind which its count was raised, since something else wrote
    /// there.
    std::map<std::size_t, std::vector<Moment>> released;
    std::mutex mutex;  ///< of global memory, which blocks on other workers share

    Shadow(const void* memory, std::size_t size, const char* label, bool can_write, bool is_global);
    bool contains(const void* address) const {
        return static_cast<std::size_t>(static_cast<const std::byte*>(address) - data) < bytes;
    }
};

/// How an access reached the checker.
enum class Via : std::uint8_t {
    wrapper,     ///< the CUDA layer, which counts it
    plain,       ///< an ordinary C++ access, which nothing counts
    copy_start,  ///< an asynchronous copy's destination, when it starts
    atomic       ///< an atomic of the CUDA layer
};

/// Checks the accesses of one worker's blocks.
class Checker {
  public:
    explicit Checker(Block& block) : block_(block) {}

    /// Where the launch's parameters and each block's dynamic shared memory lie.
    void begin_launch(std::uint32_t first_block, const void* parameters, std::size_t parameter_bytes,
                      const void* shared, std::size_t shared_bytes);
    /// A block of the launch starts: it knows nothing of the others.
    void begin_block();
    /// One access by the running thread. Does not return if it is a fault. While the lock that it returns is
    /// held no other block accesses that allocation; an atomic takes place under it.
    std::unique_lock<std::mutex> access(const void* address, std::size_t bytes, bool write, Via via,
                                        std::uintptr_t caller);
    /// A __threadfence of the running thread, between these moments.
    void fence(const Moment& before, const Moment& after);

    /// From now on until the block ends, dynamic shared memory remembers its last reader in each warp.
    void remember_readers();
    /// A copy that is in flight has landed, for those who know of this phase.
    void land_with_phase(const void* shared, std::size_t bytes, int mbarrier, std::uint32_t phase);

  private:
    Shadow* find(const std::byte* first, std::size_t bytes);
    bool is_private(const std::byte* address, bool write) const;
    void check(Shadow& shadow, const std::byte* address, std::size_t bytes, bool write, Via via,
               std::uint32_t caller);
    bool unordered(const Shadow& shadow, const Access& before, const Moment& now) const;
    bool handed_over(const Moment& before, const Moment& now) const;
    bool read_by_unordered_warp(const Shadow& shadow, const Shadow::Cell& cell, const Moment& now) const;
    void synchronize(Shadow& shadow, const Access& now, std::size_t place);
    void read(Shadow& shadow, Shadow::Cell& cell, const Access& now, const std::byte* address);
    void write(const Shadow& shadow, Shadow::Cell& cell, const Access& now, const std::byte* address);
    void race(const Shadow& shadow, const char* before_kind, const Access& before, const char* now_kind,
              const Access& now, const std::byte* address);
    void touches_copy(const Shadow& shadow, const Access& copy, const char* now_kind, const Access& now,
                      const std::byte* address);

    Block& block_;
    std::unique_ptr<Shadow> dynamic_shared_, static_shared_;
    std::uint32_t first_block_ = 0;  ///< of this launch; blocks since then run at the same time
    const std::byte* parameters_ = nullptr;
    std::size_t parameter_bytes_ = 0;
    std::optional<Report> fault_;  ///< what the access in hand did wrong

    /// What another block did before its fence, known to a thread of the running block behind its atomic.
    struct Handover {
        Moment released;      ///< the other block's fence
        Moment acquired;      ///< the atomic, or if `fenced` the fence behind it
        bool fenced = false;  ///< only then may the thread, and who follows it, rely on it
    };
    std::vector<Handover> handovers_;             ///< to the running block
    std::map<std::uint16_t, Moment> last_fence_;  ///< of each thread of the running block that has passed one
};

/// A return address, counted from the start of the executable.
std::uint32_t relative_address(std::uintptr_t caller);

/// "kernel.cu:12" for a relative return address, or the address itself if nothing can say.
std::string source_of(std::uint32_t caller);

}  // namespace simt
