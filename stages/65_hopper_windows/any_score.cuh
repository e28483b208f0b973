// Any score, with or without a softcap and with or without ALiBi, in one kernel: a branch for each tile of
// scores, which all threads take alike, where a type of its own takes a kernel of its own. Part of the
// namespace of the stages that include it, in both passes.

struct AnyScore {
    Alibi<Scaled> scaled;
    Alibi<Softcap> capped;
    bool has_softcap, has_slopes;

    __device__ AnyScore(const Problem& p, int b, int h)
        : scaled(p, b, h),
          capped(p, b, h),
          has_softcap(p.softcap > 0),
          has_slopes(p.alibi_slopes != nullptr) {}
    // Templates, since the scores of a pass have one of the two.
    template <class... At>
    __device__ void move_to(const At&... at) {
        scaled.move_to(at...), capped.move_to(at...);
    }
    template <class... At>
    __device__ void move_to_keys(const At&... at) {
        scaled.move_to_keys(at...), capped.move_to_keys(at...);
    }
};

template <class Act>
__device__ void choose(const AnyScore& score, const Act& act) {
    if (score.has_softcap) {
        score.has_slopes ? act(score.capped) : act(static_cast<const Softcap&>(score.capped));
    } else {
        score.has_slopes ? act(score.scaled) : act(static_cast<const Scaled&>(score.scaled));
    }
}
