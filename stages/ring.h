/// @file
/// Several ranks, each with a GPU of its own, that divide a sequence: who holds what, and how it travels.
#pragma once

#include <array>
#include <cstddef>

namespace ladder {

/// Bytes to send, and where as many or others arrive.
struct Message {
    const void* send;
    std::size_t send_bytes;
    void* receive;
    std::size_t receive_bytes;
};

/// A rank's place in a ring of ranks. Messages are in the order of the rank's stream: one that starts after
/// a kernel sends what the kernel wrote, and a kernel after wait() reads what has arrived.
class Ring {
  public:
    virtual ~Ring() = default;
    virtual int rank() const = 0;
    virtual int ranks() const = 0;
    /// Query rows and keys of all ranks together
    virtual int Nq() const = 0;
    virtual int Nk() const = 0;
    /// Sends K and V to rank + 1 while those of rank - 1 arrive. Until wait() what is sent must not change,
    /// and where it arrives is undefined.
    virtual void start(const std::array<Message, 2>& K_V) = 0;
    virtual void wait() = 0;
};

/// The ring that runs of this thread are part of; null for a rank on its own.
Ring*& ring();

/// The first row of chunk c, of `chunks` that are as equal as can be; of chunk c = chunks, N.
constexpr int chunk_begin(int N, int chunks, int c) {
    return N / chunks * c + (c < N % chunks ? c : N % chunks);
}

/// Rows of chunk c
constexpr int chunk_rows(int N, int chunks, int c) {
    return chunk_begin(N, chunks, c + 1) - chunk_begin(N, chunks, c);
}

}  // namespace ladder
