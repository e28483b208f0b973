v=$1; bash cc.sh $v $v | grep gradients; grep -c C7512 /tmp/dv2/$v.log;  python3 stat.py $v gradients 128 64 2>/dev/null
