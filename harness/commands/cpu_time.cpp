#include "harness/commands/cpu_time.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <string_view>
#include <thread>
#include <utility>

#include "harness/base/table.h"
#include "stages/errors.h"

namespace ladder {
namespace {

constexpr double patience_s = 120;

// Seconds of a core for a piece: the product of two 16 x 16 tiles. With B = 1, H = 4, N = 1024, d = 64, which
// are 131,072 of them, lab verify took 0.6 (stage 36) to 1.5 s (16) of a core of an EPYC on the plain
// back-end and 1.1 (36) to 5.4 s (01) on the checked one, with 0.4 s for the reference.
constexpr double plain_s = 1e-5, checked_s = 2.5e-5, reference_s = 3e-6;

// Of whole tiles, as kernels compute them; as if there were no mask, since not every stage skips.
double pieces(const Shape& s, Pass pass) {
    const auto tiles = [](int n) { return std::ceil(n / 16.0); };
    const double of_a_product = double(s.B) * s.H * tiles(s.Nq) * tiles(s.Nk) * tiles(s.d);
    return (pass == Pass::forward ? 2 : 5) * of_a_product;
}

int cores() {
#ifdef LADDER_HAS_CPU
    if (simt::options().workers > 0) return simt::options().workers;
#endif
    return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

// "about 3 hours"
std::string about(double seconds) {
    constexpr std::array<std::pair<double, std::string_view>, 3> units{
        {{86400, "day"}, {3600, "hour"}, {60, "minute"}}};
    for (const auto& [length, unit] : units) {
        if (seconds < 1.5 * length) continue;
        return "about " + counted(static_cast<std::uint64_t>(std::min(seconds / length + 0.5, 1e15)), unit);
    }
    return "about a minute";
}

}  // namespace

void CpuTime::add_run(const Device& device, const Stage& stage, const Shape& shape, int runs) {
    if (device.backend() == Backend::gpu || !stage.has_head_dim(shape.d)) return;
    core_seconds_ +=
        runs * pieces(shape, stage.pass) * (device.backend() == Backend::checked ? checked_s : plain_s);
}

void CpuTime::add_reference(const Shape& shape, Pass pass) {
    core_seconds_ += pieces(shape, pass) * reference_s;
}

double CpuTime::seconds() const {
    return core_seconds_ / cores();
}

LongOption::LongOption(Command& command) {
    command.flag("--long", given, "Compute on the CPU even if it takes more than two minutes");
}

void LongOption::require_patience(const CpuTime& time) const {
    if (time.seconds() <= patience_s) return;
    const std::string takes = about(time.seconds()) + " on " + counted(cores(), "core") + " of the CPU";
    if (!given)
        throw BadUsage(fmt::format("this would take {}; name a smaller problem, or --long to wait", takes));
    std::fprintf(stderr, "lab: this takes %s\n", takes.c_str());
}

BlockProgress::BlockProgress(const ProgressLine& progress) : progress_(progress) {
#ifdef LADDER_HAS_CPU
    simt::options().on_block = [this](std::uint64_t, const simt::Counters&) { on_block(); };
#endif
}

void BlockProgress::operator()(const std::string& what, int done, int total) {
    const std::lock_guard lock(mutex_);
    what_ = what, done_ = done, total_ = total, blocks_ = 0;
    progress_(what_, done_, total_);
}

void BlockProgress::on_block() {
    const std::lock_guard lock(mutex_);
    blocks_ += 1;
    if (Clock::now() - shown_ < std::chrono::milliseconds(100)) return;
    shown_ = Clock::now();
    progress_(fmt::format("{}, {} done", what_, counted(blocks_, "block")), done_, total_);
}

}  // namespace ladder
