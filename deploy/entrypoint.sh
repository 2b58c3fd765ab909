#!/bin/sh
# Secrets come as files: PGPASSWORD_FILE names the file whose content becomes PGPASSWORD, and
# WHIM_STORE_FILE the one with the whole address, if that is the secret. At the end the command runs
# in place of this script, so that it gets the signals.
set -eu
for name in PGPASSWORD WHIM_STORE; do
  eval "file=\${${name}_FILE:-}"
  if [ -n "$file" ]; then
    value=$(cat "$file")
    export "$name=$value"
    unset "${name}_FILE"
  fi
done
# Compiled kernels are read and added to. On a read-only root, or as a user whom the folder does not
# belong to, a copy on the data's volume takes its place; what is there already stays.
if [ -n "${WHIM_CACHE_DIR:-}" ] && [ -d "$WHIM_CACHE_DIR" ] && ! [ -w "$WHIM_CACHE_DIR" ]; then
  copy=$(dirname "${WHIM_DATA:-/tmp/data}")/cache
  mkdir -p -m 700 "$copy"
  for kept in "$WHIM_CACHE_DIR"/kernels-*; do
    [ -e "$copy/${kept##*/}" ] || cp -R "$kept" "$copy/"
  done
  export WHIM_CACHE_DIR="$copy"
fi
exec "$@"
