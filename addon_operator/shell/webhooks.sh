# shellcheck shell=bash
# shellcheck disable=SC2016  # the variables in single quotes are those of jq
# Answers to admission and conversion reviews. The last one given counts.

# admission::allow [PATCH]: PATCH is a JSON patch, for mutating bindings.
admission::allow() {
  (($# <= 1)) || hook::_usage '[PATCH]' || return
  hook::_answer ADMISSION_RESPONSE_PATH --rawfile patch /dev/stdin \
    '{allowed: true} + if $patch == "\n" then {} else {patch: ($patch | document | tojson | @base64)} end' <<<"${1-}"
}

# admission::deny MESSAGE
admission::deny() {
  (($# == 1)) || hook::_usage MESSAGE || return
  hook::_answer ADMISSION_RESPONSE_PATH --arg message "$1" '{allowed: false, $message}'
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
