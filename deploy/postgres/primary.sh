#!/bin/bash
# Run once by the image of PostgreSQL, when the primary's directory is made: the role of the
# replicas, which make their own tables, and that of the standby. From the next start on, which
# follows at once, every commit waits for the standby.
psql --set ON_ERROR_STOP=1 --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" \
  --set whim="$(cat "${SECRETS:-/run/secrets}/whim_password")" \
  --set replication="$(cat "${SECRETS:-/run/secrets}/replication_password")" <<'SQL'
CREATE ROLE whim LOGIN PASSWORD :'whim';
GRANT CREATE ON DATABASE :"DBNAME" TO whim;
CREATE ROLE replication LOGIN REPLICATION PASSWORD :'replication';
ALTER SYSTEM SET synchronous_standby_names = 'standby';
SQL
echo "host replication replication all scram-sha-256" >> "$PGDATA/pg_hba.conf"
