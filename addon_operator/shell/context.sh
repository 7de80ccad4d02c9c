# shellcheck shell=bash
# shellcheck disable=SC2016  # the variables in single quotes are those of jq
# What a handler may ask about its binding context. Paths: see tokens in hook.jq.

# What context::get takes for a path: as tokens, but keys with blanks, or with what only jq knows, must be quoted.
_CONTEXT_BARE='[^]["'\''.|?()[:space:]]+'
_CONTEXT_QUOTED='"([^"\]|\\.)*"|'\''[^'\'']*'\'
_CONTEXT_PATH="^(\.?|(\.?($_CONTEXT_BARE|$_CONTEXT_QUOTED)|\[[0-9]+])(\.($_CONTEXT_BARE|$_CONTEXT_QUOTED)|\[[0-9]+])*)\$"

# context::jq JQ-ARGUMENT...: jq on the context of this handler.
context::jq() {
  context::_find || return
  jq "$@" <<<"$_HOOK_CONTEXT"
}

# context::global::jq JQ-ARGUMENT...: jq on the array of all contexts.
context::global::jq() {
  jq "$@" "${BINDING_CONTEXT_PATH:?is set by the operator}"
}

# context::get [--required] PATH: prints what is there, a string without quotes; null if there is nothing. What is no
# path is the rest of a jq program that begins with a dot.
context::get() {
  local value=at program
  if [[ ${1:-} == --required ]]; then
    value=required
    shift
  fi
  (($# <= 1)) || hook::_usage '[--required] PATH' || return
  program="$value(\$path)"
  if [[ ! ${1:-} =~ $_CONTEXT_PATH ]]; then
    # A program may end in a remark.
    program="[.${1#.}"$'\n'"] | given(\"$value\"; \$path)"
  fi
  context::_query -r --arg path "${1:-}" "$program"
}

context::has() {
  context::_ask 'has_path($path)' "$@"
}

context::is_true() {
  context::_ask 'at($path) == true' "$@"
}

context::is_false() {
  context::_ask 'at($path) == false' "$@"
}

context::is_null() {
  context::_ask 'at($path) == null' "$@"
}

# context::_ask PROGRAM PATH
context::_ask() {
  (($# == 2)) || hook::_usage PATH || return
  context::_query -e --arg path "$2" "$1" >/dev/null
}

context::_query() {
  context::_find || return
  hook::_jq "$@" <<<"$_HOOK_CONTEXT"
}

# Sets _HOOK_CONTEXT in a script that a handler has started: it inherits no more than which context it is.
context::_find() {
  [[ -z ${_HOOK_CONTEXT:-} ]] || return 0
  : "${BINDING_CONTEXT_CURRENT_INDEX:?only a handler has a current context}"
  _HOOK_CONTEXT=$(context::global::jq -c --argjson at "$BINDING_CONTEXT_CURRENT_INDEX" '.[$at]')
}
