#!/bin/bash
# A standby of the service `primary`: copied at the first start.
set -eu
umask 077
if [ ! -s "$PGDATA/PG_VERSION" ]; then
    # A copy that was cut short is made anew.
    find "$PGDATA" -mindepth 1 -delete
    until pg_basebackup -d "host=primary user=replica application_name=$STANDBY_NAME" -D "$PGDATA" --write-recovery-conf --checkpoint=fast; do
        sleep 1
    done
fi
exec postgres
