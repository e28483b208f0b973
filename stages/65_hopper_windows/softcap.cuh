// A softcap c: a score s becomes c tanh(s / c). tanh is one instruction of the unit that computes
// exponentials. Part of the namespace of the stages that include it.

struct Softcap {
    float before, after, inverse;

    __device__ Softcap(const Problem& p, int, int)
        : before(divide(p.scale, p.softcap)), after(p.softcap * log2_e), inverse(divide(1.0f, after)) {}
    __device__ void move_to(const Problem&, int, int) {}
    __device__ float exponent(float s, float m, int) const { return fast_tanh(s * before) * after - m; }

    // The backward pass
    static constexpr bool has_slope = true;
    __device__ void move_to_keys(int) {}
    /// 1 - tanh^2, of an exponent; 0 where it is -inf
    __device__ float slope(float exponent, float L, int) const {
        const float tanh = fmaxf((exponent + L) * inverse, -1.0f);
        return 1.0f - tanh * tanh;
    }
};
