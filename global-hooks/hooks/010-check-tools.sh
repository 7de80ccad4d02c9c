#!/usr/bin/env bash
# Stops early, with a sentence, when the image lacks a program that the hooks of this platform call.
set -euo pipefail

if [[ ${1:-} == --config ]]; then
  cat <<'YAML'
configVersion: v1
onStartup: 1
YAML
  exit 0
fi

missing=()
for tool in jq python3 "${KUBECTL:-kubectl}"; do
  command -v "$tool" >/dev/null || missing+=("$tool")
done
if ((${#missing[@]})); then
  echo "the hooks of this platform need programs that are not on PATH: ${missing[*]}" >&2
  exit 1
fi
