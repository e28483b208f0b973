// A softcap c: a score s becomes c tanh(s / c). tanh is one instruction of the unit that computes
// exponentials. Part of the namespace of the stages that include it.

struct Softcap {
    float before, after;

    __device__ Softcap(const Problem& p, int, int)
        : before(divide(p.scale, p.softcap)), after(p.softcap * log2_e) {}
    __device__ void move_to(const Problem&, int, int) {}
    __device__ float exponent(float s, float m, int) const { return fast_tanh(s * before) * after - m; }
};
