# shellcheck shell=bash
# shellcheck disable=SC2016  # the variables in single quotes are those of jq
# Answers to admission and conversion reviews. The last one given counts.
#
# --warning TEXT, as often as there are warnings: shown to whoever made the request, whatever the answer is.

# admission::allow [--warning TEXT]... [PATCH]: PATCH is a JSON patch, for mutating bindings.
admission::allow() {
  local usage='[--warning TEXT]... [PATCH]'
  local -a warnings=()
  admission::_warnings "$@" || hook::_usage "$usage" || return
  shift $((2 * ${#warnings[@]}))
  (($# <= 1)) || hook::_usage "$usage" || return
  hook::_answer ADMISSION_RESPONSE_PATH --rawfile patch /dev/stdin \
    '{allowed: true} + ($ARGS.positional | warnings)
      + if $patch == "\n" then {} else {patch: ($patch | document | tojson | @base64)} end' \
    --args "${warnings[@]/#/=}" <<<"${1-}"
}

# admission::deny [--warning TEXT]... MESSAGE
admission::deny() {
  local usage='[--warning TEXT]... MESSAGE'
  local -a warnings=()
  admission::_warnings "$@" || hook::_usage "$usage" || return
  shift $((2 * ${#warnings[@]}))
  (($# == 1)) || hook::_usage "$usage" || return
  hook::_answer ADMISSION_RESPONSE_PATH --arg message "$1" \
    '{allowed: false, $message} + ($ARGS.positional | warnings)' --args "${warnings[@]/#/=}"
}

# Adds the texts of all --warning to the caller's `warnings`.
admission::_warnings() {
  while [[ ${1-} == --warning ]]; do
    (($# > 1)) || return
    warnings+=("$2")
    shift 2
  done
}

# conversion::done [OBJECTS]: the converted objects, a JSON array, also on stdin; as many as were asked for.
conversion::done() {
  (($# <= 1)) || hook::_usage '[OBJECTS]' || return
  local body
  body=${1-$(cat)}
  hook::_answer CONVERSION_RESPONSE_PATH --rawfile body /dev/stdin '{convertedObjects: ($body | document)}' <<<"$body"
}

# conversion::fail MESSAGE
conversion::fail() {
  (($# == 1)) || hook::_usage MESSAGE || return
  hook::_answer CONVERSION_RESPONSE_PATH --arg message "$1" '{failedMessage: $message}'
}
