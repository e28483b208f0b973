import json,math,sys
d=json.load(open(sys.argv[1]))
rows={}
for r in d['rows']:
    if r['timing']: rows.setdefault(tuple(r['shape'][k] for k in('B','H','Hkv','Nq','Nk')),{})[r['stage']]=r['timing']['median_ms']*1e3
for r in d['peers']:
    if r['timing']: rows.setdefault(tuple(r['shape'][k] for k in('B','H','Hkv','Nq','Nk')),{})[r['peer']]=r['timing']['median_ms']*1e3
L=[]
print("B H Hkv Nq Nk |  17 36 37 38 | cudnn fa3 fa4 fi | best/peers")
for k,v in rows.items():
    ours=min(v[s] for s in v if isinstance(s,int)); peers=min(v[s] for s in v if isinstance(s,str))
    L.append(peers/ours)
    gb=k[0]*k[2]*k[4]*128*4/1e3
    print(k, [round(gb/v[s]) for s in (17,36,37,38)], [round(gb/v[s]) if s in v else None for s in ('cuDNN','FlashAttention-3','FlashAttention-4','FlashInfer')], '%.2f'%(peers/ours), '***' if peers/ours<.97 else '', '%.1fus'%ours)
print(math.exp(sum(map(math.log,L))/len(L)), min(L), sum(x<.97 for x in L), len(L))
