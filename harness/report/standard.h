/// @file
/// FlashAttention-1 and FlashAttention-2's algorithm against standard attention: time, bytes requested and
/// moved, workspace, and the papers' formulas, by sequence length.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "harness/base/table.h"
#include "harness/device/device.h"
#include "harness/report/chart.h"
#include "harness/time/profile.h"
#include "harness/time/results.h"

namespace ladder {

/// The stages that are compared: standard attention, FlashAttention-1, and 05, which holds O on the chip.
inline constexpr int standard_stage = 0, flash_attention_1_stage = 1, on_chip_stage = 5;

/// Accesses to HBM in elements, of one head, as FlashAttention's theorem 2 counts them with all constants 1:
/// N d + N^2 of standard attention, N^2 d^2 / M of FlashAttention-1 with an SRAM of M elements.
double standard_accesses(double N, double d);
double flash_attention_accesses(double N, double d, double M);

/// The M for which algorithm 1 of that paper takes key tiles of Bc: 4 d Bc.
double sram_of(int d, int Bc);

/// What a stage's threads request of global memory for one head without a mask. Counted at three small sizes;
/// at every multiple of 64 it is the same quadratic in N, since all tiles are whole.
class RequestedBytes {
  public:
    /// Throws CannotRun.
    RequestedBytes(Device& device, const Stage& stage, DType dtype, int d);
    /// Of N queries and N keys.
    double of(int N) const;

  private:
    std::array<double, 3> counted_{};  ///< at 1, 2 and 3 tiles of 64
};

/// One stage on one problem.
struct StandardCell {
    std::optional<double> milliseconds;  ///< empty if it was not timed, or was wrong
    double requested = 0;                ///< bytes that threads request
    std::optional<double> moved;         ///< bytes to and from HBM; empty if they were not measured
    double workspace = 0;                ///< bytes
};

/// One problem.
struct StandardRow {
    Shape shape;
    std::map<int, StandardCell> stages;
};

/// One row for each problem of the measurement. `bytes` is the profile of the same regime, if there is one;
/// `cpu` counts.
std::vector<StandardRow> standard_rows(const Results& results, const std::optional<Profile>& bytes,
                                       Device& cpu);

/// Times, speedups over 00, and the workspace.
Table standard_times(const std::vector<StandardRow>& rows);
/// Bytes requested, bytes moved, and the formulas' at 2 bytes for an element.
Table standard_bytes(const std::vector<StandardRow>& rows);
/// "d = 64: 01 is faster than 00 at N = 64 and 128.", a line for each head dimension
std::string crossovers(const std::vector<StandardRow>& rows);
/// Of a sweep's problems without a mask: how many blocks 01 and 05 have, the share of the multiprocessors
/// that gets one, and how fast they are.
Table grid_table(const Results& results);
/// Ratios to 00.
Chart standard_chart(const std::vector<StandardRow>& rows, const std::string& gpu);

}  // namespace ladder
