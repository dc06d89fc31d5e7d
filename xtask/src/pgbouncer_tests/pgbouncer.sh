#!/bin/sh
# Stands in PgBouncer's place: translates its configuration and becomes Weir. With --translate it only translates, as before a reload.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
ini= takeover= only=
for word; do
    case $word in
    --quiet) ;;
    --reboot) takeover=--takeover ;;
    --translate) only=yes ;;
    --version | --help) exec "$here/weir" "$word" ;;
    *) ini=$word ;;
    esac
done
folder=$(dirname "$ini")/weir
new=$folder.new
# Relative files are looked for beside the ini file; PgBouncer looks where it was started.
for file in hba_test.rules pgbouncer_hba.conf; do
    [ -e "$folder/../$file" ] || cp "$here/test/$file" "$(dirname "$ini")"
done
rm -rf "$new"
"$here/weir" import "$ini" --into "$new" 2>"$folder.notes" >&2
printf "takeover_socket = '%s/takeover'\nwork_dir = '%s'\n" "$folder" "$folder" >>"$new/pgpool.conf"
mkdir -p -m 700 "$folder"
mv "$new"/* "$folder"
# The import names this file, and has the operator copy it.
cp "$here/test/pgident.conf" "$folder"
if [ -z "$only" ]; then
    # A word or none.
    # shellcheck disable=SC2086
    exec "$here/weir" $takeover -f "$folder/pgpool.conf"
fi
