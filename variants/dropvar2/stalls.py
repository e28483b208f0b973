import re,sys,subprocess,collections
# stalls.py cubin pat START END: each instruction with its stall count, yield, barriers
out=subprocess.run(['cuobjdump','-sass',sys.argv[1]],capture_output=True,text=True).stdout
pat=sys.argv[2]; fn=None; ins=[]; lines=out.split('\n')
for i,line in enumerate(lines):
    m=re.search(r'Function : (\S+)',line)
    if m: fn=m.group(1); continue
    if fn and pat in fn:
        m=re.search(r'/\*([0-9a-f]{4,5})\*/\s+(.*?);\s+/\* 0x([0-9a-f]{16}) \*/',line)
        if m:
            hi=int(re.search(r'/\* 0x([0-9a-f]{16}) \*/',lines[i+1]).group(1),16)
            c=hi>>41
            ins.append((int(m.group(1),16),m.group(2),c&15,(c>>4)&1,(c>>5)&7,(c>>8)&7,(c>>11)&63))
s,e=int(sys.argv[3],16),int(sys.argv[4],16); tot=0
for a,t,st,y,wb,rb,wm in ins:
    if s<=a<=e:
        if len(sys.argv)>5: print('%5d %05x st%-2d %s w%d r%d m%02x  %s'%(tot,a,st,'-' if y else 'Y',wb,rb,wm,t))
        tot+=st
print('sum of stalls',tot,'instructions',sum(s<=x[0]<=e for x in ins))
