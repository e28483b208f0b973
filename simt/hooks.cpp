/// @file
/// What -fsanitize=thread makes the kernels call. The sanitizer's own runtime is not linked.

#include <cstring>

#include "simt/block.h"

namespace {

__attribute__((always_inline)) inline void plain_access(const void* address, std::size_t bytes, bool write) {
    if (simt::Block* block = simt::running_block; block != nullptr) {
        block->check(address, bytes, write, simt::Via::plain,
                     reinterpret_cast<std::uintptr_t>(__builtin_return_address(0)));
    }
}

}  // namespace

#define SIMT_HOOKS(bytes)                               \
    void __tsan_read##bytes(void* address) {            \
        plain_access(address, bytes, false);            \
    }                                                   \
    void __tsan_write##bytes(void* address) {           \
        plain_access(address, bytes, true);             \
    }                                                   \
    void __tsan_unaligned_read##bytes(void* address) {  \
        plain_access(address, bytes, false);            \
    }                                                   \
    void __tsan_unaligned_write##bytes(void* address) { \
        plain_access(address, bytes, true);             \
    }

extern "C" {
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
void* __tsan_memcpy(void* to, const void* from, std::size_t bytes) {
    plain_access(from, bytes, false);
    plain_access(to, bytes, true);
    return std::memcpy(to, from, bytes);
}
void* __tsan_memmove(void* to, const void* from, std::size_t bytes) {
    plain_access(from, bytes, false);
    plain_access(to, bytes, true);
    return std::memmove(to, from, bytes);
}
void* __tsan_memset(void* to, int value, std::size_t bytes) {
    plain_access(to, bytes, true);
    return std::memset(to, value, bytes);
}

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
}
