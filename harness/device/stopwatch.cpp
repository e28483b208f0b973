#include "harness/device/stopwatch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace ladder {

std::string limit_of(const KernelProfile& kernel, int blocks_without_shared, const Multiprocessor& sm) {
    constexpr int granularity = 128;  // in which shared memory is given out
    const int more = kernel.blocks_per_sm + 1;
    const int shared =
        (kernel.shared_bytes + sm.reserved_shared_bytes + granularity - 1) / granularity * granularity;
    const bool by_threads = more * kernel.threads > sm.threads, by_blocks = more > sm.blocks;
    std::vector<std::string> limits;
    if (blocks_without_shared < more && !by_threads && !by_blocks) limits.emplace_back("registers");
    if (more * shared > sm.shared_bytes) limits.emplace_back("shared memory");
    if (by_threads) limits.emplace_back("threads");
    if (by_blocks) limits.emplace_back("blocks");
    return fmt::format("{}", fmt::join(limits, ", "));
}

double Stopwatch::time_ranks(const Stage&, const std::vector<Problem>&, const Shape&) {
    throw CannotRun("it has no clock of several ranks");
}

std::string kernel_base_name(std::string demangled) {
    for (const std::string unnamed : {"(anonymous namespace)::", "<unnamed>::"}) {
        for (std::size_t at; (at = demangled.find(unnamed)) != demangled.npos;)
            demangled.erase(at, unnamed.size());
    }
    demangled.resize(std::min(demangled.find_first_of("<("), demangled.size()));
    return demangled.substr(demangled.find_last_of(" :") + 1);  // npos + 1 = 0
}

}  // namespace ladder
