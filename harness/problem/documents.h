/// @file
/// Documents that are packed in one sequence, as a user types them and as a problem has them.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "harness/problem/case.h"
#include "reference/mask.h"

namespace ladder {

/// Throws BadUsage unless the documents of a case, if it has any, are a list of lengths, B is 1, and they
/// have Nq rows and Nk keys in all. A length is of rows and keys, "512", or of each: "1x512".
void require_documents(const Case& c);

/// Those of a case; none if it has none.
std::vector<reference::Document> documents_of(const Case& c);

/// Where the documents of a case begin: count + 1 rows, then count + 1 keys.
std::vector<int> document_bounds(const Case& c);

/// The case with one document less, or with one that is half as long.
std::vector<Case> smaller_documents(const Case& c);

/// Documents for so many rows and keys: of any length, half of the bounds next to those of tiles, some empty.
std::string random_documents(std::mt19937_64& random, int Nq, int Nk);

}  // namespace ladder
