/// @file
/// The multiply-adds of matrix products. Internal to simt/.
#pragma once

namespace simt {

/// D += A B, or D = A B if not `add`, for 4 rows and 8 columns: products of `depth` elements each, added one
/// by one in their order. So many sums at once keep the processor's adders busy while each waits for its
/// last. The strides are those of rows.
template <int depth>
inline void multiply_rows(const float* A, int A_stride, const float* B, int B_stride, float* D, int D_stride,
                          bool add) {
    float sum[4][8];  // nobody else's, so that the compiler may use vector registers
    for (int i = 0; i < 4; ++i) {
        for (int j = 0; j < 8; ++j) sum[i][j] = add ? D[i * D_stride + j] : 0.0f;
    }
    for (int k = 0; k < depth; ++k) {
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
            const float a = A[i * A_stride + k];
            for (int j = 0; j < 8; ++j) sum[i][j] += a * B[k * B_stride + j];
        }
    }
    for (int i = 0; i < 4; ++i) {
        for (int j = 0; j < 8; ++j) D[i * D_stride + j] = sum[i][j];
    }
}

}  // namespace simt
