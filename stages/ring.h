/// @file
/// Several ranks, each with its own GPU, divide a sequence: which rank holds which part, and how parts
/// travel.
#pragma once

#include <cstddef>
#include <initializer_list>

#include "stages/stage.h"

namespace ladder {

/// What a rank sends, and where what it receives arrives. The two sizes may differ.
struct Message {
    const void* send = nullptr;
    std::size_t send_bytes = 0;
    void* receive = nullptr;
    std::size_t receive_bytes = 0;
};

/// A rank's place in a ring of ranks. Messages are ordered with the kernels of the rank's stream: one that
/// starts after a kernel sends what the kernel wrote, and a kernel after wait() reads what has arrived.
class Ring {
  public:
    virtual ~Ring() = default;
    /// This rank's number, and how many ranks the ring has
    virtual int rank() const = 0;
    virtual int ranks() const = 0;
    /// Query rows and keys of all ranks together
    virtual int Nq() const = 0;
    virtual int Nk() const = 0;
    /// Sends these to rank + 1 while as many from rank - 1 arrive. Until wait() returns, what is sent must
    /// not change, and the contents of what is received are undefined.
    virtual void start(std::initializer_list<Message> messages) = 0;
    /// Returns when all that was started has been sent and has arrived.
    virtual void wait() = 0;
    /// Parts of so many bytes, one for each rank: this rank's is sent to all others, and theirs arrive. A
    /// kernel that starts after it reads all of them. No other message may be on its way.
    virtual void all_gather(void* parts, std::size_t bytes) = 0;
};

/// The ring that the runs of this thread belong to; null for a single rank. Of that of a run to come,
/// workspace_bytes() may ask how many ranks() it has.
Ring*& ring();

/// The first row of chunk c, if N rows are cut into `chunks` whose sizes differ by at most 1; N if c =
/// chunks.
constexpr int chunk_begin(int N, int chunks, int c) {
    return N / chunks * c + (c < N % chunks ? c : N % chunks);
}

/// Rows of chunk c
constexpr int chunk_rows(int N, int chunks, int c) {
    return chunk_begin(N, chunks, c + 1) - chunk_begin(N, chunks, c);
}

/// Bytes of K, or of V, of so many rows
inline std::size_t part_bytes(const Shape& shape, int rows) {
    return std::size_t(shape.B) * shape.Hkv * rows * shape.d * 2;
}

/// A view of a received K or V: (B, Hkv, rows, d), contiguous.
inline View in_one_piece(void* data, const Shape& shape, int rows) {
    const std::int64_t head = std::int64_t{rows} * shape.d;
    return {data, head * shape.Hkv, head, shape.d};
}

/// The rows of a view from this one on
template <class T>
View from_row(View view, int row) {
    view.data = static_cast<T*>(view.data) + row * view.row;
    return view;
}

}  // namespace ladder
