// Attention sinks: a key more for each head, which every row sees and which has no value. It is added to a
// row's sum at the end, so that P is as accurate as without. Part of the namespace of the stages that include
// it.

struct Sinks {
    /// m and l of a row with its sink; returns the factor of O.
    __device__ static float add(const Problem& p, int h, float& m, float& l) {
        if (p.sinks == nullptr) return 1.0f;
        const float sink = load(p.sinks + h) * log2_e;
        const float before = l == 0.0f ? -inf : m;  // without a key m means nothing
        m = fmaxf(before, sink);
        const float factor = fast_exp2(before - m);
        l = l * factor + fast_exp2(sink - m);
        return factor;
    }
};
