#include "simt/image.h"

#include <fmt/core.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <string_view>

namespace simt {
namespace {

/// Calls visit(image) for the program and every library, until it returns true.
template <class Visit>
void visit_images(Visit visit) {
    dl_iterate_phdr([](dl_phdr_info* info, std::size_t,
                       void* result) { return (*static_cast<Visit*>(result))(*info) ? 1 : 0; },
                    &visit);
}

/// The segments of one kind.
template <class Visit>
void visit_segments(const dl_phdr_info& image, unsigned type, Visit visit) {
    for (int i = 0; i < image.dlpi_phnum; ++i) {
        if (image.dlpi_phdr[i].p_type == type) visit(image.dlpi_phdr[i]);
    }
}

/// The segment of this image that holds the address, or nothing.
Range segment_of(const dl_phdr_info& image, const void* address) {
    Range found;
    visit_segments(image, PT_LOAD, [&](const auto& segment) {
        const Range memory{reinterpret_cast<const std::byte*>(image.dlpi_addr + segment.p_vaddr),
                           segment.p_memsz};
        if (memory.contains(address, 1)) found = memory;
    });
    return found;
}

/// "'it'\''s'": one word of a shell command.
std::string quoted(std::string_view text) {
    std::string word = "'";
    for (const char c : text) word += c == '\'' ? "'\\''" : std::string(1, c);
    return word + "'";
}

}  // namespace

Range segment_of(const void* address) {
    Range found;
    visit_images([&](const dl_phdr_info& image) {
        found = segment_of(image, address);
        return found.bytes > 0;
    });
    return found;
}

Range constants_at(const void* address) {
    Range found;
    visit_images([&](const dl_phdr_info& image) {
        const Range segment = segment_of(image, address);
        visit_segments(image, PT_LOAD, [&](const auto& load) {
            const bool is_it =
                reinterpret_cast<const std::byte*>(image.dlpi_addr + load.p_vaddr) == segment.begin;
            if (is_it && (load.p_flags & PF_W) == 0) found = segment;
        });
        // Tables of addresses, which are written while they are loaded.
        visit_segments(image, PT_GNU_RELRO, [&](const auto& relocated) {
            const Range memory{reinterpret_cast<const std::byte*>(image.dlpi_addr + relocated.p_vaddr),
                               relocated.p_memsz};
            if (memory.contains(address, 1)) found = memory;
        });
        return segment.bytes > 0;
    });
    return found;
}

std::vector<Range> thread_local_memory() {
    std::vector<Range> memory;
    visit_images([&](const dl_phdr_info& image) {
        if (image.dlpi_tls_data == nullptr) return false;
        visit_segments(image, PT_TLS, [&](const auto& segment) {
            memory.push_back({static_cast<const std::byte*>(image.dlpi_tls_data), segment.p_memsz});
        });
        return false;
    });
    return memory;
}

std::string source_of(std::uintptr_t caller) {
    std::string file = fmt::format("/proc/{}/exe", getpid());
    std::uintptr_t offset = caller;
    visit_images([&](const dl_phdr_info& image) {
        if (segment_of(image, reinterpret_cast<const void*>(caller)).bytes == 0) return false;
        offset -= image.dlpi_addr;
        if (image.dlpi_name[0] != '\0') file = image.dlpi_name;  // the program has no name here
        return true;
    });
    // The return address is behind the call; one byte before it is inside.
    const std::string command = fmt::format("addr2line -i -e {} {:#x} 2>/dev/null", quoted(file), offset - 1);

    std::string source;
    if (FILE* frames = popen(command.c_str(), "r")) {
        std::array<char, 1024> line;
        while (std::fgets(line.data(), line.size(), frames) != nullptr) {
            std::string_view frame = line.data();
            frame = frame.substr(frame.find_last_of('/') + 1);
            frame = frame.substr(0, frame.find_first_of(" \n"));
            // The wrappers are inlined, so the kernel is the first frame outside the CUDA layer.
            if (source.empty() || source.starts_with("device.cuh") || source.starts_with("hopper.cuh") ||
                source.starts_with("cuda.h"))
                source = frame;
        }
        pclose(frames);
    }
    if (!source.empty() && source.find('?') == std::string::npos) return source;

    return fmt::format("code address {:#x}", offset);
}

}  // namespace simt
