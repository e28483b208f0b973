// ALiBi: a score is less by its head's slope times the distance of the key from the row's position, after
// what else becomes of it. Part of the namespace of the stages that include it.

template <class Score>
struct Alibi : Score {
    float per_key, distance[2];  // from this lane's first key to the positions of its rows

    __device__ Alibi(const Problem& p, int b, int h) : Score(p, b, h), per_key(0.0f) {
        if (p.alibi_slopes != nullptr) per_key = load(p.alibi_slopes + b * p.alibi_batch_stride + h) * log2_e;
    }
    __device__ void move_to(const Problem& p, int row, int key) {
        Score::move_to(p, row, key);
        for (int r = 0; r < 2; ++r) distance[r] = float(row + 8 * r + p.Nk - p.Nq - key);
    }
    __device__ float exponent(float s, float m, int c) const { return Score::exponent(s, m, c) - bias(c); }
    __device__ float bias(int c) const { return per_key * fabsf(distance[row_of(c)] - float(column_of(c))); }

    // The backward pass: a lane's rows are keys, and its columns are rows.
    __device__ void move_to_keys(int key_past_row) {
        for (int r = 0; r < 2; ++r) distance[r] = float(key_past_row + 8 * r);
    }
    __device__ float after_mask(float x, float L, int c) const {
        return Score::after_mask(x, L, c) - bias(c);
    }
};
