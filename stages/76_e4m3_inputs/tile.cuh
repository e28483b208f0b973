// The constants of attention on e4m3 inputs.
// Included by kernels of the part inside of their namespace.

constexpr float top = 5.0f;    // exponent of a row's largest P when m is set: e4m3 has few numbers below 1
constexpr float limit = 8.0f;  // O is rescaled only when P would exceed 2^8: e4m3 ends at 448

using e4m3x2 = std::uint16_t;  // two elements: what tensor maps and descriptors count

constexpr int transposing_warps = 3;  // the producer's warps 1 to 3

/// The constants that depend on d.
template <int d>
struct Tile {
    static constexpr int groups = d <= 128 ? 3 : 2;  // warpgroups that multiply, of 64 rows each
    static constexpr int threads = 128 * (1 + groups);
    static constexpr int producer_registers = groups == 3 ? 32 : 24;
    static constexpr int consumer_registers = groups == 3 ? 160 : 240;
    static constexpr int Br = 64 * groups;
    static constexpr int Bc = d == 128 ? 64 : 128;  // O, S and P of 128 keys at d = 128: 144 registers of 160
    static constexpr bool turns = d <= 128;         // at d = 256 exponentials take a small part of the time
    static constexpr int depth = d <= 128 ? 4 : 2;  // slots of K and V: stages of the pipeline
    static constexpr int V_slots = 2;               // of panels of V as they arrive
    static constexpr int Q_slots = d <= 128 ? 2 : 1;
    static constexpr int O_panels = d == 64 ? 1 : 2;  // panels that a warp stores at a time
};
