#include "course/fence/remote_device.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <string_view>
#include <utility>

#include "course/fence/inspect.h"
#include "course/fence/sandbox.h"
#include "course/fence/wire.h"
#include "harness/base/built.h"
#include "harness/ladder/library.h"
#include "stages/ring.h"

namespace ladder {

std::unique_ptr<Device> open_cpu_device(Backend backend);  // harness/device/cpu_device.cpp

namespace {

using Clock = std::chrono::steady_clock;

/// What no kernel needs for the problems of a check. More would cost each of some hundred runs its time.
constexpr std::size_t most_workspace = std::size_t{65} << 20;
constexpr std::uint64_t most_blocks_of_a_launch = 1 << 17;

/// The machine that a run is to play.
simt::Machine machine() {
    simt::Machine machine = simt::options();
    machine.most_blocks = most_blocks_of_a_launch;
    return machine;
}

/// A program in the sandbox cannot ask where in the source its code is from: what it says for that is
/// replaced.
std::string with_sources(std::string text, const std::filesystem::path& library) {
    static constexpr std::string_view address = "code address 0x";
    std::size_t at = 0;
    for (int replaced = 0; replaced < 4 && (at = text.find(address, at)) != text.npos; ++replaced) {
        const char *first = text.data() + at + address.size(), *last = text.data() + text.size();
        std::uint64_t caller = 0;
        const auto [end, error] = std::from_chars(first, last, caller, 16);
        // The return address is past the call; one byte before it is inside.
        const std::string source =
            error == std::errc() ? source_line(library, fmt::format("{:#x}", caller - 1)) : "?";
        text.replace(at, static_cast<std::size_t>(end - (text.data() + at)), source);
        at += source.size();
    }
    return text;
}

/// Bytes of what kernels must store: O and L, or dQ, dK and dV.
std::uint64_t least_stored(const Problem& p) {
    const std::uint64_t rows = std::uint64_t(p.B) * p.H * p.Nq, keys = std::uint64_t(p.B) * p.Hkv * p.Nk;
    const bool forward = p.dO.data == nullptr;
    return forward ? rows * (2 * p.d + 4) : (rows + 2 * keys) * 2 * p.d;
}

}  // namespace

/// The process and the socket to it.
struct RemoteDevice::Connection {
    std::unique_ptr<LimitedProcess> process;
    int socket = -1;

    ~Connection() { close(socket); }
};

RemoteDevice::RemoteDevice(std::filesystem::path library, Backend backend, Limits limits, double run_limit_s)
    : library_(std::move(library)),
      backend_(backend),
      limits_(std::move(limits)),
      run_limit_s_(run_limit_s),
      local_(open_cpu_device(backend)) {}

RemoteDevice::~RemoteDevice() = default;

void RemoteDevice::start() {
    if (connection_) return;
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        throw CannotRun(fmt::format("cannot start another process: {}", std::strerror(errno)));
    auto connection = std::make_unique<Connection>();
    connection->socket = ends[0];
    try {
        connection->process = std::make_unique<LimitedProcess>(
            std::vector<std::string>{built_in + std::string("/runner"), name(backend_), library_.string()},
            limits_, ends[1]);
    } catch (...) {
        close(ends[1]);
        throw;
    }
    close(ends[1]);
    connection_ = std::move(connection);
    generation_ += 1;
}

void RemoteDevice::fail(const std::string& what) {
    const std::unique_ptr<Connection> connection = std::move(connection_);
    const std::string how = connection->process->wait(what.empty() ? 2 : 0);
    last_output_ = connection->process->output();
    if (!what.empty()) throw CheckFailed(what);
    if (how == fmt::format("exit code {}", wire::terminated)) {
        const std::string said = last_output_.substr(0, last_output_.find_last_not_of('\n') + 1);
        throw CheckFailed("the program ended with an exception that it did not catch: " +
                          said.substr(said.rfind('\n') + 1).substr(0, 200));
    }
    throw CheckFailed(how.empty() ? "the program ended in the middle of a run, with exit code 0"
                                  : "the program crashed in the middle of a run: " + how);
}

/// One message, from its start.
struct RemoteDevice::Turn {
    Clock::time_point deadline;
    double processors_before;

