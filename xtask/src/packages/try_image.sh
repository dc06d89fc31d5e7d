# Runs the image's program in the folder $0 as a container's runtime does: user 10001, a read-only file system, a volume, variables.
set -eu
image=$0
ip link set lo up
mount --bind "$image" "$image"
mkdir -p "$image/proc" "$image/dev" "$image/run"
mount -t proc proc "$image/proc"
mount --rbind /dev "$image/dev"
mount -t tmpfs -o uid=10001,gid=10001,mode=700 state "$image/var/lib/weir"
mount -t tmpfs run "$image/run"
echo weir_check > "$image/run/user"
mount -o remount,bind,ro "$image"

# Takes the place of the shell, so that a signal reaches it.
run() {
    exec env -i WEIR_BACKEND_HOSTNAME0=127.0.0.1 WEIR_SR_CHECK_USER_FILE=/run/user \
        /usr/sbin/chroot --userspec=10001:10001 "$image" /usr/bin/weir "$@" -f /etc/weir/pgpool.conf --config-from-environment
}
(run run) 2> "/dev/shm/weir-image-$$" &
weir=$!
tries=0
until (run probe alive) > /dev/null 2>&1; do
    tries=$((tries + 1))
    [ "$tries" -lt 300 ] && kill -0 "$weir" || { cat "/dev/shm/weir-image-$$"; rm "/dev/shm/weir-image-$$"; echo "FAILED: the image's health check"; exit 1; }
    sleep 0.1
done
# No server is there: alive, but not ready.
! (run probe ready) > /dev/null 2>&1 || { echo "FAILED: ready without a server"; exit 1; }
(run show-config) | grep -q '^sr_check_user .*environment' || { echo "FAILED: variables"; exit 1; }
kill -INT "$weir"
wait "$weir" || { cat "/dev/shm/weir-image-$$"; echo "FAILED: the end of the image's process"; exit 1; }
rm "/dev/shm/weir-image-$$"
echo "== the image is alive as user 10001 on a read-only file system, and ends by SIGINT"
