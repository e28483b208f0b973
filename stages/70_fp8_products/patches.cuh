// How a block that quantizes reads V, which it writes transposed.
// Included by kernels of the part inside of their namespace.

/// 16 keys of V and two columns, a thread's n-th. The lanes of a quad take 64 keys of the same columns, so
/// they write 64 contiguous bytes of a row of V^T.
struct Patch {
    int key, column;

    template <int d>
    __device__ static Patch at(int n) {
        const int i = threadIdx.x + n * threads_per_block;
        return {i / (2 * d) * 64 + i % 4 * 16, i / 4 % (d / 2) * 2};
    }
};

/// A thread's share of a block's rows of V: patches with their keys in the order of V^T.
template <class T, int d>
__device__ void load_patches(const Head<T>& head, int first, std::uint32_t (&pairs)[d / 4]) {
#pragma unroll
    for (int k = 0; k < d / 4; ++k) {
        const Patch patch = Patch::at<d>(k / 16);
        const int row = first + patch.key + key_at(k % 16);
        const T* pair = head.rows + row * head.stride + patch.column;
        pairs[k] = row < head.N ? load(reinterpret_cast<const std::uint32_t*>(pair)) : 0;
    }
}
