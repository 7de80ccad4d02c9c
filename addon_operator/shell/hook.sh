# shellcheck shell=bash
# Running a hook: which handler takes which binding context, and what becomes of the changes that handlers ask for.
#
# Changes are collected in files beside the binding context and copied to the result files when all handlers have
# succeeded. They are files, not variables, because handlers run in subshells and start scripts. Only changes to objects
# are written at once: if the hook fails, or is ended at its deadline, the operator makes those that are meant for this
# case.

_HOOK_LIB=${BASH_SOURCE[0]%/*}
_HOOK_RESULTS=(
  VALUES_JSON_PATCH_PATH CONFIG_VALUES_JSON_PATCH_PATH METRICS_PATH ADMISSION_RESPONSE_PATH CONVERSION_RESPONSE_PATH
)
# A script that a handler starts adds to the changes of the handler, unless it is given another run's files.
[[ ${_HOOK_PENDING:-} == "${BINDING_CONTEXT_PATH:-}".* ]] || _HOOK_PENDING=''

# hook::run "$@": prints the configuration with --config, else gives each binding context to its handler.
hook::run() {
  if [[ ${1:-} == --config ]]; then
    hook::_print_config
    exit
  fi
  local -a lines=()
  local index _hook_outer=$_HOOK_PENDING
  hook::_read_contexts || exit
  export _HOOK_PENDING=${_hook_outer:-$BINDING_CONTEXT_PATH.$$}
  for ((index = 0; index < ${#lines[@]} / 2; index++)); do
    hook::_dispatch "$index" "${lines[2 * index]}" "${lines[2 * index + 1]}"
  done
  hook::_publish
}

hook::_print_config() {
  if ! declare -F __config__ >/dev/null; then
    hook::_say 'there is no function __config__'
    return 1
  fi
  __config__
}

# Fills the caller's `lines`: two for each context, see contexts.jq.
hook::_read_contexts() {
  local -
  local IFS=$'\n' text
  : "${BINDING_CONTEXT_PATH:?is set by the operator}"
  text=$(jq -L "$_HOOK_LIB" -r 'include "contexts"; contexts' "$BINDING_CONTEXT_PATH") || return
  # Splitting at line ends is what is wanted, and much faster than mapfile, which reads a pipe byte by byte.
  set -f
  # shellcheck disable=SC2206
  lines=($text)
}

# Runs the first handler that exists. Ends the process if it fails.
hook::_dispatch() {
  local binding type candidates handler='' code=0 options=$-
  IFS=$'\t' read -r binding type candidates <<<"${2/$'\t\t'/$'\t-\t'}"
  printf -v binding %b "$binding"
  hook::_choose "$candidates"
  if [[ -z $handler ]]; then
    hook::_say "no handler for binding $binding, it would be one of: ${candidates// /, }"
    hook::_discard
    exit 1
  fi
  export BINDING_CONTEXT_CURRENT_INDEX=$1 BINDING_CONTEXT_CURRENT_BINDING=$binding
  export BINDING_CONTEXT_CURRENT_TYPE=${type#-}
  _HOOK_CONTEXT=$3
  # Neither `if` nor `||`: they would switch errexit off inside the handler, too.
  set +e
  (
    hook::_handle "$handler" "$options"
  )
  code=$?
  [[ $options != *e* ]] || set -e
  if ((code)); then
    hook::_say "handler $handler failed for binding $binding: exit code $code"
    hook::_discard
    exit "$code"
  fi
}

# Sets the caller's `handler` to the first name that is a function.
hook::_choose() {
  local -
  local name
  set -f
  for name in $1; do
    if declare -F -- "$name" >/dev/null; then
      handler=$name
      return
    fi
  done
}

hook::_handle() {
  local _hook_place='' _hook_level=$BASH_SUBSHELL _hook_code
  if [[ $- != *E* || -z $(trap -p ERR) ]]; then
    set -E
    trap 'hook::_note_error "$?"' ERR
  fi
  [[ $2 != *e* ]] || set -e
  "$1"
  _hook_code=$?
  # Only without errexit: with it, the trap has had the last word.
  if ((_hook_code)); then
    [[ -z $_hook_place ]] || hook::_say "$_hook_place"
    exit "$_hook_code"
  fi
}

# The ERR trap: finds the line of the hook where a command failed, not the line of this library.
hook::_note_error() {
  local frame=0 file
  ((BASH_SUBSHELL == _hook_level)) || return "$1"
  while [[ ${BASH_SOURCE[frame + 1]:-} == "$_HOOK_LIB"/* ]]; do
    frame=$((frame + 1))
  done
  file=${BASH_SOURCE[frame + 1]:-}
  [[ $file != "$0" ]] || file=''
  _hook_place="${file:+${file##*/}, }line ${BASH_LINENO[frame]}: exit code $1"
  if [[ $- == *e* ]]; then
    hook::_say "$_hook_place"
  fi
}

hook::_publish() {
  [[ -z $_hook_outer ]] || return 0
  local variable
  for variable in "${_HOOK_RESULTS[@]}"; do
    if [[ -s $_HOOK_PENDING.$variable ]] && ! cat -- "$_HOOK_PENDING.$variable" >>"${!variable}"; then
      hook::_say "$variable cannot be written"
      hook::_discard
      exit 1
    fi
  done
  hook::_discard
}

# Drops what is collected, but not what the handler that has started this hook will publish or drop.
hook::_discard() {
  [[ -z $_hook_outer ]] || return 0
  local variable
  local -a files=()
  for variable in "${_HOOK_RESULTS[@]}"; do
    [[ ! -e $_HOOK_PENDING.$variable ]] || files+=("$_HOOK_PENDING.$variable")
  done
  ((${#files[@]} == 0)) || rm -f -- "${files[@]}"
  _HOOK_PENDING=''
}

# hook::_record VARIABLE JQ-ARGUMENT...: adds what jq prints to the changes for a result file.
hook::_record() {
  local file
  hook::_target "$1" || return
  hook::_jq -nc "${@:2}" >>"$file"
}

# hook::_answer VARIABLE JQ-ARGUMENT...: like hook::_record, but the last call wins.
hook::_answer() {
  local file
  hook::_target "$1" || return
  hook::_jq -nc "${@:2}" >"$file"
}

# Sets the caller's `file` to where changes for a result file are collected: outside of hook::run, the result file.
hook::_target() {
  if [[ -z ${!1:-} ]]; then
    hook::_say "$1 is not set: this change is not possible here"
    return 1
  fi
  file=${!1}
  [[ -z $_HOOK_PENDING || $1 == KUBERNETES_PATCH_PATH ]] || file=$_HOOK_PENDING.$1
}

# hook::_jq [OPTION...] PROGRAM [FILE...]: jq with hook.jq; PROGRAM is the first argument that is no option.
hook::_jq() {
  local -a options=()
  while [[ $1 == -* ]]; do
    case $1 in
      --arg | --argjson | --slurpfile | --rawfile) options+=("${@:1:3}") && shift 3 ;;
      *) options+=("$1") && shift ;;
    esac
  done
  jq -L "$_HOOK_LIB" "${options[@]}" "include \"hook\"; $1" "${@:2}"
}

hook::_say() {
  printf '%s: %s\n' "${0##*/}" "$1" >&2
}

# hook::_usage TEXT: says how the public function that was called is to be called.
hook::_usage() {
  local frame=1
  while [[ ${FUNCNAME[frame]} == *::_* ]]; do
    frame=$((frame + 1))
  done
  hook::_say "usage: ${FUNCNAME[frame]} $1"
  return 2
}
