/// @file
/// Warp instructions: each lane leaves its operands, and the last one computes for all. Internal to simt/.
#pragma once

#include "simt/context.h"

namespace simt {

/// What lanes execute together. Its address tells it from others.
struct WarpInstruction {
    const char* name;  ///< in reports
    /// What it does once all lanes of `mask` have brought their operands.
    void (*body)(void* const (&operands)[32], std::uint32_t mask);
};

/// The meetings of a block's warps.
class Meetings : Part {
  public:
    using Part::Part;

    void begin_block() { meetings_.assign((context_.threads + 31) / 32, {}); }

    /// Waits until all lanes of `mask` have come. The last one computes.
    // The lanes of a block take turns on stacks of their own, of which little is in the cache by then. So
    // what most lanes go through has few variables, and what is rare has functions of its own.
    void meet(const WarpInstruction& instruction, std::uint32_t mask, void* operands, Site site) {
        const int lane = thread() % 32;
        auto& meetings = meetings_[warp()];
        auto meeting = std::ranges::find(meetings, mask, &Meeting::mask);
        if (meeting == meetings.end()) {
            meeting = meetings.emplace(meetings.end());
            meeting->mask = mask;
        }
        if (meeting->arrived == 0) {
            meeting->instruction = &instruction;
            meeting->site = site;
        }
        if ((mask >> lane & 1) == 0 || meeting->instruction != &instruction ||
            meeting->site.line != site.line)
            fail_to_meet(*meeting, instruction, site);
        meeting->operands[lane] = operands;
        meeting->arrived |= 1u << lane;
        if (meeting->arrived != mask) return context_.scheduler.wait(instruction.name, site);
        hold(*meeting);
    }

  private:
    struct Meeting {
        std::uint32_t mask = 0;
        std::uint32_t arrived = 0;
        const WarpInstruction* instruction = nullptr;
        Site site{};
        void* operands[32];
    };

    [[noreturn, gnu::noinline]] void fail_to_meet(const Meeting& meeting, const WarpInstruction& instruction,
                                                  Site site) {
        const int lane = thread() % 32;
        if ((meeting.mask >> lane & 1) == 0) {
            fail(Kind::divergence, "divergence: lane {} executes {} at {} with a mask that leaves it out",
                 lane, instruction.name, site);
        }
        fail(Kind::divergence, "divergence in warp {}: lane {} executes {} at {}, lane {} executes {} at {}",
             warp(), __builtin_ctz(meeting.arrived), meeting.instruction->name, meeting.site, lane,
             instruction.name, site);
    }
    /// All lanes have come, the running one last.
    [[gnu::noinline]] void hold(Meeting& meeting) {
        context_.time.meet(warp(), meeting.mask);
        meeting.instruction->body(meeting.operands, meeting.mask);
        meeting.arrived = 0;
        context_.scheduler.make_ready(warp(), meeting.mask & ~(1u << thread() % 32));
    }

    std::vector<std::vector<Meeting>> meetings_;  ///< of each warp
};

}  // namespace simt
