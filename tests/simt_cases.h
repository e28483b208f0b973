/// @file
/// Small kernels for the tests of the CPU back-end. Most are broken on purpose, each in one way.
/// simt_cases.cu and, of asynchronous copies and mbarriers, copy_cases.cu define them for the checked
/// back-end, and so race-checked.
#pragma once

#include <cstdint>
#include <vector>

namespace simt_cases {

/// Each runs one launch, and throws what the launch throws.
void divergent_warp_instruction();
void divergent_barrier();
void left_out_of_mask();
void divergent_vote();
void vote_of_some();
void left_out_of_vote();
void deadlock_after_return();
void deadlock_two_barriers();
void missing_barrier();
void missing_barrier_after_read();
void missing_warp_sync();
void shuffle_as_barrier();
void same_value_writes();
void race_between_blocks();
void hand_over_without_fence();
void hand_over_without_barrier();
void hand_over_behind_others_fences();
void hand_over_without_second_fence();
void hand_over_to_every_block();
void hand_over_past_a_plain_count();
void atomic_on_shared_memory();
void unwritten_shared_memory();
void unwritten_static_shared_memory();
void missing_copy_wait();
void wait_for_too_few_groups();
void wait_without_a_commit();
void refill_before_the_warp_has_read();
void copy_over_a_tile_in_use();
void two_copies_to_one_place();
void two_groups_to_one_place();
void copies_of_two_warps_to_one_place();
void store_over_a_copy();
void store_to_what_a_copy_reads();
void mbarrier_two_copies_to_one_place();
void read_past_the_end();
void shared_memory_past_the_end();
void write_to_an_input();
void misaligned_copy();
void misaligned_store();
void too_much_shared_memory();
void bf16_mma();
void mbarrier_not_waited_for();
void mbarrier_with_copies_in_flight();
void mbarrier_missing_wait();
void mbarrier_wait_at_another();
void mbarrier_refill_too_early();
void mbarrier_arrival_without_syncwarp();
void mbarrier_without_a_barrier_behind_init();
void mbarrier_never_initialized();
void mbarrier_set_up_twice();
void mbarrier_wrong_phase();
void mbarrier_missing_arrival();
void mbarrier_and_copy_wait();
void mbarrier_and_copy_group();

/// Correct ones.
std::vector<int> static_shared_reversal();       ///< thread i's value from thread 63 - i
std::vector<int> warp_exchange_with_syncwarp();  ///< lane i's value from lane i ^ 1, through shared memory
std::vector<int> partial_masks();                ///< the odd and the even lanes shuffle among themselves
std::vector<int> votes();                        ///< 1 if lane 13 or 26 is of the lane's quarter, and 10
void mma_among_copies();                         ///< four mma by each of two warps, one of them behind a copy
std::vector<int> early_exit_then_barrier();      ///< half of the threads leave before a barrier of the rest
std::vector<int> block_numbers();                ///< blockIdx.x + 10 blockIdx.y + 100 blockIdx.z
std::vector<int> hand_over();  ///< the last of 8 blocks: the sum of what all wrote, twice; the count
std::vector<int> copy_again_behind_the_wait();  ///< word i of the second copy to one place
std::vector<int> lane_tells_by_an_mbarrier();   ///< word 0, which lane 0 wrote and told of by itself
std::vector<int> ring_of_copies();              ///< eight times word 127 - i, through a ring of two places
/// Thread i's sum, over eight tiles, of word 511 - i of a tile, through a ring of two places that four warps
/// fill and read, the later ones with more to do between tiles.
std::vector<int> ring_with_mbarriers();
/// Word 127 - i. The first of four warps copies and waits; the others learn of it by a barrier, or by a
/// second mbarrier at which the first one arrives.
std::vector<int> copies_told_by_a_barrier();
std::vector<int> copies_told_by_an_mbarrier();
std::vector<int> plain_accesses();  ///< loads and stores that nothing counts
/// One ldmatrix.x4 whose lane i names the row at i * stride_bytes of shared memory that counts up in ints.
std::vector<int> conflicting_ldmatrix(int stride_bytes);

}  // namespace simt_cases
