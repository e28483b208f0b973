#include "simt/image.h"

#include <fmt/core.h>
#include <link.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <span>
#include <string_view>

namespace simt {
namespace {

/// Calls visit(image, segment, memory) for each segment of the program and of every library.
template <class Visit>
void visit_segments(Visit visit) {
    const auto visit_image = [](dl_phdr_info* image, std::size_t, void* data) {
        for (const auto& segment : std::span(image->dlpi_phdr, image->dlpi_phnum)) {
            (*static_cast<Visit*>(data))(
                *image, segment,
                Range{reinterpret_cast<const std::byte*>(image->dlpi_addr + segment.p_vaddr),
                      segment.p_memsz});
        }
        return 0;
    };
    dl_iterate_phdr(visit_image, &visit);
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
    visit_segments([&](const auto&, const auto& segment, const Range& memory) {
        if (segment.p_type == PT_LOAD && memory.contains(address)) found = memory;
    });
    return found;
}

Range constants_at(const void* address) {
    Range found;
    visit_segments([&](const auto&, const auto& segment, const Range& memory) {
        const bool is_read_only = segment.p_type == PT_LOAD && (segment.p_flags & PF_W) == 0;
        const bool is_relocated =
            segment.p_type == PT_GNU_RELRO;  // tables of addresses, written while loaded
        if ((is_read_only || is_relocated) && memory.contains(address)) found = memory;
    });
    return found;
}

std::vector<Range> thread_local_memory() {
    std::vector<Range> memory;
    visit_segments([&](const auto& image, const auto& segment, const Range&) {
        if (segment.p_type == PT_TLS && image.dlpi_tls_data != nullptr)
            memory.push_back({static_cast<const std::byte*>(image.dlpi_tls_data), segment.p_memsz});
    });
    return memory;
}

std::string to_string(Site site) {
    const std::string_view path = site.file;
    return fmt::format("{}:{}", path.substr(path.find_last_of('/') + 1), site.line);
}

std::string to_string(Caller caller) {
    std::string file = fmt::format("/proc/{}/exe", getpid());
    std::uintptr_t offset = caller.address;
    visit_segments([&](const auto& image, const auto& segment, const Range& memory) {
        if (segment.p_type != PT_LOAD || !memory.contains(reinterpret_cast<const void*>(caller.address)))
            return;
        offset = caller.address - image.dlpi_addr;
        if (image.dlpi_name[0] != '\0') file = image.dlpi_name;  // the program has no name here
    });
    // The return address is past the call; one byte before it is inside.
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
