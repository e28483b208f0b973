/// @file
/// A small kernel of Hopper's instructions for the tests of the CPU back-end, whole or with one thing wrong.
/// hopper_cases.cu defines it for the checked back-end, and so race-checked.
#pragma once

#include <vector>

namespace simt_cases {

/// What is wrong with the kernel.
enum class Wrong {
    nothing,
    no_init_fence,        ///< no fence behind mbarrier_init
    no_wait_for_load,     ///< K used before it has come
    no_wait_for_readers,  ///< K loaded anew while it may be in use
    told_too_early,       ///< says that K has been read before it waits for the product that reads it
    too_many_bytes,       ///< expected of the bulk loads
    too_few_bytes,
    no_wgmma_fence,
    no_second_fence,      ///< P changes behind the first wgmma_fence
    no_product_wait,      ///< S read before its product is over
    accumulator_written,  ///< O scaled while a product adds to it
    A_written,            ///< P changes while a product reads it
    no_proxy_fence,       ///< O stored by threads, then by a bulk store
    no_barrier,           ///< between these two
    no_store_wait,        ///< leaves the kernel
    store_wait_too_late,  ///< O overwritten before the bulk store has read it
    barrier_count,
    descriptor,       ///< leaves its tile
    generic_operand,  ///< K stored by threads, with no fence_proxy_async
    copied_operand,   ///< K copied by copy_async, with the fence before the wait
    one_warp_behind,  ///< a warp leaves out a product
    no_released_registers
};

/// The last 60 of 64 rows are Q's, 100 keys in two tiles: O = (Q K^T) K, 60 x 64 in fp16, row by row. The
/// elements are -1, 0, 1.
std::vector<float> run_hopper_kernel(Wrong wrong);
/// Element i of Q, or of K.
float hopper_element(bool is_K, int i);

/// Two products of 8-bit elements, the first of which gives the second's A: 64 rows of Q, 128 keys, d = 128.
/// P is 1 where Q K^T is positive and 0 elsewhere: O = P V, 64 x 128, row by row. The elements are -1, 0, 1;
/// V is K.
/// @param permuted The keys of V^T lie as key_at() says. Otherwise they are in order, which is wrong.
std::vector<float> run_e4m3_kernel(bool permuted);

/// A kernel of products and exponentials, whose counts in the model's time are known: two warpgroups, each of
/// which in each of 8 rounds multiplies S = Q K^T (64 x 128), exponentiates it and multiplies O += P V (64 x
/// 128). d is 128, so each takes 512 clocks of the model if nobody else does the same. Each notes 8 key
/// tiles, of which it says that the last one is masked.
/// @param turns Only one of them at a time starts products: O += P V of a round and S of the next.
/// @param ahead S of the next round comes first of these two, and O goes on beside its exponentials.
void run_schedule_kernel(bool turns, bool ahead);

/// A warpgroup that writes a tile in each of 8 rounds, and one that reads it: sums of what each of its
/// threads has read. Two named barriers say that the tile is full, and empty.
/// @param one_barrier One says both. That is right only as long as neither warpgroup gets ahead.
std::vector<int> run_hand_over_kernel(bool one_barrier);

/// Two kernels of 2 blocks and 64 threads, the second launched early: thread i + 1's number from thread i of
/// the first, plus an input of 1000.
/// @param waiting Of these threads of each block, the ones below that number wait for the first kernel.
std::vector<int> run_early_kernel(int waiting);

/// Blocks of one thread that all wait for each other; each returns the sum of their numbers. Launched
/// together, or in order.
std::vector<int> run_meeting_kernel(int blocks, bool together);

}  // namespace simt_cases
