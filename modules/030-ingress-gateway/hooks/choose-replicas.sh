#!/usr/bin/env bash
# One replica for each node, at least two if the platform is to survive the loss of a node, at most maxReplicas.
set -euo pipefail

if [[ ${1:-} == --config ]]; then
  cat <<'YAML'
configVersion: v1
beforeHelm: 10
YAML
  exit 0
fi

jq '
  (if .global.highAvailability then 2 else 1 end) as $least
  | ([.global.discovery.nodeCount, $least] | max) as $wanted
  | [{op: "add", path: "/ingressGateway/internal/replicas", value: ([$wanted, .ingressGateway.maxReplicas] | min)}]
' "$VALUES_PATH" >"$VALUES_JSON_PATCH_PATH"
