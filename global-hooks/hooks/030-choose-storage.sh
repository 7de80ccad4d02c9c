#!/usr/bin/env bash
# Switches the module local-storage on when the cluster has no default StorageClass of its own, and off when it gets one.
# A key `localStorageEnabled` in the ConfigMap still has the last word.
set -euo pipefail

if [[ ${1:-} == --config ]]; then
  # The filter makes a class `true` that is a default and not ours: ours must not count, or the hook would switch the
  # module off again.
  cat <<'YAML'
configVersion: v1
beforeAll: 20
kubernetes:
  - name: classes
    apiVersion: storage.k8s.io/v1
    kind: StorageClass
    jqFilter: >-
      .metadata.annotations
      | .["storageclass.kubernetes.io/is-default-class"] == "true" and .["meta.helm.sh/release-name"] != "local-storage"
    keepFullObjectsInMemory: false
    executeHookOnSynchronization: false
    includeSnapshotsFrom: [classes]
YAML
  exit 0
fi

jq '[{op: "add", path: "/localStorageEnabled", value: ([.[0].snapshots.classes[].filterResult] | any | not)}]' \
  "$BINDING_CONTEXT_PATH" >"$VALUES_JSON_PATCH_PATH"
