#include "simt/block.h"

namespace simt {

// The attributes are the declarations' once more: in one unit with them, g++ would forget them here, and a
// library that is opened late would have no room that kernels' libraries can use.
thread_local constinit Block* running_block __attribute__((tls_model("initial-exec"))) = nullptr;
thread_local constinit Builtins builtins __attribute__((tls_model("initial-exec"))){};

void Block::begin_launch(const Launch& config, void (*call)(const void*), const void* parameters,
                         std::size_t bytes, std::uint32_t first_serial, std::uint32_t ended_serial) {
    config_ = &config;
    call_ = call;
    parameters_ = parameters;
    first_serial_ = first_serial;
    ended_serial_ = ended_serial;
    context.begin_launch(config, parameters, bytes);
    threads_.clear();
    const dim3 extent = config.block;
    for (unsigned id = 0; id < extent.count(); ++id)
        threads_.emplace_back(id % extent.x, id / extent.x % extent.y, id / extent.x / extent.y);
}

void Block::run(std::uint64_t number, BlockTrace* trace, Workers& workers) {
    const dim3 grid = config_->grid;
    const dim3 index(number % grid.x, number / grid.x % grid.y, number / grid.x / grid.y);
    begin(number, index, trace);
    atomics.begin_block(number, workers);
    Counters& tally = context.tally;
    const std::uint64_t masked_before = tally.masked_tiles;
    const Options& o = options();
    Scheduler& scheduler = context.scheduler;
    {
        const struct Running {
            explicit Running(Block* block) { running_block = block; }
            ~Running() { running_block = nullptr; }
        } running(this);
        // The same block of the same launch gets the same turns, whichever worker runs it.
        scheduler.run(context.threads, config_->together, o.order, o.seed * 0x9e3779b9u + number + 1, *this);
        while (!scheduler.failure() && atomics.wait_for_others()) scheduler.go_on();
    }
    tally.blocks += 1;
    // Then masked tiles are seen, not told.
    if (masked_tiles.is_shown()) tally.masked_tiles = masked_before + masked_tiles.count();
    if (scheduler.failure()) std::rethrow_exception(scheduler.failure());
    if (barrier.live() > 0) fail_on_deadlock(index);
    products.end_block();
    Timeline timeline = context.time.times();
    tally += timeline.counted();
    context.recorder.end_block(std::move(timeline));
}

void Block::begin(std::uint64_t number, dim3 index, BlockTrace* trace) {
    builtins = {.thread = {}, .block = index, .block_extent = config_->block, .grid_extent = config_->grid};
    const Options& o = options();
    lands_shuffled_ = o.late_copies && o.order == Order::shuffled;
    context.begin_block(first_serial_ + static_cast<std::uint32_t>(number), first_serial_, ended_serial_,
                        trace);
    meetings.begin_block();
    barrier.begin_block();
    copies.begin_block();
    mbarriers.begin_block();
    masked_tiles.begin_block(context.threads);
    bulk_copies.begin_block();
    named_barriers.begin_block();
    registers.begin_block();
    products.begin_block();
}

void Block::begin_turn(int id) {
    builtins.thread = threads_[id];
    products.registers.begin_turn(id);
}

void Block::end_turn() {
    context.recorder.end_turn(context.thread());
    if (!lands_shuffled_) return;
    copies.land_some();
    mbarriers.land_some();
}

void Block::main(int) {
    call_(parameters_);
    bulk_copies.end_thread();
    barrier.end_thread();
}

void Block::fail_on_deadlock(dim3 index) const {
    throw report(Report::Kind::deadlock, "deadlock in block ({}, {}, {}): {}{}{}{}{}", index.x, index.y,
                 index.z, context.scheduler.describe_waiting(), mbarriers.describe_waiting(),
                 named_barriers.describe_waiting(), registers.describe_waiting(), atomics.describe_waiting());
}

}  // namespace simt