    explicit Turn(const RemoteDevice& device)
        : deadline(std::min<Clock::time_point>(
              device.limits_.deadline,
              Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(
                                 clock_over_processors * device.run_limit_s_)))),
          processors_before(device.processor_s()) {}
};

void RemoteDevice::await(short event, const Turn& turn) {
    for (pollfd ready{connection_->socket, event, 0}; poll(&ready, 1, 100) <= 0;) {
        const bool in_time = Clock::now() < turn.deadline;
        if (in_time && processor_s() - turn.processors_before < run_limit_s_) continue;
        hangs_ += 1;
        if (!in_time && turn.deadline == limits_.deadline) fail("stopped: the time for all checks is over");
        fail(event == POLLIN
                 ? fmt::format("the kernel did not end within {:g} s: an endless loop?", run_limit_s_)
                 : "the program does not listen any more");
    }
}

void RemoteDevice::send(const void* data, std::size_t bytes) {
    const Turn turn(*this);
    for (const char* at = static_cast<const char*>(data); bytes > 0;) {
        await(POLLOUT, turn);
        const ssize_t n = ::send(connection_->socket, at, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (n <= 0) fail("");
        at += n;
        bytes -= static_cast<std::size_t>(n);
    }
}

void RemoteDevice::receive(void* data, std::size_t bytes) {
    const Turn turn(*this);
    for (char* at = static_cast<char*>(data); bytes > 0;) {
        await(POLLIN, turn);
        const ssize_t n = recv(connection_->socket, at, bytes, MSG_DONTWAIT);
        if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (n <= 0) fail("");
        at += n;
        bytes -= static_cast<std::size_t>(n);
    }
}

Stage RemoteDevice::stage() {
    start();
    send_value(wire::Header{.request = wire::Request::describe});
    auto description = receive_value<wire::Description>();
    if (description.error[0] != '\0') {
        description.error[sizeof description.error - 1] = '\0';
        throw CheckFailed(description.error);
    }
    description.stage_name[sizeof description.stage_name - 1] = '\0';
    Stage stage;
    stage.number = description.number;
    stage.name = description.stage_name;
    stage.run = [](const Problem&) { throw CannotRun("this stage runs in a process of its own"); };
    stage.parent = description.parent;
    stage.pass = description.pass == Pass::backward ? Pass::backward : Pass::forward;
    stage.repeats_exactly = description.repeats_exactly;
    stage.batch_invariant = description.batch_invariant;
    stage.chunks = std::clamp(description.chunks, 0, 2);
    stage.divides_rows = description.divides_rows;
    const auto last = static_cast<std::uint32_t>(Products::of_8_rotated);
    stage.products = static_cast<Products>(std::min(description.products, last));
    stage.takes_e4m3 = description.takes_e4m3;
    for (unsigned k = 0; k < 32; ++k) {
        if (description.takes >> k & 1) stage.takes.push_back(static_cast<Feature>(k));
    }
    const std::uint32_t dims = std::min<std::uint32_t>(description.dims, std::size(description.dim));
    stage.head_dims.assign(description.dim, description.dim + dims);
    const auto ask = [this](const Shape& shape, int sm_count) {
        start();
        send_value(wire::Header{.request = wire::Request::workspace});
        send_value(wire::WorkspaceOf{shape, sm_count, ring() ? ring()->ranks() : 1});
        const auto bytes = receive_value<wire::WorkspaceBytes>();
        if (bytes.all > most_workspace)
            throw CheckFailed(fmt::format("workspace_bytes() asks for {} bytes; at most {} here", bytes.all,
                                          most_workspace));
        if (bytes.counters > bytes.all) {
            throw CheckFailed(fmt::format("counter_bytes() is {}, more than workspace_bytes(), {}",
                                          bytes.counters, bytes.all));
        }
        return bytes;
    };
    if (description.has_workspace)
        stage.workspace_bytes = [=](const Shape& shape, int sms) { return ask(shape, sms).all; };
    if (description.has_counters)
        stage.counter_bytes = [=](const Shape& shape, int sms) { return ask(shape, sms).counters; };
    return stage;
}

int RemoteDevice::sm_count() const {
    return local_->sm_count();
}
int RemoteDevice::compute_capability() const {
    return local_->compute_capability();
}
std::size_t RemoteDevice::free_memory() const {
    return local_->free_memory();
}

void* RemoteDevice::allocate(std::size_t bytes, const char* name, bool writable) {
    start();
    wire::Header header{.request = wire::Request::allocate, .bytes = bytes, .writable = writable};
    std::strncpy(header.name, name, sizeof header.name - 1);
    send_value(header);
    const auto address = receive_value<std::uint64_t>();
    const auto memory = reinterpret_cast<void*>(address);
    allocations_[memory] = generation_;
    return memory;
}

void RemoteDevice::release(void* memory) {
    const auto found = allocations_.find(memory);
    if (found == allocations_.end()) return;
    const bool there = connection_ && found->second == generation_;
    allocations_.erase(found);
    if (!there) return;  // it went with its process
    try {
        send_value(wire::Header{.request = wire::Request::release,
                                .address = reinterpret_cast<std::uint64_t>(memory)});
    } catch (const CheckFailed&) {  // owners release in their destructors; the next request will say so
    }
}

void RemoteDevice::require_alive() {
    if (!connection_) throw CheckFailed("the program has ended");
}

void RemoteDevice::upload(void* device, const void* host, std::size_t bytes) {
    require_alive();
    send_value(wire::Header{.request = wire::Request::upload,
                            .address = reinterpret_cast<std::uint64_t>(device),
                            .bytes = bytes});
    send(host, bytes);
}

void RemoteDevice::download(void* host, const void* device, std::size_t bytes) {
    require_alive();
    send_value(wire::Header{.request = wire::Request::download,
                            .address = reinterpret_cast<std::uint64_t>(device),
                            .bytes = bytes});
    receive(host, bytes);
}

void RemoteDevice::run(const Stage& stage, const Problem& problem) {
    require_alive();
    send_value(wire::Header{.request = wire::Request::run});
    send_value(wire::Run{problem, machine()});
    const bool forward = problem.dO.data == nullptr;
    receive_outcome(stage, least_stored(problem), forward ? "O and L" : "dQ, dK and dV");
}

void RemoteDevice::run_ranks(const Stage& stage, const std::vector<Problem>& problems, const Shape& whole) {
    require_alive();
    const auto ranks = static_cast<std::uint32_t>(problems.size());
    if (ranks > wire::most_ranks) throw CannotRun(fmt::format("no more than {} ranks", wire::most_ranks));
    send_value(wire::Header{.request = wire::Request::run_ranks});
    send_value(wire::RunRanks{ranks, whole, machine()});
    std::uint64_t least = 0;
    for (const Problem& problem : problems) {
        send_value(problem);
        least += least_stored(problem);
    }
    receive_outcome(stage, least, "O and L");
    traffic_.clear();
    for (const Problem& problem [[maybe_unused]] : problems) {
        const auto did = receive_value<wire::Did>();
        const auto steps = std::min<std::uint64_t>(did.steps, wire::most_ranks);
        traffic_.push_back(
            {did.messages, did.bytes, did.exposed_bytes, {did.products, did.products + steps}});
    }
}

void RemoteDevice::receive_outcome(const Stage& stage, std::uint64_t least, const char* what) {
    const auto ran = receive_value<wire::Ran>();
    if (ran.text > wire::most_text || ran.blocks > wire::most_blocks)
        fail("the program's answer makes no sense");
    std::string text(ran.text, '\0');
    receive(text.data(), text.size());
    text = with_sources(std::move(text), library_);
    copies_of_blocks_.resize(ran.blocks);
    receive(copies_of_blocks_.data(), ran.blocks * sizeof(std::uint64_t));
    counters_ = ran.counters;
    if (ran.outcome == wire::Outcome::cannot_run) throw CannotRun(text);
    if (ran.outcome != wire::Outcome::ok) throw CheckFailed(with_named_lines(text, stage.source));
    if (counters_.launches == 0) throw CheckFailed("no kernel was launched");
    if (counters_.global_store_bytes < least) {
        throw CheckFailed(fmt::format(
            "the kernels stored {} bytes, but {} alone are {}: some elements are never written, or not by "
            "store()",
            counters_.global_store_bytes, what, least));
    }
}

double RemoteDevice::processor_s() const {
    return connection_ ? connection_->process->processor_s() : 0;
}

std::string RemoteDevice::output() const {
    return connection_ ? connection_->process->output() : last_output_;
}

}  // namespace ladder
