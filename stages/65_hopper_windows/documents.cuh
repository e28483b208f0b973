// Packed documents: a place. The producer finds the document of a query tile, and copies boxes that begin
// where the document begins. A document is computed as a separate problem, and no row past its end is stored.
// Part of the namespace of the stages that include it.

/// Rows first_row .. first_row + Nq - 1 of the packed sequence, and keys first_key .. first_key + Nk - 1
struct alignas(16) Document {
    int first_row, Nq, first_key, Nk;

    /// The numbers of document k begin with rows[k] / Br + k: that leaves room for all of its tiles, wherever
    /// it begins.
    static int tiles(const Problem& p, int Br) {
        return p.documents.count == 0 ? ceil_div(p.Nq, Br) : p.Nq / Br + p.documents.count;
    }

    /// The document of number `tile`, which becomes that in the document, if it has so many rows.
    __device__ bool find(const Problem& p, int Br, TileIndex& tile) {
        *this = {0, p.Nq, 0, p.Nk};
        if (p.documents.count > 0) {
            int k = 0, end = p.documents.count;
            while (k + 1 < end) {  // k's first number is at most this one, that of `end` is larger
                const int middle = (k + end) / 2;
                (load(p.documents.rows + middle) / Br + middle <= tile.tile ? k : end) = middle;
            }
            const int *rows = p.documents.rows + k, *keys = p.documents.keys + k;
            first_row = load(rows), first_key = load(keys);
            Nq = load(rows + 1) - first_row, Nk = load(keys + 1) - first_key;
            tile.tile -= first_row / Br + k;
        }
        return tile.tile * Br < Nq;
    }

    __device__ int entry(int batch) const { return batch + first_row; }  // a batch of its own for dropout

    /// A document as a problem of its own, whose rows and keys are counted from its first.
    __device__ Problem problem_of(Problem packed) const {
        packed.Nq = Nq, packed.Nk = Nk;
        return packed;
    }

    __device__ bool shares_box(const Problem& packed, int row) const {
        return Nq - row < 16 && first_row + Nq < packed.Nq;
    }
};
