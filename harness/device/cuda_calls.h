/// @file
/// CUDA's own calls, with their failures as exceptions.
#pragma once

#include <cuda_runtime.h>

#include <string>

#include "stages/errors.h"

namespace ladder {

/// Throws CheckFailed unless it is cudaSuccess.
inline void check(cudaError_t error, const std::string& doing) {
    if (error != cudaSuccess) throw CheckFailed(doing + ": " + cudaGetErrorString(error));
}

/// Makes a GPU the calling thread's, until the end of its scope.
class CurrentGpu {
  public:
    explicit CurrentGpu(int gpu) {
        check(cudaGetDevice(&before_), "ask for the current GPU");
        check(cudaSetDevice(gpu), "choose a GPU");
    }
    CurrentGpu(const CurrentGpu&) = delete;
    CurrentGpu& operator=(const CurrentGpu&) = delete;
    ~CurrentGpu() { cudaSetDevice(before_); }

  private:
    int before_ = 0;
};

/// A CUDA event, destroyed with its owner.
class Event {
  public:
    Event() { check(cudaEventCreate(&event_), "create an event"); }
    Event(const Event&) = delete;
    Event& operator=(const Event&) = delete;
    ~Event() { cudaEventDestroy(event_); }

    void record(cudaStream_t stream = nullptr) { check(cudaEventRecord(event_, stream), "record an event"); }
    bool has_happened() const {
        const cudaError_t error = cudaEventQuery(event_);
        if (error == cudaErrorNotReady) return false;
        check(error, "run");
        return true;
    }
    /// Waits for this event.
    double milliseconds_since(const Event& start) const {
        check(cudaEventSynchronize(event_), "run");
        float milliseconds = 0;
        check(cudaEventElapsedTime(&milliseconds, start.event_, event_), "read a time");
        return milliseconds;
    }

  private:
    cudaEvent_t event_ = nullptr;
};

}  // namespace ladder
