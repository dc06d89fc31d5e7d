#!/bin/sh
# Builds a PgBouncer that is newer than Debian 12's 1.18, for `cargo xtask bench` to compare with: from the source package of a newer
# suite of Debian, into target/peers (or the folder that is named). The system's own list of archives stays as it is. Does nothing when it
# is built already. Where it cannot be built, this script says why and ends well: the benchmark then takes the pgbouncer that is installed.
set -eu

# Fixed, so that everybody compares with the same version.
suite=${WEIR_PGBOUNCER_SUITE:-trixie}
mkdir -p "${1:-$(dirname "$0")/../target/peers}"
peers=$(cd "${1:-$(dirname "$0")/../target/peers}" && pwd)
keyring=/usr/share/keyrings/debian-archive-keyring.gpg

leave() {
    echo "No newer PgBouncer is built: $1. The benchmark takes the one that is installed." >&2
    exit 0
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

[ "$(cat "$peers/pgbouncer.suite" 2>/dev/null)" = "$suite" ] && [ -x "$peers/pgbouncer" ] && exit 0
command -v apt-get >/dev/null || leave "there is no apt-get here"
command -v cc >/dev/null && command -v make >/dev/null || leave "it takes cc and make"
[ -e "$keyring" ] || leave "there is no $keyring"
# The archive that this system takes its own packages from.
archive=$(apt-get indextargets --format '$(SITE)|$(LABEL)|$(COMPONENT)' | sed -n 's/^\(.*\)|Debian|main$/\1/p' | sort -u | head -n 1)
[ -n "$archive" ] || leave "this system has no archive of Debian's (after apt-get update)"

missing=
[ -e /usr/include/event2/event.h ] || missing="$missing libevent-dev"
[ -e /usr/include/openssl/ssl.h ] || missing="$missing libssl-dev"
command -v pkg-config >/dev/null || missing="$missing pkg-config"
if [ -n "$missing" ]; then
    [ "$(id -u)" = 0 ] || command -v sudo >/dev/null || leave "it takes$missing, and there is neither root nor sudo"
    # The names are to be split at the blanks.
    # shellcheck disable=SC2086
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 install --yes --no-install-recommends $missing \
        >/dev/null || leave "it takes$missing, which could not be installed"
fi

work=$peers/build
rm -rf "$work"
mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$work/parts"
echo "deb-src [signed-by=$keyring] $archive $suite main" >"$work/sources.list"
own() {
    apt-get -o "Dir::Etc::SourceList=$work/sources.list" -o "Dir::Etc::SourceParts=$work/parts" -o "Dir::State::Lists=$work/lists" \
        -o "Dir::Cache=$work/cache" -o "APT::Sandbox::User=$(id -un)" "$@"
}
cd "$work"
own update >log 2>&1 || leave "the list of Debian's $suite could not be fetched"
own source --download-only pgbouncer >>log 2>&1 || leave "the source package of Debian's $suite could not be fetched"
tar xzf pgbouncer_*.orig.tar.gz
cd pgbouncer-*/
echo "Building PgBouncer of Debian's $suite for the benchmark."
{ ./configure --without-cares && make -j2 pgbouncer; } >../log 2>&1 || leave "the build failed, see $work/log"
mv pgbouncer "$peers/pgbouncer"
cd "$peers"
rm -rf "$work"
echo "$suite" >pgbouncer.suite
./pgbouncer --version | head -n 1
