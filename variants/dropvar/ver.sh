
for v in "$@"; do
 for s in "2,4,2,200,300,128" "1,2,2,333,333,128 --causal" "1,2,1,260,129,64" "1,4,2,400,400,64 --causal" "1,2,1,70,500,256 --causal" "1,2,1,300,200,256" "1,1,1,1,1,128" ; do
  case $v$s in 97*,256*) continue;; esac
  nice -n 10 build/lab verify /work/keep/dropvar/$v/ --shape $s --dropout 0.1,7 > /tmp/dv/ver.tmp.$v 2>&1; rc=$?
  echo "$v [$s] rc $rc $(tail -1 /tmp/dv/ver.tmp.$v | awk '{print $2,$3,$4,$5}')"
 done
 s="1,2,2,300,400,128 --causal"; nice -n 10 build/lab verify /work/keep/dropvar/$v/ --shape $s --dropout 0.5,3 --orders > /tmp/dv/ver.tmp.$v 2>&1; echo "$v orders p=0.5 rc $? $(tail -1 /tmp/dv/ver.tmp.$v)"
 nice -n 10 build/lab verify /work/keep/dropvar/$v/ --shape 1,2,2,300,400,128 > /tmp/dv/ver.tmp.$v 2>&1; echo "$v none rc $? $(tail -1 /tmp/dv/ver.tmp.$v)"
done
