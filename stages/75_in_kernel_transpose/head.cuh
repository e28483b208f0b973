// The heads that a kernel quantizes, V by rows like Q and K.
// Included by kernels of the part inside of their namespace.

/// A head of Q, K or V in 16 bits, and where its 8-bit copy goes.
template <class T>
struct Head {
    const T* rows;
    std::int64_t stride;
    int N;
    std::uint8_t* to;

    /// The n-th head, counting those of Q, then of K, then of V.
    __device__ static Head at(const Problem& p, const Quantized& to, int n) {
        const int Q_heads = p.B * p.H, KV_heads = p.B * p.Hkv;
        const bool is_Q = n < Q_heads, is_V = n >= Q_heads + KV_heads;
        const View& X = is_Q ? p.Q : is_V ? p.V : p.K;
        const int N = is_Q ? p.Nq : p.Nk, heads = is_Q ? p.H : p.Hkv;
        if (!is_Q) n -= is_V ? Q_heads + KV_heads : Q_heads;
        return {matrix<T>(X, n / heads, n % heads), X.row, N,
                (is_Q   ? to.Q
                 : is_V ? to.V
                        : to.K) +
                    std::int64_t{n} * N * p.d};
    }
};
