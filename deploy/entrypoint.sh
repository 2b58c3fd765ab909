#!/bin/sh
# Secrets come as files: PGPASSWORD_FILE names the file whose content becomes PGPASSWORD, and
# WHIM_STORE_FILE the one with the whole address, if that is the secret. Then the command runs in
# place of this script, so that it gets the signals.
set -eu
for name in PGPASSWORD WHIM_STORE; do
  eval "file=\${${name}_FILE:-}"
  if [ -n "$file" ]; then
    value=$(cat "$file")
    export "$name=$value"
    unset "${name}_FILE"
  fi
done
exec "$@"
