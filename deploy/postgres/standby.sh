#!/bin/bash
# The standby: copies the primary when it has nothing yet, then follows it, under the name that the
# primary's commits wait for. A copy that was interrupted is begun anew.
set -eu
if [ ! -e "$PGDATA" ]; then
  rm -rf "$PGDATA.new"
  PGPASSWORD="$(cat "${REPLICATION_PASSWORD_FILE:-/run/secrets/replication_password}")" pg_basebackup \
    --dbname="host=${PRIMARY_HOST:-primary} port=${PRIMARY_PORT:-5432} user=replication application_name=standby" \
    --pgdata="$PGDATA.new" --write-recovery-conf --checkpoint=fast --wal-method=stream
  chmod 0700 "$PGDATA.new"
  mv "$PGDATA.new" "$PGDATA"
fi
exec "$@"
