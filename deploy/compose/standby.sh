#!/bin/bash
# A standby of the service `primary`: copied at the first start.
set -eu
umask 077
if [ ! -s "$PGDATA/PG_VERSION" ]; then
    # A copy that was cut short is made anew.
    find "$PGDATA" -mindepth 1 -delete
    tries=60
    until pg_basebackup -d "host=primary user=replica application_name=$STANDBY_NAME" -D "$PGDATA" --write-recovery-conf --checkpoint=fast; do
        tries=$((tries - 1))
        [ "$tries" -gt 0 ] || { echo "the primary gave no copy in 60 tries" >&2; exit 1; }
        sleep 1
    done
fi
exec postgres
