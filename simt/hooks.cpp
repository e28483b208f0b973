/// @file
/// What -fsanitize=thread and -fsanitize-coverage make kernels call. Their own runtimes are not linked.

#include <cstring>

#include "simt/block.h"

namespace {

__attribute__((always_inline)) inline void plain_access(const void* address, std::size_t bytes, bool write) {
    if (simt::Block* block = simt::running_block; block != nullptr) {
        block->access_plainly(address, bytes, write, SIMT_CALLER);
    }
}

}  // namespace

#define SIMT_HOOK(name, bytes, write)    \
    void __tsan_##name##bytes(void* p) { \
        plain_access(p, bytes, write);   \
    }
#define SIMT_HOOKS(bytes)                   \
    SIMT_HOOK(read, bytes, false)           \
    SIMT_HOOK(write, bytes, true)           \
    SIMT_HOOK(unaligned_read, bytes, false) \
    SIMT_HOOK(unaligned_write, bytes, true)

#define SIMT_MOVE(prefix, name)                                         \
    void* prefix##name(void* to, const void* from, std::size_t bytes) { \
        plain_access(from, bytes, false);                               \
        plain_access(to, bytes, true);                                  \
        return std::name(to, from, bytes);                              \
    }
#define SIMT_MEMORY(prefix)                                        \
    SIMT_MOVE(prefix, memcpy)                                      \
    SIMT_MOVE(prefix, memmove)                                     \
    void* prefix##memset(void* to, int value, std::size_t bytes) { \
        plain_access(to, bytes, true);                             \
        return std::memset(to, value, bytes);                      \
    }

extern "C" {
// What -fsanitize-coverage=trace-cmp makes kernels call: of these, comparisons of two numbers that only the
// run knows, such as a key and the number of keys, say which tiles are masked.
void __sanitizer_cov_trace_cmp4(std::uint32_t a, std::uint32_t b) {
    // Not so two small ones: they are places of registers in a fragment, such as c / 2 % 2 and a row's.
    if (a < 4 && b < 4) return;
    simt::Block* block = simt::running_block;
    if (block != nullptr) block->masked_tiles.compare(block->context.thread());
}
void __sanitizer_cov_trace_cmp1(std::uint8_t, std::uint8_t) {}
void __sanitizer_cov_trace_cmp2(std::uint16_t, std::uint16_t) {}
void __sanitizer_cov_trace_cmp8(std::uint64_t, std::uint64_t) {}
void __sanitizer_cov_trace_const_cmp1(std::uint8_t, std::uint8_t) {}
void __sanitizer_cov_trace_const_cmp2(std::uint16_t, std::uint16_t) {}
void __sanitizer_cov_trace_const_cmp4(std::uint32_t, std::uint32_t) {}
void __sanitizer_cov_trace_const_cmp8(std::uint64_t, std::uint64_t) {}
void __sanitizer_cov_trace_cmpf(float, float) {}
void __sanitizer_cov_trace_cmpd(double, double) {}
void __sanitizer_cov_trace_switch(std::uint64_t, std::uint64_t*) {}
void __sanitizer_cov_trace_pc() {}

SIMT_HOOKS(1)
SIMT_HOOKS(2)
SIMT_HOOKS(4)
SIMT_HOOKS(8)
SIMT_HOOKS(16)

void __tsan_read_range(void* address, std::size_t bytes) {
    plain_access(address, bytes, false);
}
void __tsan_write_range(void* address, std::size_t bytes) {
    plain_access(address, bytes, true);
}

// clang++ calls a sanitizer's functions in place of the C library's; of g++'s calls the linker makes others.
SIMT_MEMORY(__tsan_)
SIMT_MEMORY(__wrap_)
int __wrap_memcmp(const void* a, const void* b, std::size_t bytes) {
    plain_access(a, bytes, false);
    plain_access(b, bytes, false);
    return std::memcmp(a, b, bytes);
}
std::size_t __wrap_strlen(const char* text) {
    const std::size_t length = std::strlen(text);
    plain_access(text, length + 1, false);
    return length;
}

// A static variable of a function asks whether it has been set up. On a GPU a kernel's cannot be at run time.
std::uint8_t __tsan_atomic8_load(const volatile std::uint8_t* guard, int) {
    if (simt::running_block != nullptr) {
        simt::running_block->context.fail(
            simt::Report::Kind::host_access,
            "a static variable that is set up when a kernel comes to it, at {}: no GPU has that",
            SIMT_CALLER);
    }
    return __atomic_load_n(guard, __ATOMIC_ACQUIRE);
}

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
}
