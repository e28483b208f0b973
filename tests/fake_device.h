/// @file
/// A device that is a function.
#pragma once

#include <cstring>
#include <functional>
#include <map>
#include <new>
#include <string>
#include <utility>

#include "harness/device/device.h"
#include "tests/catch.h"

namespace ladder::test {

/// Host memory that runs any function as its stage.
class FakeDevice : public Device {
  public:
    explicit FakeDevice(std::function<void(const Problem&)> stage) : stage_(std::move(stage)) {}
    ~FakeDevice() override { CHECK(allocations.empty()); }

    Backend backend() const override { return kind; }
    std::string description() const override { return "fake device"; }
    int sm_count() const override { return 4; }
    int compute_capability() const override { return 80; }
    std::size_t free_memory() const override { return memory; }
    void* allocate(std::size_t bytes, const char*, bool) override {
        constexpr std::size_t beyond = 1 << 20;  // what wrong strides reach is other memory of the device
        void* data = ::operator new(bytes + beyond, std::align_val_t(256));
        allocations[data] = bytes;
        return data;
    }
    void release(void* data) override {
        allocations.erase(data);
        ::operator delete(data, std::align_val_t(256));
    }
    void upload(void* device, const void* host, std::size_t bytes) override {
        std::memcpy(device, host, bytes);
    }
    void download(void* host, const void* device, std::size_t bytes) override {
        std::memcpy(host, device, bytes);
    }
    void run(const Stage&, const Problem& problem) override {
        ++runs;
        stage_(problem);
    }

    Backend kind = Backend::cpu;
    std::size_t memory = std::size_t{1} << 30;
    int runs = 0;
    std::map<void*, std::size_t> allocations;

  private:
    std::function<void(const Problem&)> stage_;
};

}  // namespace ladder::test
