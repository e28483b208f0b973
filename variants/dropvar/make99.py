import os,sys
def make(name, chains=2, arrive=False, extra=None, warp0=False, probe=False, unroll=None, regs=None, header=None):
    src=open('stages/99_hopper_dropout/kernel.cu').read()
    def rep(a,b,n=1):
        nonlocal src
        assert src.count(a)==n,(name,a,src.count(a)); src=src.replace(a,b)
    if header: rep(src[:src.index('\n\n')],header)
    if regs:
        rep('groups == 3 ? 32 : 40',f'groups == 3 ? {regs[2] if len(regs)>2 else 32} : {regs[0]}')
        rep('groups == 3 ? 160 : 232',f'groups == 3 ? {regs[3] if len(regs)>3 else 160} : {regs[1]}')
    if unroll:
        rep('#pragma unroll\n    for (int round',f'#pragma unroll {unroll}\n    for (int round')
    first='threadIdx.x / 32 - 1'
    if chains==4:
        rep('makes four random words of each of two counters. The halves of the key are x and y.',
            'makes four random words of each of four counters. The halves of the key are x and y.')
        rep('(&counters)[2][4]','(&counters)[4][4]')
        rep('// two chains: one goes on while the other waits','// four chains: three go on while one waits')
        rep('for the same lane of the warp that multiplies: 32 elements, which have two counters, and a byte each.',
            'for the same lane of the warp that multiplies: 32 elements, which have two counters, and a byte each.')
        a=src.index('    for (int n = threadIdx.x / 32 - 1; n < words'); b=src.index('/// Sets to 0 what dropout takes')
        src=src[:a]+'''    for (int n = 2 * (threadIdx.x / 32 - 1); n < words; n += 2 * drawers) {
        const std::uint32_t row = tile.tile * Br + n / (Bc / 64) * 16 + lane / 4, row2 = row + (Bc == 64 ? 16 : 0);
        const std::uint32_t key = j * Bc + lane % 4 * 2, k = key + (Bc == 64 ? 0 : 64);
        std::uint32_t random[4][4] = {{key, row, h, b}, {key + 32, row, h, b}, {k, row2, h, b}, {k + 32, row2, h, b}};
        std::uint32_t bits[2] = {};  // words n and n + 1
        philox(random, x, y);
#pragma unroll
        for (int c = 0; c < 16; ++c) {  // bit 7 - c % 8 of each byte: the sum of a random one and rest carries
            const std::uint32_t r = random[c / 4][c % 4], sum = (r & 0x7f7f7f7f) + (rest & 0x7f7f7f7f);
            bits[c / 8] |= ((r & rest) | ((r | rest) & sum)) >> c % 8 & 0x80808080 >> c % 8;
        }
        store(&to[n][lane], bits[0]), store(&to[n + 1][lane], bits[1]);
    }
}

'''+src[b:]
    if arrive:
        rep('V_full[slot], 1 + drawers)','V_full[slot], 1 + 32 * drawers)')
        rep('''            mbarrier_init(&shared.K_empty[slot], 4 * groups);  // by warps
            mbarrier_init(&shared.V_empty[slot], 4 * groups);''','''            mbarrier_init(&shared.K_empty[slot], 128 * groups);
            mbarrier_init(&shared.V_empty[slot], 128 * groups);''')
        rep('''                    __syncwarp();  // all lanes have written
                    if (threadIdx.x % 32 == 0) mbarrier_arrive(&shared.V_full[slot]);''','''                    mbarrier_arrive(&shared.V_full[slot]);''')
        rep('''                for (int w = 0; w < 4 * groups; ++w) {  // one that does not see the tile does not wait for it
                    if (j >= own_Tc[w / 4]) mbarrier_arrive(&empty[slot]);''','''                for (int t = 0; t < 128 * groups; ++t) {  // who does not see the tile does not wait for it
                    if (j >= own_Tc[t / 128]) mbarrier_arrive(&empty[slot]);''')
        rep('''            __syncwarp();                                   // all lanes have read their bits, too
            if (lane == 0) mbarrier_arrive(&empty[(k + j) % depth]);''','''            mbarrier_arrive(&empty[(k + j) % depth]);       // every thread: it has read its bits, too''')
    if extra:
        g,dr=('','7') if extra==1 else ('2 * ','11')
        rep('constexpr int drawers = 3;         // warps of the producer\'s warpgroup that compute random bytes\n','')
        rep('    static constexpr int threads = 128 * (1 + groups);\n', f'''    static constexpr int threads = 128 * (1 + groups + {g}(d == 128));  // {'two warpgroups' if extra==2 else 'a warpgroup'} only draw{'s' if extra==1 else ''}
    static constexpr int drawers = d == 128 ? {dr} : 3;  // warps: theirs and three of the producer's warpgroup
''')
        rep('n += drawers','n += Tile<d>::drawers')
        rep('32 * drawers' if arrive else '1 + drawers', '32 * Tile<d>::drawers' if arrive else '1 + Tile<d>::drawers')
        rep('for (int n = threadIdx.x / 32 - 1; n < words;','for (int w = threadIdx.x / 32, n = w < 4 ? w - 1 : w - 9; n < words;')
        rep('    if (group == 0) {','    if (group == 0 || group > groups) {')
    if probe: rep('        philox(random, x, y);','        if (p.dropout.kept < 256) philox(random, x, y);  // without dropout the words are counters, and nothing carries')
    if warp0:
        assert arrive
        rep('constexpr int drawers = 3;         // warps of the producer\'s warpgroup that compute random bytes','constexpr int drawers = 4;         // warps of the producer\'s warpgroup, which compute random bytes')
        rep('threadIdx.x / 32 - 1','threadIdx.x / 32')
        rep('''        if (uniform(threadIdx.x / 32) > 0) {
            const int x = uniform(int(p.dropout.seed)), y = uniform(int(p.dropout.seed >> 32));  // its halves
''','''        const int x = uniform(int(p.dropout.seed)), y = uniform(int(p.dropout.seed >> 32));  // its halves
        if (uniform(threadIdx.x / 32) > 0) {
''')
        rep('        if (threadIdx.x > 0) return;\n','        const bool copies = threadIdx.x == 0;\n')
        rep('''                store(&shared.tile[Q_slot], TileIndex{-1, 0, 0});
                mbarrier_arrive(&shared.Q_full[Q_slot]);
''','''                if (copies) store(&shared.tile[Q_slot], TileIndex{-1, 0, 0}), mbarrier_arrive(&shared.Q_full[Q_slot]);
''')
        rep('            store(&shared.tile[Q_slot], tile);\n','            if (copies) store(&shared.tile[Q_slot], tile);\n')
        rep('''                mbarrier_expect(&full[slot], sizeof ring[slot]);
                bulk_load(ring[slot], &map, j * Bc, h_kv, b, &full[slot]);
                for (int t = 0; t < 128 * groups; ++t) {  // who does not see the tile does not wait for it
                    if (j >= own_Tc[t / 128]) mbarrier_arrive(&empty[slot]);''','''                if (copies) mbarrier_expect(&full[slot], sizeof ring[slot]);
                if (copies) bulk_load(ring[slot], &map, j * Bc, h_kv, b, &full[slot]);
                for (int w = 0; w < 4 * groups; ++w) {  // one that does not see the tile does not wait for it
                    if (j >= own_Tc[w / 4]) mbarrier_arrive(&empty[slot]);  // each lane for one of its own''')
        rep('            mbarrier_expect(&shared.Q_full[Q_slot], sizeof shared.Q[Q_slot]);\n            for (int g = 0; g < groups; ++g) {','            if (copies) mbarrier_expect(&shared.Q_full[Q_slot], sizeof shared.Q[Q_slot]);\n            for (int g = 0; g < groups && copies; ++g) {')
        rep('''                copy(shared.V, maps.V, j, shared.V_full, shared.V_empty);
''','''                copy(shared.V, maps.V, j, shared.V_full, shared.V_empty);
                draw<d>(p, x, y, tile, j, shared.dropped[(k + j) % depth]);
                mbarrier_arrive(&shared.V_full[(k + j) % depth]);
''')
        rep('            n = gridDim.x + atomicInc(order.taken, order.total - 1);','            if (copies) n = gridDim.x + atomicInc(order.taken, order.total - 1);')
        i=src.index("// the last block's request wraps to 0"); e=src.index('\n',i)
        src=src[:e+1]+'            n = uniform(n);\n'+src[e+1:]
    rep('                    const int slot = k % depth;\n','')
    rep('mbarrier_try_wait(&shared.V_empty[slot], k / depth - 1);  // tile k - depth was dropped','mbarrier_try_wait(&shared.V_empty[k % depth], k / depth - 1);  // tile k - depth was dropped')
    rep('draw<d>(p, x, y, tile, j, shared.dropped[slot]);','draw<d>(p, x, y, tile, j, shared.dropped[k % depth]);')
    src=src.replace('mbarrier_arrive(&shared.V_full[slot]);','mbarrier_arrive(&shared.V_full[k % depth]);')
    rep(src[:src.index('\n\n')],'// Stage 99: dropout on Hopper. Idle warps draw a bit per element; P loses elements during the next scores.')
    out='/work/keep/dropvar/'+name
    os.makedirs(out,exist_ok=True); open(out+'/kernel.cu','w').write(src)
V={
 '99_regs': dict(regs=(56,224)),
 '99_four': dict(chains=4, regs=(56,224)),
 '99_arrive': dict(arrive=True),
 '99_four_arrive': dict(chains=4, arrive=True, regs=(56,224)),
 '99_four_loop': dict(chains=4, regs=(56,224), unroll=1),
 '99_four_warps': dict(chains=4, arrive=True, warp0=True, regs=(56,224)),
 '99_two_warps': dict(arrive=True, warp0=True, regs=(56,224)),
 '99_group_arrive': dict(extra=1, arrive=True, regs=('d == 128 ? 48 : 56','d == 128 ? 208 : 224')),
 '99_two_groups_arrive': dict(extra=2, arrive=True, regs=('d == 128 ? 32 : 56','d == 128 ? 192 : 224')),
 '99_probe': dict(probe=True),
}
for n in sys.argv[1:] or V: make(n,**V[n])
