# Verifies the folders named: CPU, race-checked. VERIFY=lab of the worktree
cd /work/wt/dropout
for v in "$@"; do
 for s in "2,4,2,200,300,128" "1,2,2,333,333,128 --causal" "1,2,1,260,129,64" "1,4,2,400,400,64 --causal" "1,2,1,70,500,256 --causal" "1,2,1,300,200,256" "1,1,1,1,1,128" ; do
  case $v$s in 97*,256*) continue;; esac
  nice -n 15 build/lab verify /work/keep/dropvar2/$v/ --shape $s --dropout 0.1,7 > /tmp/dv2/ver.tmp.$v 2>&1; rc=$?
  echo "$v [$s] rc $rc $(tail -1 /tmp/dv2/ver.tmp.$v | awk '{print $2,$3,$4,$5}')"
 done
 s="1,2,2,300,400,128 --causal"; nice -n 15 build/lab verify /work/keep/dropvar2/$v/ --shape $s --dropout 0.5,3 --orders > /tmp/dv2/ver.tmp.$v 2>&1; echo "$v orders p=0.5 rc $? $(tail -1 /tmp/dv2/ver.tmp.$v)"
 nice -n 15 build/lab verify /work/keep/dropvar2/$v/ --shape 1,2,2,300,400,128 > /tmp/dv2/ver.tmp.$v 2>&1; echo "$v none rc $? $(tail -1 /tmp/dv2/ver.tmp.$v)"
done
