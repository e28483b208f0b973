/// @file
/// Device memory as the host of a GPU has it: out of its reach. A kernel's host side that computes there by
/// itself is neither counted nor checked, and on a GPU it would fault.
#pragma once

#include <cstddef>
#include <functional>

namespace simt {

/// Bytes that fence() takes memory in: a page.
std::size_t fence_unit();

/// From now on memory is device memory, for run_host_side(). It begins at a multiple of fence_unit(), and is
/// that of no other up to one. `name` must outlive it.
void fence(void* data, std::size_t bytes, const char* name);
void forget_fence(void* data);

/// From now on a kernel that divides an integer by zero has failed, as any other that does what is undefined;
/// the program goes on. A GPU computes something there.
void report_divisions();

/// Runs the host side of a stage, `code` being one of its functions. Device memory is accessible during
/// launches alone. Throws Report::Kind::host_access, without going back there, if it is touched, and
/// division_by_zero.
void run_host_side(const void* code, const std::function<void()>& host_side);

/// Device memory is accessible while this exists.
class DuringLaunch {
  public:
    DuringLaunch();
    ~DuringLaunch();

  private:
    const bool was_closed_;
};

}  // namespace simt
