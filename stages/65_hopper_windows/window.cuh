// A sliding window, and a causal mask: a row sees the keys from `left` before its own position to `right`
// after it. Positions are aligned to the last key.

struct Window {
    /// The keys that a row sees. Neither bound decreases from one row to the next.
    __device__ static Range keys_of(const Problem& p, int row) {
        const int position = row + p.Nk - p.Nq, left = p.window.left, right = p.causal ? 0 : p.window.right;
        return {left < 0 ? 0 : max(0, position - left), right < 0 ? p.Nk : min(p.Nk, position + right + 1)};
    }

    /// The rows, of Nq, that see a key, of Nk. Neither bound decreases from one key to the next.
    __device__ static Range rows_of(const Problem& p, int Nq, int Nk, int key) {
        const int row = key - (Nk - Nq), left = p.window.left, right = p.causal ? 0 : p.window.right;
        return {right < 0 ? 0 : max(0, row - right), left < 0 ? Nq : min(Nq, row + left + 1)};
    }
};
