// A softcap c: a score s becomes c tanh(s / c). tanh is one instruction of the unit that computes
// exponentials. Part of the namespace of the stages that include it.

struct Softcap {
    float before, after;

    __device__ Softcap(const Problem& p, int, int)
        : before(divide(p.scale, p.softcap)), after(p.softcap * log2_e) {}
    __device__ void move_to(const Problem&, int, int) {}
    __device__ float exponent(float s, float m, int) const { return fast_tanh(s * before) * after - m; }
    template <int n>
    __device__ void correct(float*) const {}

    // The backward pass keeps the tanh until the scores are masked: its slope is 1 - tanh^2.
    static constexpr bool has_slope = true;
    __device__ void move_to_keys(int) {}
    __device__ float before_mask(float s, float) const { return fast_tanh(s * before); }
    __device__ float after_mask(float tanh, float L, int) const { return tanh * after - L; }
    __device__ float slope(float tanh) const {
        const float finite = fmaxf(tanh, -1.0f);  // 0 where it is -inf
        return 1.0f - finite * finite;
    }
};
