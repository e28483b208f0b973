#include "harness/device/nccl_group.h"

#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "stages/launch.h"

namespace ladder {
namespace {

/// Of nccl.h, what is called: the build needs no NCCL.
struct Nccl {
    using Comm = void*;
    static constexpr int ok = 0, bytes = 0, floats = 7,
                         sum = 0;  // ncclSuccess, ncclInt8, ncclFloat32, ncclSum

    int (*init_all)(Comm*, int count, const int* gpus);
    int (*abort)(Comm);
    int (*destroy)(Comm);
    int (*async_error)(Comm, int*);
    int (*group_start)();
    int (*group_end)();
    int (*send)(const void*, std::size_t, int type, int peer, Comm, cudaStream_t);
    int (*receive)(void*, std::size_t, int type, int peer, Comm, cudaStream_t);
    int (*all_gather)(const void*, void*, std::size_t, int type, Comm, cudaStream_t);
    int (*all_reduce)(const void*, void*, std::size_t, int type, int operation, Comm, cudaStream_t);
    const char* (*error_string)(int);

    /// Throws CannotRun if it cannot be loaded.
    static const Nccl& loaded() {
        static const Nccl nccl;
        return nccl;
    }
    void check(int error, const char* doing) const {
        if (error != ok) throw CheckFailed(std::string(doing) + ": NCCL: " + error_string(error));
    }

  private:
    Nccl() {
        setenv("NCCL_NVLS_ENABLE", "0", 1);  // NVLink multicast: these messages have one receiver each
        void* library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
        if (library == nullptr)
            throw CannotRun(std::string("several GPUs need NCCL, whose folder LD_LIBRARY_PATH can name: ") +
                            dlerror());
        const auto find = [&](auto& function, const char* name) {
            function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
            if (function == nullptr) throw CannotRun(std::string("libnccl.so.2 has no ") + name);
        };
        find(init_all, "ncclCommInitAll");
        find(abort, "ncclCommAbort");
        find(destroy, "ncclCommDestroy");
        find(async_error, "ncclCommGetAsyncError");
        find(group_start, "ncclGroupStart");
        find(group_end, "ncclGroupEnd");
        find(send, "ncclSend");
        find(receive, "ncclRecv");
        find(all_gather, "ncclAllGather");
        find(all_reduce, "ncclAllReduce");
        find(error_string, "ncclGetErrorString");
    }
};

}  // namespace

/// One rank's part of the group, on its GPU
struct NcclGroup::Member {
    explicit Member(int rank) : gpu(rank) {
        const CurrentGpu current(gpu);
        int least = 0, greatest = 0;
        check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "ask for priorities");
        check(cudaStreamCreateWithFlags(&kernels, cudaStreamNonBlocking), "create a stream");
        // A message's kernel takes its multiprocessors before the next kernel takes them all.
        check(cudaStreamCreateWithPriority(&messages, cudaStreamNonBlocking, greatest), "create a stream");
        for (cudaEvent_t* event : {&computed, &sending, &arrived})
            check(cudaEventCreateWithFlags(event, cudaEventDisableTiming), "create an event");
        check(cudaMalloc(&number, sizeof(float)), "allocate a number");
        check(cudaMemset(number, 0, sizeof(float)), "clear a number");
    }
    ~Member() {
        const CurrentGpu current(gpu);
        if (comm != nullptr) Nccl::loaded().destroy(comm);
        for (cudaEvent_t event : {computed, sending, arrived}) cudaEventDestroy(event);
        for (cudaStream_t stream : {kernels, messages}) cudaStreamDestroy(stream);
        cudaFree(number);
    }

    const int gpu;
    Nccl::Comm comm = nullptr;
    cudaStream_t kernels = nullptr, messages = nullptr;
    cudaEvent_t computed = nullptr, sending = nullptr, arrived = nullptr;
    float* number = nullptr;                           ///< what align() adds up
    std::optional<std::vector<Message>> started = {};  ///< and not yet handed to NCCL
    struct Parts {
        std::byte* data;
        std::size_t bytes;
    };
    std::optional<Parts> gathering = {};  ///< the same of parts of all ranks
    std::uint64_t rounds = 0;             ///< of messages that have been handed to NCCL
};

