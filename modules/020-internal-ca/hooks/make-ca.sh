#!/usr/bin/env bash
# Makes a certificate authority once and keeps it: a config patch is written to the ConfigMap, so the authority is
# still there after a restart. A new one is made when the old one has less than 30 days left: every night the hook looks
# by itself, and what it changes makes the module run.
# Whoever may read the ConfigMap may read the key; for a production authority keep the key in a Secret instead.
set -euo pipefail

if [[ ${1:-} == --config ]]; then
  cat <<'YAML'
configVersion: v1
beforeHelm: 10
schedule:
  - name: every night
    crontab: TZ=UTC 17 3 * * *
YAML
  exit 0
fi

# Who brings an authority along without saying until when it is valid renews it, too.
until=$(jq -er '.internalCa.ca // {until: ""} | .until // "9999"' "$VALUES_PATH")
if [[ $until > $(date -u -d '+30 days' +%F) ]]; then
  exit 0
fi

# Nobody else may read what is written from here on; all of it goes away with the hook.
umask 077
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Helm is there anyway, and its templates know how to make an authority.
mkdir -p "$work/chart/templates"
printf 'apiVersion: v2\nname: ca\nversion: 0.0.1\n' >"$work/chart/Chart.yaml"
cat >"$work/chart/templates/ca.yaml" <<'TEMPLATE'
{{- $ca := genCA .Values.commonName (int .Values.days) }}
{{ dict "cert" $ca.Cert "key" $ca.Key | toJson }}
TEMPLATE
jq -e '.internalCa | {commonName, days}' "$VALUES_PATH" >"$work/values.json"
"${HELM_BIN_PATH:-helm}" template ca "$work/chart" --values "$work/values.json" >"$work/rendered"

until=$(date -u -d "+$(jq -er .days "$work/values.json") days" +%F)
sed -n '/^{/p' "$work/rendered" | jq -e --arg until "$until" \
  '[{op: "add", path: "/internalCa/ca", value: (. + {until: $until})}]' >"$CONFIG_VALUES_JSON_PATCH_PATH"
echo "made a new certificate authority"
