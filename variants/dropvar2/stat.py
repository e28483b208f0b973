import subprocess,sys,re
n=sys.argv[1]; fn=sys.argv[2]
for d in sys.argv[3:]:
    o=subprocess.run(['python3','/work/keep/dropvar2/show.py',f'/tmp/dv2/{n}.cubin',f'{fn}I13__nv_bfloat16Li{d}ELb0E'],capture_output=True,text=True).stdout.split('\n')
    for i,l in enumerate(o):
        m=re.match(r'(0x\w+) (0x\w+) (\d+) wide (\d+) gmma (\d+) max R (\d+)',l)
        if m and (m[5]=='0' and int(m[3])<300 or m[5]!='0' and int(m[4])==0):
            s=subprocess.run(['python3','/work/keep/dropvar2/stalls.py',f'/tmp/dv2/{n}.cubin',f'{fn}I13__nv_bfloat16Li{d}ELb0E',m[1],m[2]],capture_output=True,text=True).stdout.strip()
            print(n,d,l,s)
