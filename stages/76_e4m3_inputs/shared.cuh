// What a block of the attention kernel holds in shared memory.
// Included by kernels of the part inside of their namespace.

struct alignas(16) TileIndex {
    int batch, head, tile;
};

/// Tiles are panels of rows of 128 bytes, in the swizzle of tensor maps and wgmma.
template <class T, int d, class Tiles = Tile<d>>
struct Shared {
    using Sizes = Tiles;
    static constexpr int panels = ceil_div(d, 128);  // at d = 64, half of a row is padding
    alignas(1024) e4m3x2 Q[Sizes::Q_slots][Sizes::groups][panels][64][64];
    alignas(1024) e4m3x2 K[Sizes::depth][panels][Sizes::Bc][64];    // tile k is in slot k % depth
    alignas(1024) e4m3x2 V[Sizes::depth][d][64];                    // transposed: rows of Bc keys
    alignas(1024) e4m3x2 V_rows[Sizes::V_slots][Sizes::Bc][64];     // a panel as it arrives
    alignas(1024) T O[4 * Sizes::groups][Sizes::O_panels][16][64];  // rows that a warp is about to store
    TileIndex tile[Sizes::Q_slots];  // the tile that Q belongs to; no tiles are left if batch < 0
    Mbarrier Q_full[Sizes::Q_slots], Q_empty[Sizes::Q_slots];
    Mbarrier K_full[Sizes::depth], V_full[Sizes::depth];             // phase k / depth: tile k has arrived
    Mbarrier K_empty[Sizes::depth], V_empty[Sizes::depth];           // phase k / depth: all have read tile k
    Mbarrier rows_full[Sizes::V_slots], rows_empty[Sizes::V_slots];  // of V_rows
};
