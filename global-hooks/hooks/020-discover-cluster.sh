#!/usr/bin/env bash
# Finds out what the cluster is like and shares it with every chart and hook as `global.discovery`.
# It runs before every converge, and as soon as a node comes, goes or gets another address: global values that change
# bring every module up to date, so replicas follow the nodes.
set -euo pipefail

if [[ ${1:-} == --config ]]; then
  # Of a node only its address is of interest: what else changes in it does not run the hook, and is not kept.
  # No run for the nodes that exist already: beforeAll comes right after, and sees the same snapshot.
  cat <<'YAML'
configVersion: v1
beforeAll: 10
kubernetes:
  - name: nodes
    kind: Node
    jqFilter: '[.status.addresses[]? | select(.type == "InternalIP").address][0]'
    keepFullObjectsInMemory: false
    executeHookOnSynchronization: false
    includeSnapshotsFrom: [nodes]
YAML
  exit 0
fi

version=$("${KUBECTL:-kubectl}" get --raw /version | jq -er .gitVersion)

# The domain that people set wins; without one, a wildcard DNS name of the first node's address does for a start.
# Several events may come in one run; the snapshot is that of now, the same in all of them.
jq --arg version "$version" --arg domain "$(jq -r '.global.domain // ""' "$VALUES_PATH")" '
  .[0].snapshots.nodes as $nodes
  | ([$nodes[].filterResult // empty][0] // "127.0.0.1" | gsub("[.:]"; "-")) as $dashed
  | [{
      op: "add",
      path: "/global/discovery",
      value: {
        kubernetesVersion: $version,
        nodeCount: ($nodes | length),
        defaultDomain: (if $domain == "" then "\($dashed).sslip.io" else $domain end)
      }
    }]' "$BINDING_CONTEXT_PATH" >"$VALUES_JSON_PATCH_PATH"
