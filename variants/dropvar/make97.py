import os
def make(name, chains, prod, cons):
    src=open('stages/97_dropout_gradients/kernel.cu').read()
    a=src.index('struct Words {'); b=src.index('/// x, element c of S^T or dP^T;')
    per=f'''struct X{{}};'''
    counters='{{key, row + n % 2, h, b}}' if chains==1 else '{{key, row, h, b}, {key, row + 1, h, b}}' if chains==2 else '{{key, row, h, b}, {key, row + 1, h, b}, {key, row + 16, h, b}, {key, row + 17, h, b}}'
    word={1:'one',2:'two',4:'four'}[chains]
    new=f'''/// Philox4x32-10: makes four random words of each of {word} counters. The halves of the key are x and y.
__device__ void philox(std::uint32_t (&counters)[{chains}][4], std::uint32_t x, std::uint32_t y) {{
#pragma unroll
    for (int round = 0; round < 10; ++round) {{
        for (auto& c : counters) {{  // {word} chains: one goes on while another waits
            const std::uint64_t even = 0xD2511F53ull * c[0], odd = 0xCD9E8D57ull * c[2];
            c[0] = std::uint32_t(odd >> 32) ^ c[1] ^ x, c[1] = std::uint32_t(odd);
            c[2] = std::uint32_t(even >> 32) ^ c[3] ^ y, c[3] = std::uint32_t(even);
        }}
        x += 0x9E3779B9, y += 0xBB67AE85;  // the next round's key
    }}
}}

/// Writes the mask of a tile, 64 count queries and Bc keys: 1 for kept elements. Two warps call it. A lane's
/// counters, queries 2 q and 2 q + 1 of every 16 and key 2 t of 32, are those of the same four lanes.
template <int count>
__device__ void draw(const Problem& p, int x, int y, int batch, int head, int first_key, int first_row,
                     std::uint32_t (&kept)[count][128 * groups]) {{
    const int lane = threadIdx.x % 64, keys = lane / 16, t = lane / 4 % 4, q = lane % 4;
    const std::uint32_t key = first_key + 32 * keys + 2 * t, h = head, b = batch;
    const std::uint32_t rest = (256 - p.dropout.kept) * 0x01010101u;  // in each byte
    std::uint32_t bits[4] = {{}};                                       // of each word of 8 counters
    for (int m = 0; m < count; ++m) {{
#pragma unroll 1
        for (int n = 8 * m; n < 8 * m + 8; {'++n' if chains==1 else f'n += {chains}'}) {{
            const std::uint32_t row = first_row + n / 2 * 16 + 2 * q;
            std::uint32_t random[{chains}][4] = {counters};
            philox(random, x, y);
#pragma unroll
            for (int c = 0; c < {4*chains}; ++c) {{  // top bit of each byte: the sum of a random one and rest carries
                const std::uint32_t r = random[c / 4][c % 4], sum = (r & 0x7f7f7f7f) + (rest & 0x7f7f7f7f);
                const std::uint32_t carries = (r & rest) | ((r | rest) & sum);
                bits[c % 4] = (bits[c % 4] >> 1 & 0x7f7f7f7f) | (~carries & 0x80808080);
            }}
        }}
        for (int n = 0; n < 4; ++n) {{  // bytes 0 and 2 of two words, or 1 and 3
            const std::uint32_t even = bits[n / 2 * 2] >> n % 2 * 8, odd = bits[n / 2 * 2 + 1] >> n % 2 * 8;
            store(&kept[m][64 * keys + n / 2 * 32 + 8 * t + n % 2 * 4 + q], (even & 0xff00ff) | (odd & 0xff00ff) << 8);
        }}
    }}
}}

'''
    src=src[:a]+new+src[b:]
    def rep(x,y):
        nonlocal src
        assert src.count(x)==1,x; src=src.replace(x,y)
    rep('return kept >> (28 - 4 * n + c / 4 % 2 + c / 2 % 2 * 2) & 1 ? x : 0.0f;','return kept >> (n + c / 4 % 2 * 16 + c / 2 % 2 * 8) & 1 ? x : 0.0f;')
    rep('release_registers<24>',f'release_registers<{prod}>'); rep('claim_registers<240>',f'claim_registers<{cons}>')
    out='/work/keep/dropvar/'+name; os.makedirs(out,exist_ok=True); open(out+'/kernel.cu','w').write(src)
make('97_pairs',2,24,240)
make('97_carries',1,24,240)
