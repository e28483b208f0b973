// A score that is chosen at run time: with a softcap or without, and with ALiBi, whose slopes are 0 where
// there are none. A branch for each tile of scores, which all threads take alike, takes the place of a kernel
// for each. Part of the namespace of the stages that include it, in both passes.

struct AnyScore {
    Alibi<Scaled> scaled;
    Alibi<Softcap> capped;
    bool has_softcap;

    __device__ AnyScore(const Problem& p, int b, int h)
        : scaled(p, b, h), capped(p, b, h), has_softcap(p.softcap > 0) {}
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
    score.has_softcap ? act(score.capped) : act(score.scaled);
}
