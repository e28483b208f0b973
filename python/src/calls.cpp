#include "python/src/calls.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <nlohmann/json.hpp>
#include <set>
#include <shared_mutex>
#include <system_error>
#include <tuple>
#include <utility>

#include "harness/base/file.h"
#include "harness/base/json.h"
#include "harness/base/limited_process.h"
#include "harness/base/parallel.h"
#include "harness/cases/inputs.h"
#include "harness/cases/verification_cases.h"
#include "harness/count/counting.h"
#include "harness/device/device.h"
#include "harness/device/workspace.h"
#include "harness/features/checks.h"
#include "harness/features/features.h"
#include "harness/ladder/ladder.h"
#include "harness/ladder/library.h"
#include "harness/ladder/words.h"
#include "harness/problem/shape.h"
#include "harness/time/fastest.h"
#include "harness/time/timing.h"
#include "harness/verify/all_cases.h"
#include "harness/verify/verdict.h"
#include "reference/dropout.h"
#include "stages/errors.h"
#include "stages/launch.h"
#ifdef LADDER_HAS_CPU
#    include "simt/fence.h"
#    include "simt/simt.h"
#endif
#ifdef LADDER_HAS_GPU
#    include <cuda_runtime_api.h>
#endif

namespace ladder::python {
namespace {

const OnStep silent = [](const std::string&, int, int) {};

/// A call of this library, until the end of its scope. A fork() waits for those in other threads and holds
/// new ones back, so that the child, which has none of these threads, finds no lock taken and nothing half
/// done.
class Call {
  public:
    Call() {
        if (depth()++ > 0) return;  // as part of another call
        const std::lock_guard entering(door);
        running.lock_shared();
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    ~Call() {
        if (--depth() == 0) running.unlock_shared();
    }

    static void let_forks_wait() {
        pthread_atfork(
            [] {
                if (forks_to_start_a_program) return;
                door.lock();  // a call that comes later waits, however many there are
                running.lock();
            },
            [] {
                if (forks_to_start_a_program) return;
                running.unlock();
                door.unlock();
            },
            [] {
                // The child's thread has another number than the one that locked them.
                new (&running) std::shared_mutex;
                new (&door) std::mutex;
            });
    }

  private:
    static int& depth() {
        thread_local int depth = 0;
        return depth;
    }

    inline static std::mutex door;
    inline static std::shared_mutex running;
};

Backend backend_of(const std::string& word) {
    for (const Backend backend : {Backend::cpu, Backend::checked, Backend::gpu}) {
        if (word == name(backend)) return backend;
    }
    throw BadUsage(fmt::format("there is no back-end '{}'; there are cpu, checked and gpu", word));
}

/// Each back-end is opened once: the GPU's takes a while.
Device& device_of(Backend backend) {
    static std::map<Backend, std::unique_ptr<Device>> open;
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    auto& device = open[backend];
    if (!device) device = open_device(backend);
    return *device;
}

std::function<bool()>& is_to_end() {
    static std::function<bool()> asked;
    return asked;
}

/// Notes Ctrl-C in the program's main thread, until the end of its scope, and lets it take its course. To ask
/// Python without a reason would be to wait for its lock, which a fork() may hold that waits for this call.
class CtrlC {
  public:
    CtrlC() {
        if (!is_main_) return;
        noted = false;
        sigaction(SIGINT, nullptr, &before);
        const bool is_ours_to_call = (before.sa_flags & SA_SIGINFO) == 0 && before.sa_handler != SIG_DFL &&
                                     before.sa_handler != SIG_IGN;
        struct sigaction action = before;
        action.sa_handler = [](int signal) {
            noted = true;
            before.sa_handler(signal);
        };
        if (is_ours_to_call) sigaction(SIGINT, &action, nullptr);
    }
    CtrlC(const CtrlC&) = delete;
    CtrlC& operator=(const CtrlC&) = delete;
    ~CtrlC() {
        if (is_main_) sigaction(SIGINT, &before, nullptr);
    }

    /// Since the last answer
    bool was_noted() const { return is_main_ && noted.exchange(false); }

