#!/usr/bin/env bash
# Makes a certificate authority once and keeps it: a config patch is written to the ConfigMap, so the authority is
# still there after a restart. A new one is made when the old one has less than 30 days left.
# Whoever may read the ConfigMap may read the key; for a production authority keep the key in a Secret instead.
set -euo pipefail

if [[ ${1:-} == --config ]]; then
  cat <<'YAML'
configVersion: v1
beforeHelm: 10
YAML
  exit 0
fi

thirty_days=$((30 * 24 * 3600))
if jq -er '.internalCa.ca.cert // empty' "$VALUES_PATH" | openssl x509 -noout -checkend "$thirty_days" >/dev/null 2>&1; then
  exit 0
fi

# Nobody else may read what is written from here on; all of it goes away with the hook.
umask 077
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes \
  -subj "/CN=$(jq -er .internalCa.commonName "$VALUES_PATH")" \
  -days "$(jq -er .internalCa.days "$VALUES_PATH")" \
  -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,cRLSign \
  -keyout "$work/key.pem" -out "$work/cert.pem" 2>"$work/openssl.log" || { cat "$work/openssl.log" >&2; exit 1; }

jq -n --rawfile cert "$work/cert.pem" --rawfile key "$work/key.pem" \
  '[{op: "add", path: "/internalCa/ca", value: {cert: $cert, key: $key}}]' >"$CONFIG_VALUES_JSON_PATCH_PATH"
echo "made a new certificate authority"
