/// @file
/// Each instruction of the CUDA layer, run by one warp on fixed inputs. primitives.cu is compiled for every
/// back-end; what a GPU gave is recorded in tests/golden/primitives.json, and the CPU bodies are held to it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "harness/device/device.h"

namespace primitives {

/// The result of each primitive by name, as 32-bit words, lane by lane.
using Results = std::map<std::string, std::vector<std::uint32_t>>;

/// Runs all that `device` can (bf16 products need compute capability 8.0). The device's back-end must be
/// `backend`.
template <ladder::Backend backend>
Results run(ladder::Device& device);

/// The same for the instructions of stages/hopper.cuh, by a warpgroup. None on a GPU that lacks them (compute
/// capability 9.0), or in a build that is not for sm_90a.
template <ladder::Backend backend>
Results run_hopper(ladder::Device& device);

/// Of these, the ones of 8-bit elements; primitives_e4m3.cu has them.
template <ladder::Backend backend>
Results run_e4m3(ladder::Device& device);
/// What plain formulas say that it gives. On the CPU.
Results e4m3_by_formula();

#ifdef LADDER_HAS_CPU
/// What plain formulas say that run_hopper() gives.
Results hopper_by_formula();
#endif

}  // namespace primitives
