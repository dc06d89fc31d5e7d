#!/bin/sh
# Installs what building and trying Weir takes: a C compiler with headers, libclang, libpam, make, ip for tests, PostgreSQL's server programs.
# Looks for the things themselves, not for packages: what was installed another way counts. Does nothing when all is
# there. Installs with apt-get, as root or through sudo; elsewhere it says what is missing.
set -eu

# The 95 of `rust-version = "1.95"`.
rust_min=$(sed -n 's/^rust-version = "1\.\([0-9]*\).*/\1/p' "$(dirname "$0")/../Cargo.toml")
cluster_conf=/etc/postgresql-common/createcluster.conf

any_exists() {
    for path in "$@"; do
        [ -e "$path" ] && return 0
    done
    return 1
}

# The library and the compiler's own headers: some desktops have only the first, and the build then misses stddef.h.
have_libclang() {
    any_exists "${LIBCLANG_PATH:-/usr/lib}"/libclang.so* "${LIBCLANG_PATH:-/usr/lib}"/libclang-[0-9]*.so* \
        /usr/lib/llvm*/lib/libclang.so* /usr/lib/llvm*/lib/libclang-[0-9]*.so* /usr/lib64/libclang.so* \
        /usr/lib/*-linux-gnu*/libclang-[0-9]*.so* /usr/local/lib/libclang.so* || return 1
    any_exists /usr/lib/llvm*/lib/clang/*/include/stddef.h /usr/lib*/clang/*/include/stddef.h \
        /usr/local/lib/clang/*/include/stddef.h
}

# The file that the linker looks for; programs need only libpam.so.0, which every Debian has.
have_libpam() {
    any_exists /usr/lib/libpam.so /usr/lib64/libpam.so /usr/lib/*-linux-*/libpam.so /lib/*-linux-*/libpam.so \
        /usr/local/lib/libpam.so
}

have_postgres() {
    for bin in "${WEIR_PG_BIN:-/usr/lib/postgresql/none/bin}" /usr/lib/postgresql/*/bin /usr/pgsql-*/bin; do
        [ -x "$bin/initdb" ] && [ -x "$bin/postgres" ] && return 0
    done
    command -v initdb >/dev/null && command -v postgres >/dev/null
}

check_rust() {
    if ! command -v cargo >/dev/null; then
        echo "missing: cargo. Install Rust 1.$rust_min or newer with rustup, as the user who builds; no root is needed." >&2
        exit 1
    fi
    version=$(cargo --version | sed -n 's/^cargo 1\.\([0-9]*\)\..*/\1/p')
    if [ -n "$version" ] && [ "$version" -lt "$rust_min" ]; then
        echo "too old: cargo 1.$version, Weir needs 1.$rust_min. With rustup: rustup update stable" >&2
        exit 1
    fi
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

# Fresh machines update themselves: another package manager may be at work for minutes. apt-get waits for dpkg's lock only if told to, and
# never for those on its lists and archives, so that it is asked again while it says that a lock is taken.
lock_wait_s=${WEIR_LOCK_WAIT_S:-600}

apt() {
    said=$(mktemp)
    waited_s=0
    while ! as_root env LC_ALL=C DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout="$lock_wait_s" "$@" 2>"$said"; do
        if [ "$waited_s" -ge "$lock_wait_s" ] || ! grep -Eq 'Could not get lock|Unable to lock' "$said"; then
            cat "$said" >&2
            rm -f "$said"
            return 1
        fi
        [ "$waited_s" -gt 0 ] || echo "Another package manager is at work; waiting for it, at most $lock_wait_s s."
        sleep 5
        waited_s=$((waited_s + 5))
    done
    cat "$said" >&2
    rm -f "$said"
}

install() {
    apt install --yes --no-install-recommends "$@"
}

# Debian's package makes and starts a server of its own on port 5432, which nobody asked for here. It is told not to,
# for this installation only, and only if there was no PostgreSQL of Debian's before: else the file is the operator's.
install_postgres() {
    if dpkg-query --show --showformat='${Status}' postgresql-common 2>/dev/null | grep -q 'ok installed'; then
        echo "postgresql-common is here already, so its settings stay: a server 'main' may be started on installation."
        install postgresql
        return
    fi
    echo "Setting create_main_cluster = false in $cluster_conf while PostgreSQL is installed: no server is started."
    install postgresql-common
    as_root cp -p "$cluster_conf" "$cluster_conf.weir"
    trap 'as_root mv -f "$cluster_conf.weir" "$cluster_conf"' EXIT
    trap 'exit 1' HUP INT TERM
    echo 'create_main_cluster = false' | as_root tee -a "$cluster_conf" >/dev/null
    install postgresql
}

missing=
command -v cc >/dev/null || missing="$missing gcc"
command -v make >/dev/null || missing="$missing make"
[ -e /usr/include/stdlib.h ] || missing="$missing libc6-dev"
have_libclang || missing="$missing libclang-dev"
have_libpam || missing="$missing libpam0g-dev"
any_exists /usr/sbin/ip /sbin/ip /usr/bin/ip /bin/ip || missing="$missing iproute2"
server=
have_postgres || server=postgresql

if [ -n "$missing$server" ]; then
    list=$(echo $missing $server)
    if ! command -v apt-get >/dev/null; then
        echo "missing: $list (Debian's names). There is no apt-get here: install them as your system does it." >&2
        exit 1
    fi
    if [ "$(id -u)" != 0 ] && ! command -v sudo >/dev/null; then
        echo "missing: $list. Neither root nor sudo here; as root: apt-get install $list" >&2
        exit 1
    fi
    echo "missing: $list. Installing with apt-get."
    apt update
    # The names are to be split at the blanks.
    # shellcheck disable=SC2086
    [ -z "$missing" ] || install $missing
    [ -z "$server" ] || install_postgres
fi
check_rust