/// Hands all ranks' messages of a round to NCCL together, once each has started its own: no rank is left to
/// wait on its GPU for one that never comes.
class NcclRing final : public Ring {
  public:
    NcclRing(NcclGroup& group, Turns& turns, const Shape& whole, int rank)
        : group_(group), turns_(turns), whole_(whole), rank_(rank), own_(*group.members_[rank]) {}

    int rank() const override { return rank_; }
    int ranks() const override { return group_.ranks(); }
    int Nq() const override { return whole_.Nq; }
    int Nk() const override { return whole_.Nk; }

    void start(std::initializer_list<Message> messages) override {
        if (in_flight_) throw CheckFailed("it starts a message before it has waited for the last one");
        own_.started = messages;
        in_flight_ = true;
        Traffic& traffic = group_.traffic_[rank_];
        traffic.messages += 1;
        for (const Message& m : messages) traffic.bytes += m.send_bytes;
        check(cudaEventRecord(own_.computed, own_.kernels), "record an event");
        const std::uint64_t round = own_.rounds + 1;
        if (all_have(&NcclGroup::Member::started)) group_.send_all();
        turns_.wait_until(rank_, [this, round] { return own_.rounds == round; });
        // The message's kernel is to start before the next one, which would leave it no multiprocessor.
        check(cudaStreamWaitEvent(own_.kernels, own_.sending), "wait for an event");
    }

    void wait() override {
        if (!in_flight_) throw CheckFailed("it waits for a message that it has not started");
        check(cudaStreamWaitEvent(own_.kernels, own_.arrived), "wait for an event");
        in_flight_ = false;
    }

    // In the stream of the kernels: it needs no event, and a kernel leaves it the multiprocessors.
    void all_gather(void* parts, std::size_t bytes) override {
        if (in_flight_) throw CheckFailed("it gathers parts before it has waited for its last message");
        own_.gathering = {static_cast<std::byte*>(parts), bytes};
        Traffic& traffic = group_.traffic_[rank_];
        traffic.messages += 1, traffic.bytes += bytes * (ranks() - 1);
        const std::uint64_t round = own_.rounds + 1;
        if (all_have(&NcclGroup::Member::gathering)) group_.gather_all();
        turns_.wait_until(rank_, [this, round] { return own_.rounds == round; });
    }

    void require_end() const {
        if (in_flight_) throw CheckFailed("it ends before it has waited for its last message");
    }

  private:
    template <class T>
    bool all_have(std::optional<T> NcclGroup::Member::*what) const {
        return std::all_of(group_.members_.begin(), group_.members_.end(),
                           [=](const auto& member) { return (*member.*what).has_value(); });
    }

    NcclGroup& group_;
    Turns& turns_;
    const Shape& whole_;
    const int rank_;
    NcclGroup::Member& own_;
    bool in_flight_ = false;
};

NcclGroup::NcclGroup(int ranks) {
    const Nccl& nccl = Nccl::loaded();
    std::vector<int> gpus;
    for (int rank = 0; rank < ranks; ++rank) {
        members_.push_back(std::make_unique<Member>(rank));
        gpus.push_back(rank);
    }
    std::vector<Nccl::Comm> comms(ranks);
    nccl.check(nccl.init_all(comms.data(), ranks, gpus.data()), "connect the GPUs");
    for (int rank = 0; rank < ranks; ++rank) members_[rank]->comm = comms[rank];
}

NcclGroup::~NcclGroup() = default;

cudaStream_t NcclGroup::stream(int rank) const {
    return members_[rank]->kernels;
}

void NcclGroup::align() {
    const Nccl& nccl = Nccl::loaded();
    nccl.check(nccl.group_start(), "start a group");
    for (const auto& m : members_) {
        nccl.check(nccl.all_reduce(m->number, m->number, 1, Nccl::floats, Nccl::sum, m->comm, m->kernels),
                   "align the ranks");
    }
    nccl.check(nccl.group_end(), "align the ranks");
}

