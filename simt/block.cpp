#include "simt/block.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

namespace simt {

thread_local constinit Block* running_block = nullptr;
thread_local constinit Builtins builtins{};

const char* name(Op op) {
    switch (op) {
        case Op::ldmatrix:
            return "ldmatrix";
        case Op::ldmatrix_transposed:
            return "ldmatrix_transposed";
        case Op::stmatrix:
            return "stmatrix";
        case Op::stmatrix_transposed:
            return "stmatrix_transposed";
        case Op::mma:
            return "mma";
        case Op::wgmma:
            return "wgmma";
        case Op::wgmma_fence:
            return "wgmma_fence";
        case Op::wgmma_commit:
            return "wgmma_commit";
        case Op::wgmma_wait:
            return "wgmma_wait";
        case Op::shuffle:
            return "shuffle";
        case Op::vote:
            return "vote";
        default:
            return "__syncwarp";
    }
}

Block::Block()
    : shared_(static_cast<std::byte*>(std::aligned_alloc(1024, hopper_shared_bytes)), &std::free) {}

void Block::begin_launch(const Launch& config, void (*call)(const void*), const void* parameters,
                         std::size_t bytes, std::uint32_t first_serial) {
    config_ = &config;
    call_ = call;
    parameters_ = parameters;
    first_serial_ = first_serial;
    shared_bytes_ = config.shared_bytes;
    checker_.begin_launch(parameters, bytes, shared_.get(), shared_bytes_);

    const int count = static_cast<int>(config.block.count());
    threads_.resize(count);
    all_threads_.resize(count);
    std::iota(all_threads_.begin(), all_threads_.end(), 0);
    meetings_.resize((count + 31) / 32);
}

void Block::run(std::uint64_t number, BlockTrace* trace, Turns* turns, Workers& workers) {
    number_ = number;
    turns_ = turns;
    workers_ = &workers;
    trace_ = trace;
    if (trace_ != nullptr) origins_.begin_block();
    const dim3 grid = config_->grid;
    const dim3 index(number % grid.x, number / grid.x % grid.y, number / grid.x / grid.y);
    begin(number, index);
    const std::uint64_t masked_before = tally.masked_tiles;
    const Options& o = options();
    running_block = this;
    // The same block of the same launch gets the same turns, whichever worker runs it.
    scheduler_.run(static_cast<int>(threads_.size()), o.order, o.seed * 0x9e3779b9u + number + 1, *this);
    while (!scheduler_.failure() && wait_for_others()) scheduler_.go_on();
    running_block = nullptr;
    tally.blocks += 1;
    if (shows_comparisons_) {  // then masked tiles are seen, not told
        for (Thread& thread : threads_) end_tile(thread);
        tally.masked_tiles = masked_before + compared_.size();
    }
    if (scheduler_.failure()) std::rethrow_exception(scheduler_.failure());
    if (live_ > 0) {
        std::string counts;
        for (const CountWait& wait : count_waits_) {
            counts += fmt::format("; thread {} waits for a count of {}, and it stays {}", wait.thread,
                                  wait.value, *wait.count);
        }
        throw Report(Report::Kind::deadlock,
                     fmt::format("deadlock in block ({}, {}, {}): {}{}{}", index.x, index.y, index.z,
                                 scheduler_.describe_waiting(), hopper.describe_waiting(), counts));
    }
    hopper.end();
    Timeline timeline = time_.times();
    tally += timeline.counted();
    if (trace_ == nullptr) return;
    trace_->timeline = std::move(timeline);
    for (BlockTrace::Phase& phase : trace_->phases) {  // warpgroups came to theirs in any order
        std::sort(phase.tiles.begin(), phase.tiles.end(), [](const Tile& a, const Tile& b) {
            return std::tie(a.batch, a.head, a.query_tile, a.key_tile) <
                   std::tie(b.batch, b.head, b.query_tile, b.key_tile);
        });
    }
}

void Block::begin(std::uint64_t number, dim3 index) {
    const dim3 extent = config_->block;
    const int count = static_cast<int>(threads_.size());
    const Options& o = options();
    copied_lines_.clear();
    shows_comparisons_ = false;
    compared_.clear();
    recorded_ = tally;
    live_ = count;
    at_barrier_ = 0;
    lands_shuffled_ = o.late_copies && o.order == Order::shuffled;
    std::memset(shared_.get(), 0xff, shared_bytes_);  // NaN in every floating-point type
    if (config_->checked) {
        clocks_.begin(first_serial_ + static_cast<std::uint32_t>(number), first_serial_, count);
        checker_.begin_block(count);
    }

    builtins = {.thread = {}, .block = index, .block_extent = extent, .grid_extent = config_->grid};
    for (auto& meetings : meetings_) meetings.clear();
    mbarriers_.clear();
    count_waits_.clear();
    hopper.begin();
    time_.begin(count);
    for (int id = 0; id < count; ++id) {
        Thread& thread = threads_[id];
        const unsigned u = static_cast<unsigned>(id);
        thread.index = dim3(u % extent.x, u / extent.x % extent.y, u / extent.x / extent.y);
        thread.finished = false;
        thread.has_tile = false;
        thread.phase = 0;
        thread.tiles = thread.scores = thread.comparisons = 0;
        thread.compared = false;
        thread.copies.clear();
    }
}

void Block::begin_turn(int id) {
    builtins.thread = threads_[id].index;
    hopper.begin_turn(id);
}

void Block::end_turn() {
    record_work();
    if (lands_shuffled_) land_some();
}

void Block::main(int id) {
    call_(parameters_);
    hopper.end_thread();
    threads_[id].finished = true;
    live_ -= 1;
    release_barrier_if_complete();
}

void Block::fail(const Report& report) {
    scheduler_.fail(std::make_exception_ptr(report));
}

std::unique_lock<std::mutex> Block::checked(const Moment& at, const void* address, std::size_t bytes,
                                            bool write, Via via, std::uintptr_t caller, int thread) {
    std::optional<Report> fault;
    try {
        return checker_.access(thread, at, address, bytes, write, via, caller);
    } catch (const Report& report) {
        fault = report;  // a thread that fails never leaves fail(), and must not stay in here
    }
    fail(*fault);
}

/// The phase of the trace that the running thread is in.
BlockTrace::Phase& Block::phase() {
    const std::size_t number = self().phase;
    while (trace_->phases.size() <= number) trace_->phases.emplace_back().warps.resize(meetings_.size());
    return trace_->phases[number];
}

/// What was counted since the last call is the running warp's.
void Block::record_work() {
    if (trace_ == nullptr) return;
    warp_record().work += tally - recorded_;
    recorded_ = tally;
}

void Block::record_read(const void* row, bool transposed) {
    if (!in_shared_memory(row)) return;
    const Place place = place_in_global_memory(origins_.source(place_of(row)));
    if (place.allocation == nullptr) return record_exchange(row, Origins::copied, false);
    auto& record = warp_record();
    (transposed ? record.read_transposed : record.read)[place.allocation].add(place.byte, Origins::copied);
}

void Block::record_exchange(const void* address, std::size_t bytes, bool write) {
    if (!in_shared_memory(address)) return;
    if (write) {
        origins_.store(place_of(address), bytes, scheduler_.current() / 32);
    } else {
        for (std::size_t n = 0; n < bytes; ++n) {
            const int warp = origins_.warp(place_of(address) + n);
            if (warp != Origins::nobody) warp_record().received[warp] += 1;
        }
    }
}

/// Masking takes a comparison for each score, of its key with a bound that the run knows; all else takes far
/// fewer. One in eight may be of a first key with a bound as small, which is not seen, and one may have been
/// taken for that of a copy.
void Block::end_tile(Thread& thread) {
    if (thread.tiles > 0 && thread.comparisons + 1 >= thread.scores * 7 / 8)
        compared_.emplace(thread.first, thread.tiles);
    thread.comparisons = 0;
    thread.compared = false;
}

void Block::note_tile(const Tile& tile) {
    end_tile(self());
    const int sharing = tile.threads == 0 ? static_cast<int>(threads_.size()) : tile.threads;
    const int place = scheduler_.current() % sharing;
    self().tiles += 1;
    self().first = scheduler_.current() - place;
    self().scores = tile.rows * tile.keys / sharing;
    const bool is_first = place == 0;
    if (is_first) {
        tally.tiles += 1;
        tally.masked_tiles += tile.masked;
    }
    if (trace_ == nullptr) return;
    time_.note(scheduler_.current(), tile);
    record_work();
    if (self().has_tile) self().phase += 1;
    self().has_tile = true;
    if (is_first) phase().tiles.push_back(tile);
}

void Block::note_row(int row, float m, float l) {
    if (trace_ == nullptr) return;
    RowState& state = warp_record().rows[row];
    state.m = m;
    state.l_of_lanes[scheduler_.current() % 4] = l;
}

// The lanes of a block take turns on stacks of their own, of which little is in the cache by then. So what
// most lanes go through has few variables, and what is rare has functions of its own.
void Block::meet(Op op, std::uint32_t mask, void* operands, MeetingBody body, Site site) {
    const int warp = scheduler_.current() / 32, lane = scheduler_.current() % 32;
    auto& meetings = meetings_[warp];
    auto meeting =
        std::find_if(meetings.begin(), meetings.end(), [=](const Meeting& m) { return m.mask == mask; });
    if (meeting == meetings.end()) {
        meeting = meetings.emplace(meetings.end());
        meeting->mask = mask;
    }
    if (meeting->arrived == 0) {
        meeting->op = op;
        meeting->site = site;
    }
    if ((mask >> lane & 1) == 0 || meeting->op != op || meeting->site.line != site.line)
        fail_to_meet(*meeting, op, site);
    meeting->operands[lane] = operands;
    meeting->arrived |= 1u << lane;
    if (meeting->arrived != mask) return scheduler_.wait(name(op), site);
    hold(*meeting, body);
}

void Block::fail_to_meet(const Meeting& meeting, Op op, Site site) {
    const int warp = scheduler_.current() / 32, lane = scheduler_.current() % 32;
    if ((meeting.mask >> lane & 1) == 0) {
        fail(Report::Kind::divergence,
             fmt::format("divergence: lane {} executes {} at {} with a mask that leaves it out", lane,
                         name(op), to_string(site)));
    }
    fail(Report::Kind::divergence,
         fmt::format("divergence in warp {}: lane {} executes {} at {}, lane {} executes {} at {}", warp,
                     __builtin_ctz(meeting.arrived), name(meeting.op), to_string(meeting.site), lane,
                     name(op), to_string(site)));
}

/// All lanes are here, of which the running one came last.
void Block::hold(Meeting& meeting, MeetingBody body) {
    const int warp = scheduler_.current() / 32, lane = scheduler_.current() % 32;
    time_.meet(warp, meeting.mask);
    body(meeting.operands, meeting.mask);
    if (meeting.op == Op::sync_warp && config_->checked) {
        int lanes[32], count = 0;
        for (std::uint32_t left = meeting.mask; left != 0; left &= left - 1) {
            lanes[count++] = 32 * warp + __builtin_ctz(left);
        }
        clocks_.meet({lanes, static_cast<std::size_t>(count)});
    }
    meeting.arrived = 0;
    scheduler_.make_ready(warp, meeting.mask & ~(1u << lane));
}

void Block::sync(Site site) {
    const auto number = static_cast<int>(tally.barriers);
    time_.signal(scheduler_.current(), &at_barrier_, number);
    time_.await(scheduler_.current(), &at_barrier_, number);
    at_barrier_ += 1;
    if (at_barrier_ < live_) return scheduler_.wait("__syncthreads", site);
    for (const auto& other : scheduler_.waiting()) {
        const bool elsewhere = other.what != nullptr && other.at.line != site.line;
        if (!elsewhere) continue;
        fail(Report::Kind::divergence,
             fmt::format("divergent __syncthreads: thread {} waits at {}, thread {} at {}",
                         &other - scheduler_.waiting().data(), to_string(other.at), scheduler_.current(),
                         to_string(site)));
    }
    release_barrier_if_complete();
}

void Block::release_barrier_if_complete() {
    if (at_barrier_ == 0 || at_barrier_ < live_) return;
    at_barrier_ = 0;
    time_.meet();
    record_work();
    tally.barriers += 1;
    copied_lines_.clear();
    recorded_ = tally;  // the barrier is no warp's own
    std::size_t last = 0;
    for (const Thread& thread : threads_) last = std::max(last, thread.phase);
    for (Thread& thread : threads_) {
        thread.phase = last + 1;
        thread.has_tile = false;
    }
    if (trace_ != nullptr) phase().behind_barrier = true;
    if (config_->checked) clocks_.meet(all_threads_);
    for (int id = 0; id < static_cast<int>(threads_.size()); ++id) {
        if (id != scheduler_.current() && !threads_[id].finished)
            scheduler_.make_ready(id / 32, 1u << id % 32);
    }
}

void Block::fence() {
    tally.fences += 1;
    if (config_->checked) clocks_.fence(scheduler_.current());
}

bool Block::CountWait::is_over() const {
    return std::atomic_ref(const_cast<unsigned&>(*count)).load() == value;
}

void Block::wait_for_count(const unsigned* count, unsigned value, Site site, std::uintptr_t caller) {
    tally.global_load_bytes += sizeof *count;
    const CountWait wait{count, value, scheduler_.current()};
    for (;;) {
        {
            const auto checked = check(count, sizeof *count, false, Via::acquire, caller);
            if (wait.is_over()) break;
        }
        count_waits_.push_back(wait);
        scheduler_.wait("a count of other blocks", site);
    }
    fence();
}

bool Block::wait_for_others() {
    if (count_waits_.empty()) return false;
    const auto is_over = [](const CountWait& wait) { return wait.is_over(); };
    switch (workers_->wait([&] { return std::ranges::any_of(count_waits_, is_over); })) {
        case Workers::Waited::in_vain:
            return false;
        case Workers::Waited::given_up_on:
            running_block = nullptr;
            throw GivenUp();
        case Workers::Waited::reached:
            break;
    }
    std::erase_if(count_waits_, [&](const CountWait& wait) {
        if (!wait.is_over()) return false;
        scheduler_.make_ready(wait.thread / 32, 1u << wait.thread % 32);
        return true;
    });
    return true;
}

void Block::start_copy(void* shared, const void* global, bool valid, bool evict_first,
                       std::uintptr_t caller) {
    if (reinterpret_cast<std::uintptr_t>(shared) % 16 != 0 ||
        (valid && reinterpret_cast<std::uintptr_t>(global) % 16 != 0)) {
        fail(Report::Kind::misaligned,
             fmt::format("copy_async of an address that is not 16-byte aligned, at {}", source_of(caller)));
    }
    tally.async_copies += 1;
    tally.shared_tile_bytes += 16;
    if (std::exchange(self().compared, false)) self().comparisons -= 1;
    if (valid) {
        tally.global_load_bytes += 16;
        tally.evict_first_bytes += evict_first ? 16 : 0;
        constexpr std::uintptr_t line = 128, shared_lines = hopper_shared_bytes / line;
        const std::uintptr_t from = reinterpret_cast<std::uintptr_t>(global) / line;
        const std::uintptr_t at = static_cast<std::byte*>(shared) - shared_.get();
        std::uint8_t& copied = copied_lines_[from * shared_lines + at / line];
        const auto part = static_cast<std::uint8_t>(1u << at % line / 16);
        const bool anew = copied == 0 || (copied & part) != 0;  // the pair is new, or copied once more
        tally.copied_lines += anew;
        copied = anew ? part : copied | part;
    }
    if (trace_ != nullptr && in_shared_memory(shared))
        origins_.copy(place_of(shared), valid ? global : nullptr);
    // sm_75 has no asynchronous copy: there, it is done when it is started.
    const bool at_once = options().compute_capability < 80;
    CopyQueue& copies = self().copies;
    const Epoch number = copies.start({.reads = valid ? global : nullptr, .writes = shared, .bytes = 16});
    if (config_->checked) {
        const int thread = scheduler_.current();
        const Via via = at_once ? Via::wrapper : Via::copy;
        const Moment at = at_once ? clocks_.now(thread) : clocks_.copy(thread, number);
        if (valid) checked(at, global, 16, false, via, caller);
        checked(at, shared, 16, true, via, caller);
    }
    if (at_once || !options().late_copies) copies[copies.in_flight() - 1].land();
}

/// Of Order::shuffled: now and then a copy lands before it has to, and before older ones.
void Block::land_some() {
    CopyQueue& copies = threads_[scheduler_.draw(static_cast<int>(threads_.size()))].copies;
    const int in_flight = static_cast<int>(copies.in_flight());
    if (in_flight > 0) copies[scheduler_.draw(in_flight)].land();
    hopper.land_some();
}

void Block::wait_for_groups(int pending, std::uintptr_t caller) {
    finish_copies(self().copies.close_groups(pending), caller);
    tally.copies_left_in_flight += self().copies.in_flight();
}

void Block::wait_for_copies(std::uintptr_t caller) {
    CopyQueue& copies = self().copies;
    copies.close_groups(0);
    finish_copies(copies.started(), caller);
}

bool Block::warp_has_copies_in_flight() const {
    const auto first = threads_.begin() + scheduler_.current() / 32 * 32;
    const auto last = first + std::min<std::ptrdiff_t>(32, threads_.end() - first);
    return std::any_of(first, last, [](const Thread& thread) { return thread.copies.in_flight() > 0; });
}

/// On hardware a copy may be both waited for by its thread and tell an mbarrier. Here it is one or the other.
void Block::fail_on_two_waits(std::uintptr_t caller) {
    fail(Report::Kind::unsupported,
         fmt::format("a copy of thread {} arrives at an mbarrier, and is of a group or waited for, at {}",
                     scheduler_.current(), source_of(caller)));
}

/// The running thread's first n copies are over.
void Block::finish_copies(Epoch n, std::uintptr_t caller) {
    CopyQueue& copies = self().copies;
    if (n <= copies.started() - copies.in_flight()) return;  // it has waited for them before
    if (copies.has_told_mbarrier()) fail_on_two_waits(caller);
    copies.land(n);
    copies.forget(n);
    if (!config_->checked) return;
    checker_.copies_are_over(scheduler_.current(), n, false);
    clocks_.wait_for_copies(scheduler_.current(), n);
}

void Block::init_mbarrier(void* address, int arrivals, std::uintptr_t caller) {
    if (options().compute_capability < 80) {
        fail(Report::Kind::unsupported, fmt::format("mbarrier at {} needs sm_80", source_of(caller)));
    }
    if (mbarrier_at(address) != mbarriers_.end()) {
        fail(Report::Kind::wrong_phase, fmt::format("mbarrier_init at {} by thread {} of one that is set up",
                                                    source_of(caller), scheduler_.current()));
    }
    check(address, sizeof(std::uint64_t), true, Via::wrapper, caller);
    mbarriers_.push_back({.address = address,
                          .arrivals = arrivals,
                          .missing = arrivals,
                          .told = std::vector<Epoch>(threads_.size(), 0),
                          .landed = std::vector<Epoch>(threads_.size(), 0),
                          .arrived = {},
                          .released = {},
                          .waiting = {},
                          .loads = {},
                          .set_up_by = scheduler_.current()});
}

std::vector<Block::Mbarrier>::iterator Block::mbarrier_at(const void* address) {
    return std::find_if(mbarriers_.begin(), mbarriers_.end(),
                        [=](const Mbarrier& m) { return m.address == address; });
}

Block::Mbarrier& Block::find_mbarrier(void* address, std::uintptr_t caller) {
    const auto found = mbarrier_at(address);
    if (found == mbarriers_.end()) {
        fail(Report::Kind::uninitialized, fmt::format("mbarrier used at {} by thread {} before mbarrier_init",
                                                      source_of(caller), scheduler_.current()));
    }
    // Whoever uses it depends on what mbarrier_init wrote.
    check(address, sizeof(std::uint64_t), false, Via::wrapper, caller);
    return *found;
}

void Block::arrive(void* address, bool behind_copies, std::uintptr_t caller) {
    Mbarrier& mbarrier = find_mbarrier(address, caller);
    complete_if_over(mbarrier, true, caller);
    if (mbarrier.missing == 0) {
        fail(Report::Kind::wrong_phase,
             fmt::format("thread {} arrives at {} at an mbarrier whose phase {} has all its arrivals, and "
                         "waits for bytes",
                         scheduler_.current(), source_of(caller), mbarrier.phase));
    }
    tally.mbarrier_arrivals += 1;
    const int thread = scheduler_.current();
    time_.signal(thread, address, static_cast<int>(mbarrier.phase));
    if (behind_copies) {
        CopyQueue& copies = self().copies;
        if (copies.has_groups()) fail_on_two_waits(caller);
        copies.tell_mbarrier();
        mbarrier.told[thread] = copies.started();
        if (config_->checked) clocks_.release_copies(thread, copies.started(), mbarrier.arrived);
    } else if (config_->checked) {
        clocks_.release(thread, mbarrier.arrived);
    }
    mbarrier.missing -= 1;
    complete_if_over(mbarrier, false, caller);
}

void Block::complete_if_over(Mbarrier& mbarrier, bool must, std::uintptr_t caller) {
    if (mbarrier.missing > 0) return;
    if (mbarrier.started > mbarrier.expected) {
        fail(
            Report::Kind::wrong_bytes,
            fmt::format("the mbarrier at byte {} of shared memory expects {} bytes in its phase {}, and bulk "
                        "loads bring {}, seen at {}",
                        place_of(mbarrier.address), mbarrier.expected, mbarrier.phase, mbarrier.started,
                        source_of(caller)));
    }
    if (mbarrier.started < mbarrier.expected) return;
    const bool late = options().late_copies && !mbarrier.loads.empty();
    if (!late || must || !mbarrier.waiting.empty()) complete_phase(mbarrier);
}

/// All have arrived, so the copies that some of them waited for have landed.
void Block::complete_phase(Mbarrier& mbarrier) {
    for (int id = 0; id < static_cast<int>(threads_.size()); ++id) {
        if (mbarrier.landed[id] == mbarrier.told[id]) continue;
        mbarrier.landed[id] = mbarrier.told[id];
        threads_[id].copies.land(mbarrier.landed[id]);
        if (config_->checked) checker_.copies_are_over(id, mbarrier.landed[id], true);
    }
    for (BulkCopy& load : mbarrier.loads) load.land();
    mbarrier.loads.clear();
    mbarrier.expected = mbarrier.started = 0;
    mbarrier.phase += 1;
    if (config_->checked && mbarrier.agent != 0)
        clocks_.release(mbarrier.agent, mbarrier.phase, mbarrier.arrived);
    mbarrier.missing = mbarrier.arrivals;
    mbarrier.released = mbarrier.arrived;
    for (const int id : std::exchange(mbarrier.waiting, {})) {
        acquire(id, mbarrier);
        scheduler_.make_ready(id / 32, 1u << id % 32);
    }
}

void Block::wait_for_phase(void* address, int number, Site site, std::uintptr_t caller) {
    Mbarrier& mbarrier = find_mbarrier(address, caller);
    tally.mbarrier_waits += 1;
    const int present = static_cast<int>(mbarrier.phase);
    if (number == 0 || number == 1) number = present - ((present ^ number) & 1);  // a parity will do
    if (number != present && number != present - 1) {
        fail(Report::Kind::wrong_phase,
             fmt::format("thread {} asks at {} for phase {} of an mbarrier that is in phase {}",
                         scheduler_.current(), to_string(site), number, present));
    }
    time_.await(scheduler_.current(), address, number, &Timeline::mbarrier_stalls);
    if (number == present) {
        // The last one to be missing may be a bulk load that nobody has waited for.
        complete_if_over(mbarrier, true, caller);
    }
    if (number == static_cast<int>(mbarrier.phase)) {
        mbarrier.waiting.push_back(scheduler_.current());
        scheduler_.wait("an mbarrier", site);
    } else {
        acquire(scheduler_.current(), mbarrier);
    }
}

/// The thread learns that the last phase is complete, and what those who arrived knew.
void Block::acquire(int thread, const Mbarrier& mbarrier) {
    // The thread's own copies are over for it now, and not when the last thread arrived: so what is counted
    // among them does not depend on who ran first.
    threads_[thread].copies.forget(mbarrier.landed[thread]);
    if (config_->checked) clocks_.acquire(thread, mbarrier.released);
}

}  // namespace simt
