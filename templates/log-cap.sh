# log-cap.sh FILE CAP: appends stdin to FILE; once FILE is above CAP bytes it is cut in place to its last CAP/2.
# dd never reads ahead and blocks in read while nothing comes; one round takes at most 256 KiB (256 reads).
# When the disk is full the rounds go to /dev/null, because tmux would keep in memory what nobody reads.
{
  umask 077
  LC_ALL=C
  export LC_ALL
  while :; do
    records=$(dd bs=1024 count=256 2>&1 >> "$1") || records=$(dd bs=1024 count=256 2>&1 > /dev/null) || exit 1
    case $records in 0+0*) exit 0 ;; esac
    size=$(wc -c < "$1") || continue
    if [ "$size" -gt "$2" ]; then
      tail -c "$(($2 / 2))" "$1" > "$1.tmp" && cat "$1.tmp" > "$1"
      rm -f "$1.tmp"
    fi
  done
}