  private:
    inline static std::atomic<bool> noted{false};
    inline static struct sigaction before {};
    const bool is_main_ = getpid() == gettid();
};

/// Runs compute(stop), one call at a time: the CPU back-ends have one state for the whole program. On these
/// it runs in a thread of its own, while the caller's asks whether the call is to end: then `stop` becomes
/// true, and the call throws Interrupted as soon as compute() has returned. A GPU is that of the caller's
/// thread.
void alone(Backend backend, const std::function<void(const std::atomic<bool>& stop)>& compute) {
    static std::timed_mutex mutex;
    constexpr auto pause = std::chrono::milliseconds(100);
    std::atomic<bool> stop{false};
    const auto work = [&] {
        std::unique_lock lock(mutex, std::defer_lock);
        while (!lock.try_lock_for(pause)) {
            if (stop) return;
        }
#ifdef LADDER_HAS_CPU
        const simt::KeptOptions kept;
        simt::options().stop = &stop;
#endif
        compute(stop);
    };
    if (backend == Backend::gpu) return work();
    const CtrlC ctrl_c;
    std::future<void> done;
    try {
        done = std::async(std::launch::async, work);
    } catch (const std::system_error&) {  // there is no thread left
        return work();
    }
    while (done.wait_for(pause) != std::future_status::ready) {
        if (!stop && ctrl_c.was_noted() && is_to_end() && is_to_end()()) stop = true;
    }
    if (!stop) return done.get();
    throw Interrupted();
}

/// Progress that ends the work between two steps.
OnStep unless(const std::atomic<bool>& stop) {
    return [&stop](const std::string&, int, int) {
        if (stop) throw Interrupted();
    };
}

std::vector<std::int64_t> list(const Axes& axes) {
    return {axes.begin(), axes.end()};
}

/// Such tensors as kernels take: see View. `step` elements are 16 bytes, which kernels read at once.
View view_of(const char* tensor, const Tensor& x, int step = 8) {
    const auto [B, heads, N, d] = x.axes;
    const auto fail = [&](const std::string& what) { throw BadUsage(fmt::format("{}: {}", tensor, what)); };
    if (x.data % 16 != 0) fail("it must begin at a multiple of 16 bytes");
    if (x.strides[3] != 1 && d > 1)
        fail("its last axis must be contiguous: the elements of a row side by side");
    View view{reinterpret_cast<void*>(x.data), x.strides[0], x.strides[1], x.strides[2]};
    // No loop goes along an axis of one element, and its stride may be anything.
    if (N == 1) view.row = d;
    if (heads == 1) view.head = N * view.row;
    if (B == 1) view.batch = heads * view.head;
    for (const std::int64_t stride : {view.batch, view.head, view.row}) {
        if (stride >= 0 && stride % step == 0) continue;
        const std::string must =
            stride < 0 ? "must not be negative" : fmt::format("must be multiples of {}", step);
        fail(fmt::format("its strides in elements, {}, {}", axes_text(list(x.strides)), must));
    }
    return view;
}

void require_axes(const char* tensor, const Axes& got, const char* like, const Axes& expected) {
    if (got == expected) return;
    throw BadUsage(fmt::format("{} is {} and {} is {}: they must agree", tensor, axes_text(list(got)), like,
                               axes_text(list(expected))));
}

/// Whether K and V of a call, or a cache, are e4m3: then they have scales.
template <class X>
bool has_e4m3_keys(const X& x) {
    return x.K_scales != nullptr || x.K_token_scales.data != nullptr;
}

#ifdef LADDER_HAS_CPU
/// Tells the CPU back-end of the caller's memory, until the end of its scope.
class Registered {
  public:
    /// K and V have `slots`: (B, Hkv, Nk, d), or (pages, Hkv, page_size, d).
    Registered(const Problem& p, const Axes& slots, const std::vector<Mask::Numbers>& numbers) {
        const bool forward = p.dO.data == nullptr;
        const int entries = static_cast<int>(slots[0]), rows = static_cast<int>(slots[2]);
        const int bytes = has_e4m3_keys(p) ? 1 : 2;
        add(p.Q, p.B, p.H, p.Nq, p.d, "Q", false, p.Q_scales != nullptr ? 1 : 2);
        add(p.K, entries, p.Hkv, rows, p.d, "K", false, bytes);
        add(p.V, entries, p.Hkv, rows, p.d, "V", false, bytes);
        for (const Mask::Numbers& some : numbers) {
            if (some.bytes == 0) continue;
            known_.push_back(reinterpret_cast<void*>(some.data));
            simt::register_allocation(known_.back(), some.bytes, some.name, false);
        }
        add(p.O, p.B, p.H, p.Nq, p.d, "O", forward);
        add({p.L, std::int64_t{2} * p.H * p.Nq, std::int64_t{2} * p.Nq, 2}, p.B, p.H, p.Nq, 2, "L", forward);
        if (forward) return;
        add(p.dO, p.B, p.H, p.Nq, p.d, "dO", false);
        add(p.dQ, p.B, p.H, p.Nq, p.d, "dQ", true);
        add(p.dK, p.B, p.Hkv, p.Nk, p.d, "dK", true);
        add(p.dV, p.B, p.Hkv, p.Nk, p.d, "dV", true);
        if (p.dsinks != nullptr) add({p.dsinks, 0, 1, 0}, 1, p.H, 1, 1, "dsinks", true, sizeof(float));
    }
    explicit Registered(const Append& a) {
        const int bytes = has_e4m3_keys(a) ? 1 : 2, angle = a.fp32_angles ? 4 : 2;
        add(a.K, a.B, a.Hkv, a.Nk, a.d, "k", false);
        add(a.V, a.B, a.Hkv, a.Nk, a.d, "v", false);
        add(a.K_cache, a.entries, a.Hkv, a.slots, a.d, "k_cache", true, bytes);
        add(a.V_cache, a.entries, a.Hkv, a.slots, a.d, "v_cache", true, bytes);
        add(a.Q, a.B, a.H, a.Nq, a.d, "q", false);
        add(a.rotated_Q, a.B, a.H, a.Nq, a.d, "q, rotated", true);
        const auto add_array = [&](const void* data, int rows, int columns, const char* name, int size = 4,
                                   bool writable = false) {
            add({const_cast<void*>(data), 0, 0, columns}, 1, 1, rows, columns, name, writable, size);
        };
        add_array(a.lengths, 1, a.B, "the lengths");
        add_array(a.new_lengths, 1, a.B, "the lengths with the new rows", 4, true);
        add_array(a.batch_index, 1, a.B, "cache_batch_idx");
        add_array(a.block_table, a.B, a.pages, "block_table");
        add_array(a.K_scales, a.B, a.Hkv, "k_scale");
        add_array(a.V_scales, a.B, a.Hkv, "v_scale");
        for (const auto& [name, scales] :
             {std::pair("k_scale", &a.K_token_scales), {"v_scale", &a.V_token_scales}})
            add(*scales, a.entries, a.Hkv, a.slots, 1, name, true, sizeof(float));
        add_array(a.cos, a.positions, a.pairs, "rotary_cos", angle);
        add_array(a.sin, a.positions, a.pairs, "rotary_sin", angle);
    }
    Registered(const Registered&) = delete;
    Registered& operator=(const Registered&) = delete;
    ~Registered() {
        for (void* data : known_) simt::forget_allocation(data);
    }

