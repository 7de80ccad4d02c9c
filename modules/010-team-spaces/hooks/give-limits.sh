#!/usr/bin/env bash
# Gives every Namespace with the label `platform.example/space: team` default limits for its containers: those of the
# chart, and those that people make themselves.
#
# The hook does not look at what happened, but at what there is: the snapshot is that of now, so a Namespace that is gone
# before the hook runs is gone from the list, too, and a run that is repeated does the right thing.
set -Eeuo pipefail
# shellcheck source=/dev/null
source "${ADDON_OPERATOR_SHELL_LIB:?comes from the operator}"

__config__() {
  cat <<'YAML'
configVersion: v1
afterDeleteHelm: 10
kubernetes:
  - name: spaces
    kind: Namespace
    labelSelector:
      matchLabels: {platform.example/space: team}
    jqFilter: 'select(.status.phase == "Active") | .metadata.name'
    keepFullObjectsInMemory: false
    executeHookOnEvent: [Added, Modified]
    includeSnapshotsFrom: [spaces]
    queue: team-spaces
YAML
}

# The Synchronization and every event.
__on_kubernetes::spaces() {
  local space
  for space in $(spaces); do
    kubernetes::create_if_not_exists <<YAML
apiVersion: v1
kind: LimitRange
metadata:
  name: default-limits
  namespace: $space
spec:
  limits:
    - type: Container
      defaultRequest: {cpu: 50m, memory: 64Mi}
      default: {memory: 128Mi}
YAML
  done
}

# The module was switched off; the snapshots are still there.
__after_delete_helm() {
  local space
  for space in $(spaces); do
    kubernetes::delete_in_background -n "$space" LimitRange default-limits
  done
}

# A Namespace that is about to go has no filter result.
spaces() {
  context::jq -r '.snapshots.spaces[].filterResult // empty'
}

hook::run "$@"
