// ALiBi: a score is less by its head's slope times the distance of the key from the row's position, after
// what else becomes of it. Part of the namespace of the stages that include it.

/// The distance is linear in the key on either side of a row: one fused multiply-add a score, and another to
/// take off what keys on the other side of a tile's rows have too much.
template <class Score>
struct Alibi : Score {
    float decay, per_key;  // the slope; what a bias grows by from key to key, towards those before the row
    float distance[2];     // from this lane's first key to the positions of its rows

    __device__ Alibi(const Problem& p, int b, int h) : Score(p, b, h), decay(0.0f) {
        if (p.alibi_slopes != nullptr) decay = load(p.alibi_slopes + b * p.alibi_batch_stride + h) * log2_e;
    }
    __device__ void move_to(const Problem& p, int row, int key) {
        Score::move_to(p, row, key);
        for (int r = 0; r < 2; ++r) distance[r] = float(row + 8 * r + p.Nk - p.Nq - key);
        per_key = distance[1] > 0 ? decay : -decay;
    }
    __device__ float exponent(float s, float m, int c) const {
        const float at_first_key = m + per_key * distance[row_of(c)];
        return Score::exponent(s, at_first_key - per_key * float(column_of(c)), c);
    }
    /// What `exponent` gave for keys past a row, of a tile that has others, too
    template <int n>
    __device__ void correct(float* S) const {
        if (distance[1] > 0 && distance[0] < column_of(n - 1)) {
#pragma unroll
            for (int c = 0; c < n; ++c)
                S[c] -= 2 * decay * fmaxf(float(column_of(c)) - distance[row_of(c)], 0.0f);
        }
    }

    // The backward pass: a lane's rows are keys, and its columns are rows.
    __device__ void move_to_keys(int key_past_row) {
        for (int r = 0; r < 2; ++r) distance[r] = float(key_past_row + 8 * r);
    }
    __device__ float after_mask(float x, float L, int c) const {
        return Score::after_mask(x, L, c) - decay * fabsf(distance[row_of(c)] - float(column_of(c)));
    }
};
