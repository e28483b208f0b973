/// @file
/// A loop on all cores.
#pragma once

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace ladder {

/// Calls f(0), ..., f(n - 1), each once, on as many threads as the machine has cores. What they write must be
/// apart. Rethrows the first exception when all threads have ended.
template <class F>
void parallel_for(int n, const F& f) {
    std::atomic<int> next = 0;
    std::mutex mutex;
    std::exception_ptr failure;
    const auto work = [&] {
        try {
            for (int i = next++; i < n; i = next++) f(i);
        } catch (...) {
            next = n;
            const std::lock_guard lock(mutex);
            if (!failure) failure = std::current_exception();
        }
    };
    std::vector<std::jthread> others;
    const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
    for (int t = 1; t < std::min(n, cores); ++t) others.emplace_back(work);
    work();
    others.clear();
    if (failure) std::rethrow_exception(failure);
}

}  // namespace ladder
