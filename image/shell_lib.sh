# shellcheck shell=bash
# What hooks of the image source as /shell_lib.sh: the bash library, and the options without which a failing command is
# passed over. Hooks that choose their options themselves source $ADDON_OPERATOR_SHELL_LIB.

set -Eeuo pipefail
shopt -s inherit_errexit failglob

# shellcheck source=/dev/null
source "${ADDON_OPERATOR_SHELL_LIB:-/frameworks/shell/shell_lib.sh}"

# shell_lib::_report CODE COMMAND: says which line of the hook failed, once for each subshell that ends by it.
shell_lib::_report() {
  local frame=0 file line
  local -a text=()
  # Where errexit is off, a failure ends nothing.
  [[ $- == *e* ]] || return "$1"
  while [[ ${BASH_SOURCE[frame + 1]:-} == "$_HOOK_LIB"/* ]]; do
    frame=$((frame + 1))
  done
  file=${BASH_SOURCE[frame + 1]:-$0} line=${BASH_LINENO[frame]}
  # Of a pipeline, bash names the last command, of a function the last one in it: the line itself says more.
  [[ ! -r $file ]] || mapfile -t -s $((line - 1)) -n 1 text <"$file"
  text=("${text[0]:-$2}")
  printf '%s:%s: exit code %s: %s\n' "$file" "$line" "$1" "${text[0]#"${text[0]%%[![:blank:]]*}"}" >&2
}

trap 'shell_lib::_report "$?" "$BASH_COMMAND"' ERR
