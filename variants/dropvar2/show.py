import re,sys,subprocess,collections
# show.py cubin pat : backward-branch loops that contain IMAD.WIDE.U32 with Philox constants; prints stats (and body)
out=subprocess.run(['cuobjdump','-sass',sys.argv[1]],capture_output=True,text=True).stdout
pat=sys.argv[2]; fn=None; ins=[]
for line in out.split('\n'):
    m=re.search(r'Function : (\S+)',line)
    if m: fn=m.group(1); continue
    if fn and pat in fn:
        m=re.search(r'/\*([0-9a-f]{4,5})\*/\s+(.*?);',line)
        if m: ins.append((int(m.group(1),16),m.group(2)))
loops=[]
for a,t in ins:
    m=re.search(r'BRA.*?0x([0-9a-f]+)',t)
    if m and int(m.group(1),16)<a: loops.append((int(m.group(1),16),a))
for s,e in loops:
    body=[(a,t) for a,t in ins if s<=a<=e]
    ph=sum('IMAD.WIDE.U32' in t for a,t in body); wg=sum('GMMA' in t for a,t in body)
    if ph<5 and not wg: continue
    c=collections.Counter(re.sub(r'^@!?U?P\d+ ','',t).split()[0] for a,t in body)
    regs=set(int(x) for a,t in body for x in re.findall(r'\bR(\d+)\b',t))
    print(hex(s),hex(e),len(body),'wide',ph,'gmma',wg,'max R',max(regs) if regs else None)
    print('   ',dict(c.most_common(30)))
    if len(sys.argv)>3 and ph>=5 and wg==0: print('\n'.join('%05x %s'%x for x in body))
