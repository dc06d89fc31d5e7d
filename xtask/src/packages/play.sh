# Played as root in a bare Debian by `cargo xtask packages`: $1 holds the commands of docs/install.md, one a line; the packages lie in this folder.
set -eu
page=$1
export PGPASSWORD=joes-secret PGCONNECT_TIMEOUT=10
through="psql -h localhost -p 9999 -U joe -X -A -t postgres"

say() { echo "== $*"; }
fail() { echo "FAILED: $*"; tail -n 30 /tmp/weir.log 2> /dev/null || true; exit 1; }

# Waits until a command succeeds, 30 s at most.
until_so() {
    deadline=$(($(date +%s) + 30))
    until "$@" > /dev/null 2>&1; do
        [ "$(date +%s)" -lt "$deadline" ] || fail "not within 30 s: $*"
        sleep 0.1
    done
}

# There is no systemd: the unit's user, folders and command are played, as its own words have them.
cat > /usr/local/bin/systemctl << 'SCRIPT'
#!/bin/sh
set -eu
unit=/lib/systemd/system/weir.service
word() { sed -n "s/^$1=//p" "$unit"; }
stop() {
    [ ! -e /run/weir/weir.pid ] || kill -INT "$(cat /run/weir/weir.pid)"
    for _ in $(seq 600); do
        [ -e /run/weir/weir.pid ] || return 0
        sleep 0.1
    done
    echo "weir has not ended in 60 s" >&2
    exit 1
}
case "$1" in
restart | start)
    stop
    user=$(word User)
    install -d -o "$user" -g "$user" -m "$(word StateDirectoryMode)" "/var/lib/$(word StateDirectory)"
    install -d -o "$user" -g "$user" "/run/$(word RuntimeDirectory)" "/var/log/$(word LogsDirectory)"
    cd /
    setsid env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 setpriv --reuid "$user" --regid "$user" --clear-groups --no-new-privs \
        $(word ExecStart) >> /tmp/weir.log 2>&1 < /dev/null &
    # As Type=notify: the command ends when clients can connect.
    for _ in $(seq 300); do
        [ ! -S /run/weir/.s.PGSQL.9999 ] || exit 0
        sleep 0.1
    done
    echo "weir does not serve clients after 30 s" >&2
    exit 1
    ;;
stop) stop ;;
esac
SCRIPT
chmod 755 /usr/local/bin/systemctl

begin=$(date +%s)
while read -r command; do
    say "$command"
    case "$command" in
    *"psql -h localhost"*) until_so sh -c "$command" ;;
    *) sh -eu -c "$command" > /tmp/said 2>&1 || { cat /tmp/said; fail "$command"; } ;;
    esac
    # Debian starts the server where an init system runs.
    case "$command" in
    *"install --yes postgresql") pg_ctlcluster "$(ls /etc/postgresql)" main start > /dev/null 2>&1 || true ;;
    esac
done < "$page"
[ "$($through -c 'SELECT 1')" = 1 ] || fail "no statement goes through"
say "from the first command to the first statement: $(($(date +%s) - begin)) s"

[ "$(stat -c '%U:%G %a' /etc/weir/pgpool.conf)" = "root:weir 640" ] || fail "rights of /etc/weir/pgpool.conf"
weir --version

say "an upgrade under a client within a transaction"
cd /
runuser -u postgres -- psql -q -c "CREATE TABLE kept (a int)" -c "GRANT ALL ON kept TO joe"
cd - > /dev/null
mkfifo /tmp/in
$through -q < /tmp/in > /tmp/out 2>&1 &
client=$!
exec 3> /tmp/in
echo "BEGIN; INSERT INTO kept VALUES (1); SELECT 'open';" >&3
until_so grep -q open /tmp/out
old=$(cat /run/weir/weir.pid)
apt-get install --yes --reinstall ./weir_*_amd64.deb > /tmp/said 2>&1 || { cat /tmp/said; fail "the upgrade"; }
grep -q "process [0-9]* serves new clients; process $old ends" /tmp/said || { cat /tmp/said; fail "no process was replaced"; }
new=$(cat /run/weir/weir.pid)
[ "$new" != "$old" ] || fail "the process is the same"
[ "$(readlink "/proc/$new/exe")" = /usr/bin/weir ] || fail "the new process is not of the installed file"
[ "$($through -c 'SELECT 2')" = 2 ] || fail "a new client is not served"
echo "COMMIT; SELECT 'committed', count(*) FROM kept;" >&3
exec 3>&-
wait "$client" || fail "the client was disconnected"
grep -q "committed|1" /tmp/out || fail "the transaction is lost: $(cat /tmp/out)"
until_so sh -c "! kill -0 $old"
say "process $old served its client to the end; process $new goes on"

say "the other packages"
apt-get install --yes ./weir-agent_*_amd64.deb ./weir-pgpool-compat_*_all.deb > /tmp/said 2>&1 || { cat /tmp/said; fail "their installation"; }
weir-agent --version | grep -q "^weir " || fail "weir-agent"
weir-agent --help | grep -q -- --secret-file || fail "weir-agent --help"
pgpool --version > /dev/null || fail "pgpool"
for name in $(dpkg -L weir-pgpool-compat | grep /sbin/); do
    "$name" --help > /dev/null 2>&1 || fail "$name --help"
done

say "remove and purge"
systemctl stop
apt-get remove --yes weir weir-agent weir-pgpool-compat > /tmp/said 2>&1 || { cat /tmp/said; fail "the removal"; }
[ ! -e /usr/bin/weir ] || fail "the program is still there"
grep -q weir_check /etc/weir/pgpool.conf || fail "the removal took the configuration"
apt-get install --yes ./weir_*_amd64.deb > /tmp/said 2>&1 || { cat /tmp/said; fail "a second installation"; }
grep -q weir_check /etc/weir/pgpool.conf || fail "a second installation took the configuration"
apt-get purge --yes weir weir-agent > /tmp/said 2>&1 || { cat /tmp/said; fail "the purge"; }
# Folders into which packages install, and those that the service has. apt keeps its own copies in /var/cache.
left=$(find /etc /usr /lib /opt /srv /run /var -xdev -name '*weir*' -not -path '/var/cache/*')
[ -z "$left" ] || fail "the purge left: $left"
! getent passwd weir || fail "the purge left the user"
say "nothing is left"
