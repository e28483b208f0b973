import sys,os,subprocess
base=subprocess.check_output(['git','-C','/work/wt/dropout','show','s57:stages/99_hopper_dropout/kernel.cu'],text=True)
def make(name,last=False,one=False,early=False,probe=False,regs=(56,200),ring=0,loop=False):
    src=base
    def rep(a,b,n=1):
        nonlocal src
        assert src.count(a)==n,(a,src.count(a)); src=src.replace(a,b)
    rep(src[:src.index('\n\n')],'''// Stage 99: dropout on Hopper. Warps that do not multiply compute the mask of a tile, a bit per element, from
// random bytes that stage 64 defines. It is applied to P during the next scores.''')
    rep('constexpr int drawers = 3;         // warps of the producer\'s warpgroup that compute the mask\n','')
    rep('''    static constexpr int threads = 128 * (1 + groups);
    static constexpr int producer_registers = groups == 3 ? 32 : 40;
    static constexpr int consumer_registers = groups == 3 ? 160 : 232;
''',f'''    static constexpr int first = d == 128 ? 2 : 1;  // warpgroup that multiplies
    static constexpr int drawers = first + 2;       // warps that compute the mask, just before it
    static constexpr int threads = 128 * (first + groups);
    static constexpr int producer_registers = groups == 3 ? 32 : {regs[0]};
    static constexpr int consumer_registers = groups == 3 ? 160 : first == 2 ? {regs[1]} : 224;
''')
    rep('threadIdx.x / 32 - 1; n < words; n += drawers','threadIdx.x / 32 % Tile<d>::drawers; n < words; n += Tile<d>::drawers')
    rep('V_full[slot], 1 + drawers)','V_full[slot], 1 + 32 * Tile<d>::drawers)')
    rep('''            mbarrier_init(&shared.K_empty[slot], 4 * groups);  // by warps
            mbarrier_init(&shared.V_empty[slot], 4 * groups);''','''            mbarrier_init(&shared.K_empty[slot], 128 * groups);
            mbarrier_init(&shared.V_empty[slot], 128 * groups);''')
    rep('    if (group == 0) {','    if (group < Tile<d>::first) {')
    rep('if (uniform(threadIdx.x / 32) > 0) {','if (uniform(threadIdx.x / 32) >= 4 * Tile<d>::first - Tile<d>::drawers) {')
    rep('''#pragma unroll 1
                for (int j = 0, Tc = key_tiles(tile''','''                for (int j = 0, Tc = key_tiles(tile''')
    rep('                    const int slot = k % depth;\n','')
    rep('mbarrier_try_wait(&shared.V_empty[slot], k / depth - 1);  // tile k - depth was dropped','mbarrier_try_wait(&shared.V_empty[k % depth], k / depth - 1);  // tile k - depth')
    rep('draw<d>(p, x, y, tile, j, shared.dropped[slot]);','draw<d>(p, x, y, tile, j, shared.dropped[k % depth]);')
    rep('''                    __syncwarp();  // all lanes have written
                    if (threadIdx.x % 32 == 0) mbarrier_arrive(&shared.V_full[slot]);''','''                    mbarrier_arrive(&shared.V_full[k % depth]);''')
    rep('''                for (int w = 0; w < 4 * groups; ++w) {  // one that does not see the tile does not wait for it
                    if (j >= own_Tc[w / 4]) mbarrier_arrive(&empty[slot]);''','''                for (int t = 0; t < 128 * groups; ++t) {  // for those that do not see the tile
                    if (j >= own_Tc[t / 128]) mbarrier_arrive(&empty[slot]);''')
    rep('''            __syncwarp();                                   // all lanes have read their bits, too
            if (lane == 0) mbarrier_arrive(&empty[(k + j) % depth]);''','''            mbarrier_arrive(&empty[(k + j) % depth]);''')
    rep('const int g = group - 1,','const int g = group - Tile<d>::first,')
    rep('[(threadIdx.x / 32 - 4) * (Bc / 64)]','[(4 * g + threadIdx.x / 32 % 4) * (Bc / 64)]')
    rep('shared.O[threadIdx.x / 32 - 4]','shared.O[4 * g + threadIdx.x / 32 % 4]')
    a=src.index('/// Philox4x32-10'); b=src.index('/// Writes the mask of a tile of P')
    src=src[:a]+'''/// Philox4x32-10: turns a counter into four random words. The halves of the key are x and y.
__device__ void philox(std::uint32_t (&c)[4], std::uint32_t x, std::uint32_t y) {
#pragma unroll
    for (int round = 0; round < 10; ++round, x += 0x9E3779B9, y += 0xBB67AE85) {  // the key changes, too
        const std::uint64_t even = 0xD2511F53ull * c[0], odd = 0xCD9E8D57ull * c[2];
        c[0] = std::uint32_t(odd >> 32) ^ c[1] ^ x, c[1] = std::uint32_t(odd);
        c[2] = std::uint32_t(even >> 32) ^ c[3] ^ y, c[3] = std::uint32_t(even);
    }
}

'''+src[b:]
    if not one: rep('        philox(random, x, y);','        for (auto& c : random) philox(c, x, y);  // two chains: one goes on while the other waits')
    if one:
        a=src.index('        std::uint32_t random[2][4]'); b=src.index('        store(&to[n][lane], bits);')
        src=src[:a]+'''        std::uint32_t bits = 0;
#pragma unroll 1
        for (int half = 0; half < 2; ++half) {
            std::uint32_t random[4] = {key + 32 * half, row, h, b};
            philox(random, x, y);
#pragma unroll
            for (int c = 0; c < 4; ++c) {  // the top bit of each byte: the sum of a random one and rest carries
                const std::uint32_t r = random[c], sum = (r & 0x7f7f7f7f) + (rest & 0x7f7f7f7f);
                bits = (bits << 1 & 0xfefefefe) | (((r & rest) | ((r | rest) & sum)) >> 7 & 0x01010101);
            }
        }
'''+src[b:]
    rep('.change = "idle warps','.change = "other warps')
    if loop:
        a=src.index('/// Philox4x32-10'); b=src.index('/// Writes the mask of a tile of P')
        src=src[:a]+"""/// Philox4x32-10: turns two counters into four random words each.
__device__ void philox(std::uint32_t (&random)[2][4], std::uint32_t x, std::uint32_t y) {
#pragma unroll 1
    for (int round = 0; round < 10; ++round, x += 0x9E3779B9, y += 0xBB67AE85) {  // the key changes, too
        for (auto& c : random) {
            const std::uint64_t even = 0xD2511F53ull * c[0], odd = 0xCD9E8D57ull * c[2];
            c[0] = std::uint32_t(odd >> 32) ^ c[1] ^ x, c[1] = std::uint32_t(odd);
            c[2] = std::uint32_t(even >> 32) ^ c[3] ^ y, c[3] = std::uint32_t(even);
        }
    }
}

"""+src[b:]
        rep('for (auto& c : random) philox(c, x, y);  // two chains: one goes on while the other waits','philox(random, x, y);')
    if probe: rep('for (auto& c : random) philox(c, x, y);','if (p.dropout.kept < 256) for (auto& c : random) philox(c, x, y);')
    if early:
        rep('''        const auto start_product = [&](int j) {
            mbarrier_try_wait(&shared.V_full[(k + j) % depth], (k + j) / depth);
            drop(&shared.dropped[(k + j) % depth][(4 * g + threadIdx.x / 32 % 4) * (Bc / 64)], P);
''','''        const auto convert_and_drop = [&](int j) {
            convert<T>(S, P);
            mbarrier_try_wait(&shared.V_full[(k + j) % depth], (k + j) / depth);
            drop(&shared.dropped[(k + j) % depth][(4 * g + threadIdx.x / 32 % 4) * (Bc / 64)], P);
        };
        const auto start_product = [&](int j) {
''')
        rep('        softmax(0);\n        convert<T>(S, P);','        softmax(0);\n        convert_and_drop(0);')
        rep('            convert<T>(S, P);\n            if (rises)','            convert_and_drop(j);\n            if (rises)')
    if last:  # the drawing warpgroup has the highest numbers
        rep('    static constexpr int first = d == 128 ? 2 : 1;  // warpgroup that multiplies\n    static constexpr int drawers = first + 2;       // warps that compute the mask, just before it','    static constexpr int apart = d == 128, drawers = 3 + apart;  // the last warpgroup draws')
        rep('128 * (first + groups)','128 * (1 + groups + apart)')
        rep('first == 2 ? ','apart ? ')
        rep('group < Tile<d>::first','group == 0 || group > groups')
        rep('uniform(threadIdx.x / 32) >= 4 * Tile<d>::first - Tile<d>::drawers','Tile<d>::apart ? group > 0 : uniform(threadIdx.x / 32) > 0')
        rep('const int g = group - Tile<d>::first','const int g = group - 1')
    if ring:  # words have slots and barriers of their own
        rep('    std::uint32_t dropped[Tile<d>::depth]',f'    std::uint32_t dropped[{ring}]')
        rep('  // with V: see draw()','  // see draw()')
        rep('    Mbarrier K_full[Tile<d>::depth], V_full',f'    Mbarrier words_full[{ring}], words_empty[{ring}];\n    Mbarrier K_full[Tile<d>::depth], V_full')
        rep('1 + 32 * Tile<d>::drawers','1')
        rep('&shared.K_empty[slot], 128 * groups','&shared.K_empty[slot], groups')
        rep('&shared.V_empty[slot], 128 * groups','&shared.V_empty[slot], groups')
        rep('''        mbarrier_fence_init();''',f'''        for (int slot = 0; slot < {ring}; ++slot) {{
            mbarrier_init(&shared.words_full[slot], 32 * Tile<d>::drawers);
            mbarrier_init(&shared.words_empty[slot], 128 * groups);
        }}
        mbarrier_fence_init();''')
        rep('mbarrier_try_wait(&shared.V_empty[k % depth], k / depth - 1);  // tile k - depth',f'mbarrier_try_wait(&shared.words_empty[k % {ring}], k / {ring} - 1);  // tile k - {ring} was dropped')
        rep('shared.dropped[k % depth]',f'shared.dropped[k % {ring}]')
        rep('mbarrier_arrive(&shared.V_full[k % depth]);',f'mbarrier_arrive(&shared.words_full[k % {ring}]);')
        rep('''                for (int t = 0; t < 128 * groups; ++t) {  // for those that do not see the tile
                    if (j >= own_Tc[t / 128]) mbarrier_arrive(&empty[slot]);''','''                for (int g = 0; g < groups; ++g) {  // one that does not see the tile does not wait for it
                    if (j >= own_Tc[g]) mbarrier_arrive(&empty[slot]);''')
        rep('            mbarrier_arrive(&empty[(k + j) % depth]);','            if (threadIdx.x % 128 == 0) mbarrier_arrive(&empty[(k + j) % depth]);')
        rep('''            mbarrier_try_wait(&shared.V_full[(k + j) % depth], (k + j) / depth);
            drop(&shared.dropped[(k + j) % depth][(4 * g + threadIdx.x / 32 % 4) * (Bc / 64)], P);
''',f'''            mbarrier_try_wait(&shared.words_full[(k + j) % {ring}], (k + j) / {ring});
            drop(&shared.dropped[(k + j) % {ring}][(4 * g + threadIdx.x / 32 % 4) * (Bc / 64)], P);
            mbarrier_arrive(&shared.words_empty[(k + j) % {ring}]);
            mbarrier_try_wait(&shared.V_full[(k + j) % depth], (k + j) / depth);
''')
        rep('''            for (int j = 1; j < block_Tc; ++j) wait_turn(), pass_turn();
            k += block_Tc;''',f'''            for (int j = 1; j < block_Tc; ++j) wait_turn(), pass_turn();
            for (int j = 0; j < block_Tc; ++j) pass_words(j);
            k += block_Tc;''')
        rep('''        for (int j = Tc; j < block_Tc; ++j) wait_turn(), pass_turn();  // for tiles that only others see
''','''        for (int j = Tc; j < block_Tc; ++j) wait_turn(), pass_turn(), pass_words(j);  // for tiles that only others see
''')
        rep('''        const auto start_product = [&](int j) {
''',f'''        const auto pass_words = [&](int j) {{  // of a tile that this warpgroup does not see
            mbarrier_try_wait(&shared.words_full[(k + j) % {ring}], (k + j) / {ring});
            mbarrier_arrive(&shared.words_empty[(k + j) % {ring}]);
        }};
        const auto start_product = [&](int j) {{
''')
        rep('                const int slot = (k + j) % depth;\n','                const int slot = (k + j) % depth;\n')
    out='/work/keep/dropvar2/'+name; os.makedirs(out,exist_ok=True); open(out+'/kernel.cu','w').write(src)
    subprocess.check_call(['clang-format','-i','--style=file:/work/wt/dropout/.clang-format',out+'/kernel.cu'])
V={'99_a':{},'99_b_one_chain':dict(one=True),'99_c_early':dict(early=True),'99_e_last':dict(last=True),'99_d_probe':dict(probe=True),'99_h_loop':dict(loop=True),'99_f_ring':dict(ring=4),'99_g_ring_last':dict(ring=4,last=True)}
for n in sys.argv[1:] or V: make(n,**V[n])
