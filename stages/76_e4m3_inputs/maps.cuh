// What the kernel takes of them.
// Included by kernels of the part inside of their namespace.

/// Tensor maps of Q, K, the panels of V and O.
template <int d>
struct PanelMaps {
    TensorMap Q, K, V[ceil_div(d, 128)], O;
};
