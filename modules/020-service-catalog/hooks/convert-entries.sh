#!/usr/bin/env bash
# Converts catalog entries between the versions of their kind: what was `displayName` in v1alpha1 is `title` in v1.
set -Eeuo pipefail
# shellcheck source=/dev/null
source "${ADDON_OPERATOR_SHELL_LIB:?comes from the operator}"

__config__() {
  cat <<'YAML'
configVersion: v1
kubernetesCustomResourceConversion:
  - name: entries
    crdName: catalogentries.catalog.platform.example
    conversions:
      - {fromVersion: v1alpha1, toVersion: v1}
      - {fromVersion: v1, toVersion: v1alpha1}
YAML
}

__on_conversion::entries::v1alpha1::v1() {
  convert 'del(.displayName) + {title: .displayName}'
}

__on_conversion::entries::v1::v1alpha1() {
  convert 'del(.title) + {displayName: .title}'
}

# All objects of the request, in their order; everything but apiVersion and spec has to stay as it is.
convert() {
  context::jq "
    .review.request
    | .desiredAPIVersion as \$version
    | .objects | map(.apiVersion = \$version | .spec |= ($1))" | conversion::done
}

hook::run "$@"
