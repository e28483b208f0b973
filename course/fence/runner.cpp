/// @file
/// The program that runs one stage's library:
///
///     runner BACKEND LIBRARY
///
/// It runs the kernel on a CPU back-end and hands back memory as it is: what is right is decided elsewhere,
/// and nothing here knows it. It ends when `lab` closes the socket.

#include <malloc.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <list>
#include <mutex>
#include <string>
#include <type_traits>
#include <vector>

#include "course/fence/wire.h"
#include "harness/device/device.h"
#include "harness/device/ranks.h"
#include "harness/ladder/library.h"
#include "simt/fence.h"

namespace ladder {

std::unique_ptr<Device> open_cpu_device(Backend backend);  // harness/device/cpu_device.cpp

namespace {

using namespace wire;

void read_bytes(void* data, std::size_t bytes) {
    for (char* at = static_cast<char*>(data); bytes > 0;) {
        const ssize_t n = read(wire::socket, at, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) _exit(0);  // lab has no more to ask
        at += n;
        bytes -= static_cast<std::size_t>(n);
    }
}

void write_bytes(const void* data, std::size_t bytes) {
    for (const char* at = static_cast<const char*>(data); bytes > 0;) {
        const ssize_t n = write(wire::socket, at, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) _exit(0);
        at += n;
        bytes -= static_cast<std::size_t>(n);
    }
}

template <class T>
T receive() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value;
    read_bytes(&value, sizeof value);
    return value;
}

template <class T>
void send(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    write_bytes(&value, sizeof value);
}

Description describe(const Stage& stage, const std::string& error) {
    Description description;
    std::strncpy(description.error, error.c_str(), sizeof description.error - 1);
    description.number = stage.number;
    description.parent = stage.parent;
    description.pass = stage.pass;
    description.repeats_exactly = stage.repeats_exactly;
    description.batch_invariant = stage.batch_invariant;
    for (const Feature feature : stage.takes) description.takes |= 1u << static_cast<unsigned>(feature);
    description.chunks = stage.chunks;
    description.divides_rows = stage.divides_rows;
    description.products = static_cast<std::uint32_t>(stage.products);
    description.takes_e4m3 = stage.takes_e4m3;
    std::strncpy(description.stage_name, stage.name.c_str(), sizeof description.stage_name - 1);
    description.dims =
        static_cast<std::uint32_t>(std::min(stage.head_dims.size(), std::size(description.dim)));
    std::copy_n(stage.head_dims.begin(), description.dims, description.dim);
    description.has_workspace = stage.workspace_bytes != nullptr;
    description.has_counters = stage.counter_bytes != nullptr;
    return description;
}

/// Calls f, which runs the stage, and answers what came of it.
template <class F>
Outcome run(const Device& device, const simt::Machine& machine, F f) {
    simt::Options& options = simt::options();
    options = machine;
    std::vector<std::uint64_t> copies_of_blocks;
    options.on_block = [&](std::uint64_t number, const simt::Counters& work) {
        static std::mutex mutex;
        const std::lock_guard lock(mutex);
        if (number >= most_blocks) return;
        copies_of_blocks.resize(std::max<std::size_t>(copies_of_blocks.size(), number + 1));
        copies_of_blocks[number] += work.async_copies + work.bulk_loads;  // of all launches
    };

    Ran ran;
    std::string text;
    try {
        f();
    } catch (const CannotRun& error) {
        ran.outcome = Outcome::cannot_run;
        text = error.what();
    } catch (const std::exception& error) {
        ran.outcome = Outcome::check_failed;
        text = error.what();
    }
    text.resize(std::min<std::size_t>(text.size(), most_text));
    ran.text = static_cast<std::uint32_t>(text.size());
    ran.blocks = copies_of_blocks.size();
    ran.counters = device.counters();
    send(ran);
    write_bytes(text.data(), text.size());
    write_bytes(copies_of_blocks.data(), copies_of_blocks.size() * sizeof(std::uint64_t));
    return ran.outcome;
}

void run_ranks(Device& device, const Stage& stage) {
    const auto order = receive<RunRanks>();
    std::vector<Problem> problems;
    for (std::uint32_t rank = 0; rank < order.ranks; ++rank) problems.push_back(receive<Problem>());
    const Outcome outcome =
        run(device, order.machine, [&] { device.run_ranks(stage, problems, order.whole); });
    if (outcome != Outcome::ok) return;
    for (const Traffic& traffic : device.traffic()) {
        Did did{traffic.messages, traffic.bytes, traffic.exposed_bytes,
                std::min<std::size_t>(traffic.products.size(), most_ranks)};
        std::copy_n(traffic.products.begin(), did.steps, did.products);
        send(did);
    }
}

[[noreturn]] void serve(const std::string& backend, const std::string& library) {
    const auto device = open_cpu_device(backend == "checked" ? Backend::checked : Backend::cpu);
    Stage stage;
    std::string error;
    try {
        stage = load_library(library);
    } catch (const CheckFailed& failure) {
        error = failure.what();
    }
    std::list<std::string> names;  // allocations refer to them
    for (;;) {
        const auto header = receive<Header>();
        void* const memory = reinterpret_cast<void*>(header.address);
        switch (header.request) {
            case Request::describe:
                send(describe(stage, error));
                break;
            case Request::workspace: {
                const auto of = receive<WorkspaceOf>();
                const RingToCome of_ranks(of.ranks);
                const auto ask = [&](const auto& bytes) {
                    std::uint64_t asked = 0;
                    simt::run_host_side(reinterpret_cast<const void*>(stage.run), [&] {
                        if (bytes) asked = bytes(of.shape, of.sm_count);
                    });
                    return asked;
                };
                send(WorkspaceBytes{ask(stage.workspace_bytes), ask(stage.counter_bytes)});
                break;
            }
            case Request::allocate:
                names.emplace_back(header.name);
                send(reinterpret_cast<std::uint64_t>(
                    device->allocate(header.bytes, names.back().c_str(), header.writable)));
                break;
            case Request::release:
                device->release(memory);
                break;
            case Request::upload:
                read_bytes(memory, header.bytes);
                break;
            case Request::download:
                write_bytes(memory, header.bytes);
                break;
            case Request::run: {
                const auto order = receive<Run>();
                run(*device, order.machine, [&] { device->run(stage, order.problem); });
                break;
            }
            case Request::run_ranks:
                run_ranks(*device, stage);
                break;
        }
    }
}

}  // namespace
}  // namespace ladder

int main(int argc, char** argv) {
    // In the sandbox no process can send a signal, and abort() would end as a crash of another kind.
    std::set_terminate([] {
        const std::string why = ladder::what_was_thrown() + "\n";
        [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, why.data(), why.size());
        _exit(ladder::wire::terminated);
    });
    mallopt(M_ARENA_MAX, 1);    // each thread's own would take 64 MB of the addresses that a sandbox leaves
    pthread_attr_t attributes;  // and its stack 8 MB, although kernels run on stacks of their own
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 1 << 20);
    pthread_setattr_default_np(&attributes);
    if (argc == 3) ladder::serve(argv[1], argv[2]);
    return 2;
}
