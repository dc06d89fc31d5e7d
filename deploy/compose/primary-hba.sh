#!/bin/bash
# The image lets clients of other machines into databases only; standbys need replication.
set -eu
echo "host replication replica all scram-sha-256" >> "$PGDATA/pg_hba.conf"
