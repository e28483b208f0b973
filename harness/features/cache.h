/// @file
/// The caches of K and V that requests are decoded from: each with its own number of keys, in pages or not.
#pragma once

#include <cstdint>
#include <vector>

#include "harness/problem/case.h"

namespace ladder {

/// (B,): the keys of each request; empty if each has all Nk.
std::vector<int> lengths_of(const Case& c);
/// The same of one request, Nk if nothing is said.
int length_of(const Case& c, int b);

/// (B, ceil(Nk / page_size)): which page of the pool holds which keys, drawn by the seed; -1 past the last
/// page of a request. Empty without pages.
std::vector<int> block_table(const Case& c);

/// How many of its first keys request b shares with the request before it, in the same pages: those of the
/// prefix; and with even seeds any number more.
int shared_keys(const Case& c, int b);

/// The first of the requests whose scales request b has in a cache of e4m3: those that share pages with each
/// other, one after the other, have the same.
int first_sharer(const Case& c, int b);

/// A page of the pool, or a request's part of a cache without pages: whose scales round it, and how many of
/// its keys this request has. A page that no request has is rounded as those of request 0.
struct SlotOwner {
    int request = 0, keys = 0;
};
std::vector<SlotOwner> slot_owners(const Case& c);

/// K or V of a case, from the dense (B, Hkv, Nk, d) of the host to the dense tensor that placement() places:
/// its pages, if there are any. Where no request has a key there is NaN, also before the first key that a
/// window leaves: a cache may have given up what no row will see again.
std::vector<std::uint16_t> in_slots(const Case& c, const std::vector<std::uint16_t>& dense);

}  // namespace ladder
