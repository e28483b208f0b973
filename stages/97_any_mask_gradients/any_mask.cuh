// Which types a problem needs: the host's side of kernels that take every mask, score and sink, and dropout.
// Part of the namespace of the stages that include it.

/// Starts the kernels of this score. Under dropout the warps that multiply wait for those that draw, so they
/// have time for ALiBi's additions, whether the problem has slopes or not.
template <class T, int d, class Score, class Order>
void launch_with(const Problem& p) {
    using Mask = Ranges<Window>;
    if (p.dropout.kept < 256) {
        launch_gradients<T, d, Types<Mask, Dense, Alibi<Score>, Dropout, Order>>(p);
    } else if (p.alibi_slopes != nullptr) {
        launch_gradients<T, d, Types<Mask, InDocuments, Alibi<Score>, NoDropout, Order>>(p);
    } else {
        launch_gradients<T, d, Types<Mask, InDocuments, Score, NoDropout, Order>>(p);
    }
}

/// Starts the kernels of another mask. A changed score is chosen at run time, and one that is not changed
/// may be, as one of the cases of AnyScore.
template <class T, int d, class Mask, class Order, class Unchanged>
void launch_under(const Problem& p) {
    if (p.dropout.kept < 256) {
        launch_gradients<T, d, Types<Mask, Dense, AnyScore, Dropout, Order>>(p);
    } else if (p.softcap > 0 || p.alibi_slopes != nullptr) {
        launch_gradients<T, d, Types<Mask, Dense, AnyScore, NoDropout, Order>>(p);
    } else {
        launch_gradients<T, d, Types<Mask, Dense, Unchanged, NoDropout, Order>>(p);
    }
}

/// Starts the kernels of a problem, in one order under windows and in documents, in another under the rest.
template <class T, int d, class Order = AnyOrder, class Listed = Order, class Unchanged = Scaled>
void launch_any_mask(const Problem& p) {
    if (p.tiles.heads > 0) {
        launch_under<T, d, Tiles, Listed, Unchanged>(p);
    } else if (p.columns.count > 0) {
        launch_under<T, d, Columns<Window>, Listed, Unchanged>(p);
    } else if (p.softcap > 0) {
        launch_with<T, d, Softcap, Order>(p);
    } else {
        launch_with<T, d, Scaled, Order>(p);
    }
}
