// The tensor maps of a launch, and its order of query tiles.
// Included by kernels of the part inside of their namespace.

/// X, in which two bytes are one element.
View pairs_of(const View& X) {
    return {X.data, X.batch / 2, X.head / 2, X.row / 2};
}

/// Those of a problem whose Q, K and V are e4m3.
template <class T, int d, class Sizes = Tile<d>>
PanelMaps<d> panel_maps(const Problem& p) {
    PanelMaps<d> maps = {
        tensor_map<e4m3x2, d / 2>(pairs_of(p.Q), p.B, p.H, p.Nq, 64),
        tensor_map<e4m3x2, d / 2>(pairs_of(p.K), p.B, p.Hkv, p.Nk, Sizes::Bc),
        {},
        tensor_map<T, d>(p.O, p.B, p.H, p.Nq, 16, Sizes::O_panels),
    };
    View V = pairs_of(p.V);
    for (TensorMap& map : maps.V) {
        map = tensor_map<e4m3x2, std::min(d, 128) / 2>(V, p.B, p.Hkv, p.Nk, Sizes::Bc);
        V.data = static_cast<std::byte*>(V.data) + 128;
    }
    return maps;
}

/// The order of the query tiles, of Br rows each.
TileOrder tile_order(const Problem& p, int Br, unsigned* taken) {
    const int Tr = ceil_div(p.Nq, Br), heads = p.B * p.H;
    const double KV_bytes = 2.0 * p.Nk * p.d * p.Hkv / p.H;  // of K and V, per query head
    const int section = int(std::clamp((16 << 20) / KV_bytes, 1.0, double(heads)));  // less than half of L2
    return {Tr, heads, section, Tr * heads, taken};
}
