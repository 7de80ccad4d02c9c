#!/usr/bin/env bash
# Says every minute how long the certificate authority is still good, as a metric to alert on.
set -Eeuo pipefail
# shellcheck source=/dev/null
source "${ADDON_OPERATOR_SHELL_LIB:?comes from the operator}"

__config__() {
  # In a queue of its own it is on time even while the main queue is busy; a failure is not worth a second attempt,
  # the next minute comes anyway.
  cat <<'YAML'
configVersion: v1
afterHelm: 20
schedule:
  - name: every minute
    crontab: '@every 1m'
    queue: internal-ca
    allowFailure: true
YAML
}

# Whatever the reason: the schedule, or a new authority.
__main__() {
  local until
  values::has internalCa.ca.until || return 0 # somebody else's authority
  until=$(values::get internalCa.ca.until)
  metrics::set internal_ca_valid_seconds $(($(date -u -d "$until" +%s) - $(date +%s)))
}

hook::run "$@"
