// ALiBi: a score is less by its head's slope times the distance of the key from the row's position, after
// what else becomes of it. Part of the namespace of the stages that include it.

template <class Score>
struct Alibi : Score {
    float slope, distance[2];  // from this lane's first key to the positions of its rows

    __device__ Alibi(const Problem& p, int b, int h) : Score(p, b, h), slope(0.0f) {
        if (p.alibi_slopes != nullptr) slope = load(p.alibi_slopes + b * p.alibi_batch_stride + h) * log2_e;
    }
    __device__ void move_to(const Problem& p, int row, int key) {
        Score::move_to(p, row, key);
        for (int r = 0; r < 2; ++r) distance[r] = float(row + 8 * r + p.Nk - p.Nq - key);
    }
    __device__ float exponent(float s, float m, int c) const {
        return Score::exponent(s, m, c) - slope * fabsf(distance[row_of(c)] - float(column_of(c)));
    }
};
