/// @file
/// The caches of K and V that requests are decoded from: each with its own number of keys, in pages or not.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "harness/problem/case.h"

namespace ladder {

/// Throws BadUsage unless the lengths of a case are numbers from 0 to Nk, at most B of them, its pages a
/// power of two of at most 2^16 keys, and its prefix whole pages that every row sees.
void require_cache(const Case& c);

/// (B,): the keys of each request; empty if each has all Nk.
std::vector<int> lengths_of(const Case& c);
/// The same of one request, Nk if nothing is said.
int length_of(const Case& c, int b);

/// The pages of the pool: as many as all requests would have if each had Nk keys, and one more. Those that no
/// request has are stale.
int pool_pages(const Case& c);

/// (B, ceil(Nk / page_size)): which page of the pool holds which keys, drawn by the seed; -1 past the last
/// page of a request. Empty without pages.
std::vector<int> block_table(const Case& c);

/// How many of its first keys request b shares with the request before it, in the same pages: those of the
/// prefix; and with even seeds any number more.
int shared_keys(const Case& c, int b);

/// K or V of a case, from the dense (B, Hkv, Nk, d) of the host to the dense tensor that placement() places:
/// its pages, if there are any. Where no request has a key there is NaN.
std::vector<std::uint16_t> in_slots(const Case& c, const std::vector<std::uint16_t>& dense);

/// What is left of the lengths and the prefix if B and Nk have become less.
void fit_cache(Case& c);

/// Lengths for it or none, of any size, half of them next to the ends of pages and tiles, some 0.
void draw_lengths(std::mt19937_64& random, Case& c);

/// Pages for it or none.
void draw_pages(std::mt19937_64& random, Case& c);

/// A prefix for it or none, if it has pages; some requests get longer.
void draw_prefix(std::mt19937_64& random, Case& c);

}  // namespace ladder
