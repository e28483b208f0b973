// Part of the namespace of the stages that include it.

/// Numbers begin .. end - 1, of rows, of keys or of key tiles
struct alignas(8) Range {
    int begin, end;

    __device__ bool holds(int n) const { return begin <= n && n < end; }
    __device__ bool holds(Range x) const { return begin <= x.begin && end >= x.end; }
    __device__ bool meets(Range x) const { return begin < x.end && end > x.begin; }
    __device__ int mirrored(int n) const { return begin + end - 1 - n; }
    __device__ Range hull(Range x) const { return {min(begin, x.begin), max(end, x.end)}; }
    __device__ Range common(Range x) const { return {max(begin, x.begin), min(end, x.end)}; }
};
