// The tensor maps of a launch, and the order in which its blocks take query tiles.
// Included by kernels of the part inside of their namespace.

struct Maps {
    TensorMap Q, K, V, O;
};

/// The order in which blocks take the query tiles of all heads. Without a mask they go head by head. With a
/// mask the longest tiles come first, within sections of heads whose K and V fit in the L2 cache.
struct TileOrder {
    int Tr, heads, section, total;  // heads = B H, total = Tr heads
    unsigned* taken;                // not counting each block's first; 0 before and after a launch

    /// The n-th of them
    template <bool causal>
    __device__ TileIndex at(const Problem& p, int n) const {
        int i = n % Tr, head = n / Tr;
        if constexpr (causal) {
            const int first = n / (section * Tr) * section, r = n % (section * Tr);
            const int together = min(section, heads - first);
            i = Tr - 1 - r / together;
            head = first + r % together;
        }
        return {head / p.H, head % p.H, i};
    }
};