void NcclGroup::send_all() {
    const Nccl& nccl = Nccl::loaded();
    const int P = ranks();
    for (int rank = 0; rank < P; ++rank) {
        require_same_sizes(*members_[(rank + P - 1) % P]->started, *members_[rank]->started, rank, P);
    }
    for (const auto& m : members_) {
        const CurrentGpu current(m->gpu);
        check(cudaStreamWaitEvent(m->messages, m->computed), "wait for an event");
        check(cudaEventRecord(m->sending, m->messages), "record an event");
    }
    nccl.check(nccl.group_start(), "start a group");
    for (int rank = 0; rank < P; ++rank) {
        const Member& m = *members_[rank];
        for (const Message& message : *m.started) {  // an empty one is none
            if (message.send_bytes > 0)
                nccl.check(nccl.send(message.send, message.send_bytes, Nccl::bytes, (rank + 1) % P, m.comm,
                                     m.messages),
                           "send");
            if (message.receive_bytes > 0)
                nccl.check(nccl.receive(message.receive, message.receive_bytes, Nccl::bytes,
                                        (rank + P - 1) % P, m.comm, m.messages),
                           "receive");
        }
    }
    nccl.check(nccl.group_end(), "send and receive");
    for (const auto& m : members_) {
        const CurrentGpu current(m->gpu);
        check(cudaEventRecord(m->arrived, m->messages), "record an event");
        m->started.reset();
        m->rounds += 1;
    }
}

void NcclGroup::gather_all() {
    const Nccl& nccl = Nccl::loaded();
    std::vector<std::size_t> of_ranks;
    for (const auto& m : members_) of_ranks.push_back(m->gathering->bytes);
    require_same_parts(of_ranks);
    nccl.check(nccl.group_start(), "start a group");
    for (const auto& m : members_) {
        const auto [data, bytes] = *m->gathering;  // in place: a rank's own part lies where it belongs
        nccl.check(nccl.all_gather(data + m->gpu * bytes, data, bytes, Nccl::bytes, m->comm, m->kernels),
                   "gather");
    }
    nccl.check(nccl.group_end(), "gather");
    for (const auto& m : members_) m->gathering.reset(), m->rounds += 1;
}

void NcclGroup::start(const std::function<void(const Problem&)>& run_stage,
                      const std::vector<Problem>& problems, const Shape& whole) {
    traffic_.assign(ranks(), {});
    for (const auto& m : members_) m->started.reset(), m->gathering.reset(), m->rounds = 0;
    Turns turns(ranks(), 1);
    turns.run([&](int rank) {
        const CurrentGpu current(rank);
        NcclRing own(*this, turns, whole, rank);
        ring() = &own;
        launch_stream() = members_[rank]->kernels;
        run_stage(problems[rank]);
        check(cudaGetLastError(), "launch");
        own.require_end();
    });
}

void NcclGroup::finish() {
    const Nccl& nccl = Nccl::loaded();
    for (bool all_done = false; !all_done;) {
        all_done = true;
        for (const auto& m : members_) {
            const CurrentGpu current(m->gpu);
            int state = Nccl::ok;
            cudaError_t error = cudaSuccess;
            for (cudaStream_t stream : {m->kernels, m->messages}) {
                const cudaError_t found = cudaStreamQuery(stream);
                if (found == cudaErrorNotReady) {
                    all_done = false;
                    cudaGetLastError();  // it is no error of a call to come
                } else if (found != cudaSuccess) {
                    error = found;
                }
            }
            if (error == cudaSuccess && m->comm != nullptr) nccl.async_error(m->comm, &state);
            if (error == cudaSuccess && state == Nccl::ok) continue;
            abort();
            const std::string rank =
                "rank " + std::to_string(m->gpu) + " of " + std::to_string(ranks()) + ": ";
            check(error, rank + "run");
            throw CheckFailed(rank + "NCCL: " + nccl.error_string(state));
        }
        if (!all_done) std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
}

/// Ends messages that wait on a GPU for one whose kernel crashed.
void NcclGroup::abort() {
    for (const auto& m : members_) {
        if (m->comm != nullptr) Nccl::loaded().abort(m->comm);
        m->comm = nullptr;
    }
}

}  // namespace ladder
