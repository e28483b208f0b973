import re
def fix(p,*texts):
    s=open(p).read()
    parts=re.split(r'<<<<<<< [^\n]*\n(.*?)=======\n(.*?)>>>>>>> [^\n]*\n',s,flags=re.S)
    out=parts[0]; n=0
    for i in range(1,len(parts),3):
        t=texts[n]; t={'a':parts[i],'b':parts[i+1],'ab':parts[i]+parts[i+1]}.get(t,t)
        out+=t+parts[i+2]; n+=1
    assert n==len(texts),(p,n)
    open(p,'w').write(out)
