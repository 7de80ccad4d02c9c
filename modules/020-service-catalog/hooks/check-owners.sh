#!/usr/bin/env bash
# Lets only owners into the catalog that exist: the platform itself, or a team with a Namespace `team-NAME`.
# An answer takes no request: the teams are a snapshot, kept up to date by a binding that runs the hook for nothing else.
set -Eeuo pipefail
# shellcheck source=/dev/null
source "${ADDON_OPERATOR_SHELL_LIB:?comes from the operator}"

__config__() {
  # Ignore: while the operator is away, entries come in unchecked, and nothing in the cluster is blocked.
  cat <<'YAML'
configVersion: v1
kubernetes:
  - name: teams
    kind: Namespace
    labelSelector:
      matchLabels: {platform.example/space: team}
    jqFilter: .metadata.name | ltrimstr("team-")
    keepFullObjectsInMemory: false
    executeHookOnSynchronization: false
    executeHookOnEvent: []
kubernetesValidating:
  - name: owners.catalog.platform.example
    rules:
      - apiGroups: [catalog.platform.example]
        apiVersions: [v1]
        resources: [catalogentries]
        operations: [CREATE, UPDATE]
    failurePolicy: Ignore
    timeoutSeconds: 5
    includeSnapshotsFrom: [teams]
YAML
}

__on_validating::owners.catalog.platform.example() {
  local owner owners
  owner=$(context::get review.request.object.spec.owner)
  owners=$(echo platform && context::jq -r '.snapshots.teams[].filterResult')
  if grep -qxF -- "$owner" <<<"$owners"; then
    admission::allow
  else
    admission::deny "spec.owner: there is no team $owner; a team has a Namespace team-$owner"
  fi
}

hook::run "$@"