  private:
    /// All from the first to the last element, of so many bytes each, if there are any.
    void add(const View& x, int B, int heads, int N, int d, const char* tensor, bool writable,
             int bytes = 2) {
        if (x.data == nullptr || B * heads * N * d == 0) return;
        const std::int64_t last = (B - 1) * x.batch + (heads - 1) * x.head + (N - 1) * x.row + d;
        simt::register_allocation(x.data, static_cast<std::size_t>(last) * bytes, tensor, writable);
        known_.push_back(x.data);
    }

    std::vector<void*> known_;
};
#endif

#ifdef LADDER_HAS_GPU
/// Sends this thread's launches to a stream, until the end of its scope.
class InStream {
  public:
    explicit InStream(void* stream) : before_(std::exchange(launch_stream(), stream)) {}
    InStream(const InStream&) = delete;
    InStream& operator=(const InStream&) = delete;
    ~InStream() { launch_stream() = before_; }

  private:
    void* const before_;
};
#endif

/// What comes in 8 bits, if it has scales.
const char* in_e4m3(const Problem& p) {
    return p.Q_scales != nullptr ? "Q, K and V in e4m3" : has_e4m3_keys(p) ? "K and V in e4m3" : "";
}

/// What a stage takes so, and nothing else.
const char* in_e4m3(const Stage& stage) {
    return stage.takes_e4m3                             ? "Q, K and V in e4m3"
           : stage.products == Products::of_8_bit_cache ? "K and V in e4m3"
                                                        : "";
}

/// " with a sliding window, packed documents"
std::string features_text(const Mask& mask) {
    std::vector<const char*> names;
    for (const Feature feature : features_of(mask.features)) names.push_back(name(feature));
    if (const char* tensors = in_e4m3(mask.problem); *tensors != '\0') names.push_back(tensors);
    return names.empty() ? "" : fmt::format(" with {}", fmt::join(names, ", "));
}

/// What it multiplies, in the package's words.
const char* products_of(const Stage& stage) {
    if (stage.takes_e4m3) return "8 bits of e4m3";
    switch (stage.products) {
        case Products::of_16_bits:
            return "16 bits";
        case Products::of_8_bit_cache:
            return "8-bit cache";
        default:
            return "8 bits";
    }
}

/// Case `options`, for a stage that takes it.
Case case_of(const Stage& stage, const std::string& options) {
    Case c = parse_case(options);
    c.pass = stage.pass;
    require_taken(stage, c);
    return c;
}

/// The head dimension at which a problem of another is computed, with columns of zeros: the next of `dims`.
/// Nothing if none is as large.
std::optional<int> next_head_dim(const std::set<int>& dims, std::int64_t d) {
    const auto next = std::find_if(dims.begin(), dims.end(), [d](int dim) { return dim >= d; });
    return next == dims.end() ? std::nullopt : std::optional(*next);
}

/// The same of those that any stage has. Throws BadUsage.
int next_head_dim(std::int64_t d) {
    const std::set<int>& dims = known_head_dims();
    if (const auto next = next_head_dim(dims, d)) return *next;
    throw BadUsage(fmt::format(
        "no stage has head dimension {}; there are {}, and by columns of zeros all that are smaller", d,
        fmt::join(dims, ", ")));
}

/// The path by which a kernel of one's own is loaded as it is now. A process loads a path once; what has
/// changed since then is loaded from a copy of its folder.
std::string current(const std::string& word) {
    namespace fs = std::filesystem;
    std::error_code error;
    const fs::path kernel = fs::is_directory(word, error) ? fs::path(word) / "kernel.cu" : fs::path(word);
    const auto time = fs::last_write_time(kernel, error);
    const auto size = fs::file_size(kernel, error);
    if (error) return word;  // loading it says what is wrong
    struct Version {
        fs::file_time_type time;
        std::uintmax_t size;
        std::string path;
    };
    static std::map<std::string, Version> versions;
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    Version& known = versions.try_emplace(word, Version{time, size, word}).first->second;
    if (known.time != time || known.size != size) {
        const fs::path folder = fs::absolute(kernel).lexically_normal().parent_path();
        const fs::path copy =
            build_folder() / "own" / text_fingerprint(read_file(kernel)) / folder.filename();
        fs::create_directories(copy);
        fs::copy(folder, copy, fs::copy_options::recursive | fs::copy_options::overwrite_existing);
        known = {time, size, (copy / kernel.filename()).string()};
    }
    return known.path;
}

/// The last stage that takes this in e4m3, and these features; null if none runs here.
const Stage* last_in_e4m3(std::string_view tensors, const ProblemLabel& problem, const Device& device) {
    const Case c{.shape = problem.shape, .features = problem.features};
    const Stage* last = nullptr;
    for (const Stage& stage : stages()) {
        if (in_e4m3(stage) == tensors && stage.has_head_dim(problem.shape.d) &&
            why_not_taken(stage, c).empty() && device.why_not(stage).empty())
            last = &stage;
    }
    return last;
}

/// What runs on a back-end where no stage is named; on a CPU one of those that run on any GPU, unless none of
/// these takes the problem. `exactly`: one of those whose results are the same bits each time. The next call
/// is often for the same problem, and to search all recorded ones for its nearest takes longer than to queue
/// it.
const Stage& default_for(bool forward, const Axes& Q, const Axes& K, const Mask& mask,
                         const std::string& backend, bool exactly) {
    struct Found {
        Axes Q, K;
        bool causal;
        std::string_view in_e4m3;
        Features features;
        const Stage* stage;
    };
    static std::map<std::tuple<bool, std::string, bool>, Found> last;
    static std::map<std::tuple<Backend, bool, bool>, DefaultStages> known;
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    const Features& features = mask.features;
    const std::string_view tensors = in_e4m3(mask.problem);
    Found& answer = last[{forward, backend, exactly}];
    if (answer.stage != nullptr && answer.Q == Q && answer.K == K && answer.causal == mask.problem.causal &&
        answer.in_e4m3 == tensors && answer.features == features)
        return *answer.stage;
    const Device& device = device_of(backend_of(backend));
    ProblemLabel problem;
    problem.shape = shape_of(list(Q), list(K), list(K), Layout::bhnd, next_head_dim(Q[3]));
    problem.causal = mask.problem.causal;
    problem.features = features;
    problem.pass = forward ? Pass::forward : Pass::backward;
    const auto found = [&](bool on_any_gpu) {
        const auto runs = [&](const Stage& stage) {
            return (stage.repeats_exactly || !exactly) && (stage.compute_capability == 0 || !on_any_gpu) &&
                   device.why_not(stage).empty();
        };
        const auto key = std::tuple(device.backend(), exactly, on_any_gpu);
        auto stages = known.find(key);
        if (stages == known.end()) stages = known.try_emplace(key, recorded_times(), runs).first;
        return stages->second.find(problem);
    };
    const Stage* stage = nullptr;
    if (!tensors.empty()) {
        stage = last_in_e4m3(tensors, problem, device);
    } else {
        if (device.backend() != Backend::gpu) stage = found(true);
        if (stage == nullptr) stage = found(false);
    }
    if (stage == nullptr) {
        throw BadUsage(fmt::format("no stage computes {}{} at head dimension {} on {}",
                                   forward ? "attention" : "its gradients", features_text(mask),
                                   problem.shape.d, device.description()));
    }
    answer = {Q, K, mask.problem.causal, tensors, features, stage};
    return *stage;
}

void require_scale(const char* name, float scale) {
    if (!(scale > 0 && std::isfinite(scale))) refuse(name, "one is {}; expected numbers above 0", scale);
}

/// (B, Hkv, N), or in pages (pages, Hkv, page_size): the axes of K without d. Those of keys that requests
/// have are looked at if all are in the host's memory; the rest may be anything.
View take_token_scales(const char* name, const Given& given) {
    const Array& scales = *given.array(name);
    require_axes(name, scales, {given.K[0], given.K[1], given.K[2]});
    std::vector<std::int64_t> strides = scales.strides;
    if (strides.empty()) strides = {given.K[1] * given.K[2], given.K[2], 1};
    if (scales.data % sizeof(float) != 0) refuse(name, "it must begin at a multiple of 4 bytes");
    const View view{reinterpret_cast<void*>(scales.data), strides[0], strides[1], strides[2]};
    const Array *table = given.array("block_table"), *lengths = given.array("seqused");
    if (!scales.on_host || (table != nullptr && !table->on_host) || (lengths != nullptr && !lengths->on_host))
        return view;
    const auto pages = given.readable("block_table"), keys = given.readable("seqused");
    for (std::int64_t b = 0; b < given.Q[0]; ++b) {
        const std::int64_t length = keys.empty() ? given.Nk : keys[b];
        for (std::int64_t j = 0; j < length; ++j) {
            const std::int64_t size = given.K[2], columns = given.Nk / size,
                               entry = table == nullptr ? b : pages[b * columns + j / size],
                               slot = table == nullptr ? j : j % size;
            for (std::int64_t h = 0; h < given.K[1]; ++h)
                require_scale(name, scales.reals()[entry * view.batch + h * view.head + slot * view.row]);
        }
    }
    return view;
}

/// The scales of tensors in e4m3, of each of their heads; those of a cache may be of its tokens, which their
/// axes say.
void take_scales(const Given& given, Problem& p, Features& f) {
    if (!given.has("k_scale") || !given.has("v_scale"))
        throw BadUsage(given.has("q_scale") ? "q_scale, k_scale and v_scale go together"
                                            : "k_scale and v_scale go together");
    const auto has_tokens = [&](const char* name) { return given.array(name)->axes.size() == 3; };
    if (has_tokens("k_scale") != has_tokens("v_scale"))
        throw BadUsage("k_scale and v_scale: both are of heads, or both of tokens");
    if (has_tokens("k_scale") && !given.has("q_scale")) {
        p.K_token_scales = take_token_scales("k_scale", given);
        p.V_token_scales = take_token_scales("v_scale", given);
        f.token_scales = true;
        return;
    }
    const auto take = [&](const char* name, std::int64_t heads, const float*& scales) {
        const Array* given_scales = given.array(name);
        if (given_scales == nullptr) return;
        require_axes(name, *given_scales, {given.Q[0], heads});
        require_reals(name, given);
        for (const int bits : given.readable(name)) require_scale(name, std::bit_cast<float>(bits));
        scales = given_scales->reals();
    };
    take("q_scale", given.Q[1], p.Q_scales);
    take("k_scale", given.K[1], p.K_scales);
    take("v_scale", given.K[1], p.V_scales);
}

/// stages/append.cu, compiled and loaded for a back-end.
RunAppend append_on(Backend backend) {
    static std::map<Backend, RunAppend> known;
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    RunAppend& run = known[backend];
    if (run != nullptr) return run;
    const Compilation c = compilation_of(stages_folder() / "append.cu", name(backend));
    if (const auto errors = compile({c}, compiler_limits()); !errors.front().empty())
        throw CheckFailed(fmt::format("{} does not compile:\n{}", c.source.string(), errors.front()));
    void* const library = dlopen(c.library().c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) run = reinterpret_cast<RunAppend>(dlsym(library, "ladder_append"));
    if (run == nullptr) throw CheckFailed(fmt::format("cannot load {}: {}", c.library().string(), dlerror()));
    return run;
}

/// Whether all new rows have a place of their own in the cache, angles and scales; of numbers in the CPU's
/// memory.
void require_places(const Append& a) {
    const int capacity = a.block_table != nullptr ? a.pages * a.slots : a.slots;
    const int last_row = std::max(a.Nk, a.causal ? a.Nq : std::min(a.Nq, 1));  // of those that are rotated
    const char* const in = a.block_table != nullptr ? "page" : "row";
    for (int i = 0; i < a.B * a.Hkv && a.K_scales != nullptr; ++i) {
        require_scale("k_scale", a.K_scales[i]);
        require_scale("v_scale", a.V_scales[i]);
    }
    std::set<std::pair<int, int>> places;
    for (int b = 0; b < a.B; ++b) {
        const int length = a.lengths[b];
        if (length < 0 || length > capacity - a.Nk) {
            throw BadUsage(
                fmt::format("request {} has {} keys; expected 0 to {}: it has room for {} keys, {} of "
                            "them new",
                            b, length, capacity - a.Nk, capacity, a.Nk));
        }
        if (a.pairs > 0 && length > a.positions - last_row) {
            throw BadUsage(
                fmt::format("request {} has {} keys; expected 0 to {}: rotary_cos has {} positions", b,
                            length, a.positions - last_row, a.positions));
        }
        for (int at = length; at < length + a.Nk; ++at) {
            const int entry = a.block_table != nullptr   ? a.block_table[b * a.pages + at / a.slots]
                              : a.batch_index != nullptr ? a.batch_index[b]
                                                         : b;
            if (entry < 0 || entry >= a.entries) {
                throw BadUsage(
                    fmt::format("a new row of request {} is in {} {}; expected 0 to {}: the {}s of the "
                                "cache",
                                b, in, entry, a.entries - 1, in));
            }
            if (!places.emplace(entry, at % a.slots).second) {
                throw BadUsage(fmt::format("two new rows are in {} {}, at key {} of it: one would be lost",
                                           in, entry, at % a.slots));
            }
        }
    }
}

}  // namespace

const std::vector<NamedArgument>& arguments() {
    static const auto known = [] {
        std::vector<NamedArgument> all{
            {{"q_scale", CallArgument::Kind::float32, "scales of Q", "B H"}},
            {{"k_scale", CallArgument::Kind::float32, "scales of K", "B Hkv", false, true}},
            {{"v_scale", CallArgument::Kind::float32, "scales of V", "B Hkv", false, true}}};
        all.push_back({{"out_dtype", CallArgument::Kind::integer}});  // of O, with Q in e4m3: 1 is fp16
        for (const FeatureInfo& info : all_features()) {
            for (const CallArgument& one : info.arguments) all.push_back({one, &info});
        }
        return all;
    }();
    return known;
}

const NamedArgument& argument(std::string_view name) {
    const auto found = std::ranges::find(arguments(), name, &NamedArgument::name);
    if (found == arguments().end()) throw BadUsage(fmt::format("no call has an argument '{}'", name));
    return *found;
}

Mask mask_of(Given given) {
    const std::size_t count = given.arrays.size() + given.integers.size() + given.reals.size();
    if (given.names.size() != count)
        throw BadUsage(fmt::format("there are {} names of {} arrays and numbers", given.names.size(), count));
    Mask mask;
    mask.problem.causal = given.causal;
    if (count == 0) return mask;
    const std::vector<FeatureInfo>& all = all_features();
    std::vector<bool> is_given(all.size());
    for (std::size_t i = 0; i < count; ++i) {
        const NamedArgument& known = argument(given.names[i]);
        using Kind = CallArgument::Kind;
        const bool is_array = i < given.arrays.size(), is_real = i >= count - given.reals.size(),
                   of_arrays = known.kind == Kind::int32 || known.kind == Kind::float32;
        if (is_array != of_arrays || is_real != (known.kind == Kind::real)) {
            const char* const expected = of_arrays                  ? "an array"
                                         : known.kind == Kind::real ? "a real"
                                                                    : "an integer";
            throw BadUsage(fmt::format("{} is {}", known.name, expected));
        }
        if (known.feature != nullptr) is_given[known.feature - all.data()] = true;
        if (i >= given.arrays.size()) continue;
        const Array& array = given.arrays[i];
        mask.numbers.push_back(
            {known.array, array.data, static_cast<std::size_t>(array.span()) * sizeof(int)});
    }
    given.Nk = given.K[2];
    for (std::size_t i = 0; i < all.size(); ++i) {
        if (is_given[i] && all[i].keys_of_request != nullptr)
            given.Nk = mask.Nk = all[i].keys_of_request(given);
    }
    for (std::size_t i = 0; i < all.size(); ++i) {
        if (is_given[i]) all[i].take(given, mask.problem, mask.features);
    }
    if (given.has("q_scale") || given.has("k_scale") || given.has("v_scale"))
        take_scales(given, mask.problem, mask.features);
    return mask;
}

Kernel::Kernel(const std::string& word, const std::string& backend)
    : stage_(&select_stage(word)), backend_(backend_of(backend)) {
    const Call call;
    const Device& device = device_of(backend_);
    if (const std::string why = device.why_not(*stage_); !why.empty())
        throw CannotRun(fmt::format("{} cannot run: {}", stage_->folder(), why));
    stage_ = &device.ready(*stage_);
}

std::int64_t Kernel::width(const Axes& Q, const Axes& K, const Axes& V) const {
    const Call call;
    const std::set<int> dims(stage_->head_dims.begin(), stage_->head_dims.end());
    const auto next = next_head_dim(dims, Q[3]);
    if (!next) {
        throw BadUsage(fmt::format(
            "{} has no head dimension {}; it has {}, and by columns of zeros all that are smaller",
            stage_->folder(), Q[3], fmt::join(dims, ", ")));
    }
    // What else may be wrong with it forward() and backward() say. They are given K and V as wide as Q.
    if (Q[3] < 1 || (Q[3] == *next && K[3] == Q[3] && V[3] == Q[3])) return Q[3];
    shape_of(list(Q), list(K), list(V), Layout::bhnd, next);
    return *next;
}

Kernel::Sizes Kernel::sizes(const Axes& Q, const Axes& K, const Axes& V) {
    const std::lock_guard lock(mutex_);
    if (Q == last_.Q && K == last_.K && V == last_.V) return last_;
    const Shape shape = shape_of(list(Q), list(K), list(V), Layout::bhnd);
    require_head_dim(*stage_, shape.d);
    const Device& device = device_of(backend_);
    last_ = {Q,
             K,
             V,
             shape,
             Workspace::bytes(device, *stage_, shape),
             Workspace::counter_bytes(device, *stage_, shape)};
    return last_;
}

std::size_t Kernel::workspace_bytes(const Axes& Q, const Axes& K) {
    const Call call;
    return sizes(Q, K, K).workspace_bytes;
}

Problem Kernel::problem(const Sizes& sizes, const Tensor& Q, const Tensor& K, const Tensor& V,
                        const Tensor& O, std::uintptr_t L, DType dtype, const Mask& mask,
                        std::optional<double> scale, std::uintptr_t workspace) const {
    Problem p = mask.problem;
    static_cast<Shape&>(p) = sizes.shape;
    require_axes("O", O.axes, "Q", Q.axes);
    p.scale = static_cast<float>(scale.value_or(1 / std::sqrt(double(p.d))));
    if (!std::isfinite(p.scale)) throw BadUsage("scale must be a finite number");
    require_taken(*stage_, Case{.shape = sizes.shape, .features = mask.features});
    const std::string_view taken = in_e4m3(*stage_), given = in_e4m3(mask.problem);
    if (taken != given && !taken.empty()) {
        throw BadUsage(fmt::format("{} takes {} alone: {}", stage_->folder(), taken,
                                   stage_->takes_e4m3 ? "attention has q_scale, k_scale and v_scale"
                                                      : "decode has k_scale and v_scale"));
    }
    if (taken != given) throw BadUsage(fmt::format("{} does not take {}", stage_->folder(), given));
    if (L % sizeof(float) != 0) throw BadUsage("L: it must begin at a multiple of 4 bytes");
    const Device& device = device_of(backend_);
    if (dtype == DType::bf16 && device.compute_capability() < 80) {
        throw CannotRun(fmt::format("bf16 needs compute capability 8.0; this GPU has {}",
                                    dotted(device.compute_capability())));
    }
    p.Q = view_of("Q", Q, p.Q_scales != nullptr ? 16 : 8);
    p.K = view_of("K", K, has_e4m3_keys(p) ? 16 : 8);
    p.V = view_of("V", V, has_e4m3_keys(p) ? 16 : 8);
    p.O = view_of("O", O);
    p.L = reinterpret_cast<float*>(L);
    p.dtype = dtype;
    p.workspace = reinterpret_cast<void*>(workspace);
    p.sm_count = device.sm_count();
    return p;
}

void Kernel::forward(const Tensor& Q, const Tensor& K, const Tensor& V, const Tensor& O, std::uintptr_t L,
                     DType dtype, const Mask& mask, std::optional<double> scale, std::uintptr_t workspace,
                     std::uintptr_t stream) {
    const Call call;
    if (!is_forward())
        throw BadUsage(fmt::format("{} computes gradients (dQ, dK and dV), not attention", stage_->folder()));
    const Sizes sizes = this->sizes(Q.axes, mask.keys(Q.axes, K.axes), mask.keys(Q.axes, V.axes));
    run(sizes, problem(sizes, Q, K, V, O, L, dtype, mask, scale, workspace), K.axes, mask.numbers, stream);
}

void Kernel::backward(const Tensor& Q, const Tensor& K, const Tensor& V, const Tensor& O, std::uintptr_t L,
                      const Tensor& dO, const Tensor& dQ, const Tensor& dK, const Tensor& dV,
                      std::uintptr_t dsinks, DType dtype, const Mask& mask, std::optional<double> scale,
                      std::uintptr_t workspace, std::uintptr_t stream) {
    const Call call;
    if (is_forward())
        throw BadUsage(fmt::format("{} computes attention, not its gradients", stage_->folder()));
    const Sizes sizes = this->sizes(Q.axes, K.axes, V.axes);
    Problem p = problem(sizes, Q, K, V, O, L, dtype, mask, scale, workspace);
    require_axes("dO", dO.axes, "Q", Q.axes);
    require_axes("dQ", dQ.axes, "Q", Q.axes);
    require_axes("dK", dK.axes, "K", K.axes);
    require_axes("dV", dV.axes, "V", V.axes);
    p.dO = view_of("dO", dO);
    p.dQ = view_of("dQ", dQ);
    p.dK = view_of("dK", dK);
    p.dV = view_of("dV", dV);
    p.dsinks = reinterpret_cast<float*>(dsinks);
    run(sizes, p, K.axes, mask.numbers, stream);
}

void Kernel::run([[maybe_unused]] const Sizes& sizes, const Problem& problem,
                 [[maybe_unused]] const Axes& slots,
                 [[maybe_unused]] const std::vector<Mask::Numbers>& numbers,
                 [[maybe_unused]] std::uintptr_t stream) const {
    if (backend_ != Backend::gpu) {
#ifdef LADDER_HAS_CPU
        alone(backend_, [&](const std::atomic<bool>&) {
            Device& device = device_of(backend_);
            const Workspace workspace(device, *stage_, problem);
            const Registered registered(problem, slots, numbers);
            Problem with_workspace = problem;
            with_workspace.workspace = workspace.data();
            device.run(*stage_, with_workspace);
        });
#endif
        return;
    }
#ifdef LADDER_HAS_GPU
    if (sizes.counter_bytes > 0) {
        void* counters =
            static_cast<std::byte*>(problem.workspace) + sizes.workspace_bytes - sizes.counter_bytes;
        const auto queue = reinterpret_cast<cudaStream_t>(stream);
        if (const cudaError_t error = cudaMemsetAsync(counters, 0, sizes.counter_bytes, queue);
            error != cudaSuccess)
            throw CheckFailed(
                fmt::format("{}: clear the counters: {}", stage_->folder(), cudaGetErrorString(error)));
    }
    const InStream in_stream(reinterpret_cast<void*>(stream));
    stage_->run(problem);
#endif
}

Kernel& kernel_of(bool forward, const std::optional<std::string>& word, const std::string& backend,
                  const Axes& Q, const Axes& K, const Mask& mask, bool exactly) {
    const Call call;
    const bool is_folder = word && word->find('/') != std::string::npos;
    const std::string stage = is_folder ? current(*word)
                              : word    ? *word
                                        : default_for(forward, Q, K, mask, backend, exactly).folder();
    static std::map<std::pair<std::string, std::string>, std::unique_ptr<Kernel>> known;
    static std::mutex mutex;
    {
        const std::lock_guard lock(mutex);
        if (const auto found = known.find({stage, backend}); found != known.end()) return *found->second;
    }
    auto kernel = std::make_unique<Kernel>(stage, backend);
    const std::lock_guard lock(mutex);
    return *known.try_emplace({stage, backend}, std::move(kernel)).first->second;
}

void append(const Append& a, const std::string& backend, [[maybe_unused]] std::uintptr_t stream) {
    const Call call;
    const Backend on = backend_of(backend);
    const Device& device = device_of(on);
    if (a.dtype == DType::bf16 && device.compute_capability() < 80)
        throw CannotRun("bf16 needs compute capability 8.0");
    const RunAppend run = append_on(on);
    if (on != Backend::gpu) {
#ifdef LADDER_HAS_CPU
        require_places(a);
        alone(on, [&](const std::atomic<bool>&) {
            const Registered registered(a);
            try {
                simt::run_host_side(reinterpret_cast<const void*>(run), [&] { run(a); });
            } catch (const simt::Report& report) {
                throw CheckFailed(with_named_lines(report.what(), stages_folder() / "append.cu"));
            }
        });
#endif
        return;
    }
#ifdef LADDER_HAS_GPU
    const InStream in_stream(reinterpret_cast<void*>(stream));
    run(a);
#endif
}

void start(const std::string& sources, const std::string& build) {
    use_folders(sources, build);
    list_of_stages() = "flash_ladder.stages()";
    Call::let_forks_wait();
}

void end_calls_if(std::function<bool()> asked) {
    is_to_end() = std::move(asked);
}

std::string why_not(const std::string& backend) {
    const Call call;
    std::string why;
    has_device(backend_of(backend), &why);
    return why;
}

void dropout_mask(const Axes& P, const Mask& mask, std::uintptr_t kept) {
    const Dropout& dropout = mask.problem.dropout;
    parallel_for(static_cast<int>(P[0] * P[1]), [&](int head) {
        const reference::Dropout of_head{dropout.kept, dropout.seed, static_cast<int>(head / P[1]),
                                         static_cast<int>(head % P[1])};
        auto* element = reinterpret_cast<bool*>(kept) + head * P[2] * P[3];
        for (int i = 0; i < P[2]; ++i) {
            for (int j = 0; j < P[3]; ++j) *element++ = of_head.keeps(i, j);
        }
    });
}

void synchronize() {
#ifdef LADDER_HAS_GPU
    if (const cudaError_t error = cudaDeviceSynchronize(); error != cudaSuccess)
        throw CheckFailed(fmt::format("run: {}", cudaGetErrorString(error)));
#endif
}

void prepare(const std::vector<std::string>& words, const std::string& backend) {
    const Call call;
    const Device& device = device_of(backend_of(backend));
    compile_stages(runnable(select_stages(words), device), device.backend(), silent);
}

std::string default_stage(bool forward, const std::array<std::int64_t, 6>& sizes, const std::string& options,
                          const std::string& backend, bool exactly) {
    const Call call;
    const auto [B, H, Hkv, Nq, Nk, d] = sizes;
    const Case c =
        parse_case(fmt::format("--shape {},{},{},{},{},{} {}", B, H, Hkv, Nq, Nk, next_head_dim(d), options));
    const Axes Q{B, H, Nq, d}, K{B, Hkv, Nk, d};
    Mask mask{.problem = {}, .features = c.features};
    mask.problem.causal = c.causal;
    return default_for(forward, Q, K, mask, backend, exactly).folder();
}

std::string list_stages(const std::vector<std::string>& words) {
    const Call call;
    auto list = nlohmann::ordered_json::array();
    for (const Stage* stage : select_stages(words)) {
        list.push_back({{"number", stage->number},
                        {"name", stage->name},
                        {"folder", stage->folder()},
                        {"parent", stage->parent},
                        {"change", stage->change},
                        {"shows_in", stage->shows_in},
                        {"computes", name(stage->pass)},
                        {"head_dims", stage->head_dims},
                        {"compute_capability", stage->compute_capability},
                        {"repeats_exactly", stage->repeats_exactly},
                        {"batch_invariant", is_batch_invariant(*stage)},
                        {"products", products_of(*stage)},
                        {"source", stage->source}});
    }
    return list.dump();
}

std::string verify(const std::vector<std::string>& words, const std::string& backend,
                   const std::optional<std::string>& options, bool quick) {
    const Call call;
    const auto selected = select_stages(words);
    Device& device = device_of(backend_of(backend));
    std::vector<Verification> verifications;
    for (const Stage* stage : selected) {
        std::vector<Case> cases = verification_cases(*stage, quick ? Cover::each : Cover::all);
        if (options) {
            cases = {case_of(*stage, *options)};
            require_memory(cases.front().shape, device, stage->pass);
        }
        verifications.emplace_back(stage, std::move(cases));
    }
    alone(device.backend(), [&](const std::atomic<bool>& stop) {
        compile_stages(runnable(selected, device), device.backend(), unless(stop));
        verify_all(device, verifications, unless(stop));
    });
    auto list = nlohmann::ordered_json::array();
    for (const Verification& v : verifications) {
        list.push_back({{"stage", v.stage->folder()},
                        {"backend", name(device.backend())},
                        {"cases", v.cases.size()},
                        {"passed", v.passed},
                        {"failed", v.failed},
                        {"max_error", v.worst.max_error},
                        {"standard_max_error", v.worst.standard_max_error},
                        {"relative_l2", v.worst.relative_l2},
                        {"max_L_error", v.worst.max_L_error},
                        {"reports", v.reports},
                        {"why_not", v.why_not}});
    }
    return list.dump();
}

std::string cases(const std::string& word, bool quick) {
    const Call call;
    auto list = nlohmann::ordered_json::array();
    for (const Case& c : verification_cases(select_stage(word), quick ? Cover::each : Cover::all)) {
        if (!features_of(c.features).empty()) continue;
        const auto place = [&](auto tensor) -> nlohmann::ordered_json {
            const Placement at = placement(c, tensor);
            return {{"axes", {at.B, at.heads, at.N, at.d}}, {"strides", {at.batch, at.head, at.row, 1}}};
        };
        using T = ladder::Tensor;
        list.push_back({{"options", options_of(c)},
                        {"dtype", name(c.dtype)},
                        {"causal", c.causal},
                        {"scale", c.softmax_scale()},
                        {"tensors", {place(T::Q), place(T::K), place(T::V)}}});
    }
    return list.dump();
}

void fill_inputs(const std::string& options, std::uintptr_t Q, std::uintptr_t K, std::uintptr_t V) {
    const Call call;
    const Inputs inputs = make_inputs(parse_case(options));
    const auto copy = [](const auto& from, std::uintptr_t to) {
        std::copy(from.begin(), from.end(), reinterpret_cast<std::uint16_t*>(to));
    };
    copy(inputs.Q, Q), copy(inputs.K, K), copy(inputs.V, V);
}

std::string judge(const std::string& options, std::uintptr_t Q, std::uintptr_t K, std::uintptr_t V,
                  std::uintptr_t O, std::uintptr_t L, int sampled_rows) {
    const Call call;
    const Case c = parse_case(options);
    const Shape& s = c.shape;
    const auto copied = [](auto* data, std::int64_t heads, std::int64_t N, std::int64_t columns) {
        return std::vector(data, data + heads * N * columns);
    };
    const auto halves = [&](std::uintptr_t data, std::int64_t heads, int N) {
        return copied(reinterpret_cast<const std::uint16_t*>(data), s.B * heads, N, s.d);
    };
    const Inputs inputs{halves(Q, s.H, s.Nq), halves(K, s.Hkv, s.Nk), halves(V, s.Hkv, s.Nk)};
    const Outputs outputs{halves(O, s.H, s.Nq),
                          copied(reinterpret_cast<const float*>(L), std::int64_t{s.B} * s.H, s.Nq, 1)};
    const Verdict verdict = ladder::judge(c, inputs, outputs, sampled_rows);
    return nlohmann::ordered_json{{"passed", verdict.passed},
                                  {"max_error", verdict.max_error},
                                  {"standard_max_error", verdict.standard_max_error},
                                  {"relative_l2", verdict.relative_l2},
                                  {"max_L_error", verdict.max_L_error},
                                  {"report", verdict.report}}
        .dump();
}

std::string count(const std::string& word, const std::string& options) {
    const Call call;
    const Stage& stage = select_stage(word);
    const Backend backend = has_device(Backend::checked) ? Backend::checked : Backend::cpu;
    Device& device = device_of(backend);
    const Case c = case_of(stage, options);
    require_head_dim(stage, c.shape.d);
    require_memory(c.shape, device, stage.pass);
    Work work;
    alone(backend, [&](const std::atomic<bool>&) { work = count_work(device, stage, c, make_inputs(c)); });
    if (!work.why_not.empty()) throw CannotRun(work.why_not);
    nlohmann::ordered_json counters{{"workspace_bytes", work.workspace_bytes}};
    for (const auto& field : simt::counter_fields) counters[field.name] = work.counters.*field.value;
    return counters.dump();
}

std::string time(const std::string& word, const std::string& options) {
    const Call call;
    const Stage& stage = select_stage(word);
    const Case c = case_of(stage, options);
    require_head_dim(stage, c.shape.d);
    TimingOptions timing;
    timing.cases = {{"custom", c}};
    Device& gpu = device_of(Backend::gpu);
    require_memory(c.shape, gpu, stage.pass);
    const Results results = time_stages(gpu, {stage}, timing, silent);
    const Row& row = results.rows.at(0);
    if (!row.timing) throw CannotRun(row.why_not);
    return nlohmann::json{{"stage", stage.folder()},
                          {"gpu", results.hardware.gpu},
                          {"median_ms", row.timing->median_ms},
                          {"p20_ms", row.timing->p20_ms},
                          {"p80_ms", row.timing->p80_ms},
                          {"noise", row.timing->noise},
                          {"repeats", row.timing->repeats},
                          {"rate", row.rate},
                          {"unit", row.unit},
                          {"ceiling_share", row.ceiling_share},
                          {"verified", row.verified},
                          {"max_error", row.max_error},
                          {"why_not", row.why_not}}
        .dump();
}

}  // namespace ladder::python
