# shellcheck shell=bash
# shellcheck disable=SC2016  # the variables in single quotes are those of jq
# What a handler may ask about its binding context. Paths: see tokens in hook.jq.

# context::jq JQ-ARGUMENT...: jq on the context of this handler.
context::jq() {
  jq "$@" <<<"${_HOOK_CONTEXT:?only a handler has a current context}"
}

# context::global::jq JQ-ARGUMENT...: jq on the array of all contexts.
context::global::jq() {
  jq "$@" "${BINDING_CONTEXT_PATH:?is set by the operator}"
}

# context::get [--required] PATH: prints what is there, a string without quotes; null if there is nothing.
context::get() {
  local value=at
  if [[ ${1:-} == --required ]]; then
    value=required
    shift
  fi
  (($# <= 1)) || hook::_usage '[--required] PATH' || return
  context::_query -r --arg path "${1:-}" "$value(\$path)"
}

context::has() {
  (($# == 1)) || hook::_usage PATH || return
  context::_is 'has_path($path)' "$1"
}

context::is_true() {
  (($# == 1)) || hook::_usage PATH || return
  context::_is 'at($path) == true' "$1"
}

context::is_false() {
  (($# == 1)) || hook::_usage PATH || return
  context::_is 'at($path) == false' "$1"
}

context::is_null() {
  (($# == 1)) || hook::_usage PATH || return
  context::_is 'at($path) == null' "$1"
}

context::_is() {
  context::_query -e --arg path "$2" "$1" >/dev/null
}

context::_query() {
  hook::_jq "$@" <<<"${_HOOK_CONTEXT:?only a handler has a current context}"
}
