export PATH=/tmp/dv2/bin:$PATH
# cc.sh FOLDER NAME
nice -n 15 nvcc -std=c++20 -arch=sm_90a -O3 -DNDEBUG -lineinfo -DLADDER_BACKEND=gpu -Xptxas -v -I/work/wt/dropout -cubin -o /tmp/dv2/$2.cubin $1/kernel.cu 2> /tmp/dv2/$2.log || { grep -m5 error /tmp/dv2/$2.log; exit 1; }
c++filt < /tmp/dv2/$2.log | python3 -c "
import sys,re
cur=''
for l in sys.stdin:
    m=re.search(r'Compiling entry.*?(\w+<[^>]*>)',l)
    if m: cur=m.group(1)
    if 'spill' in l: sp=l.strip()
    m=re.search(r'Used (\d+) reg',l)
    if m and '__half' not in cur: print(cur,m.group(1),'regs',sp)
    if 'arning' in l: print(l.strip()[:150])
"
