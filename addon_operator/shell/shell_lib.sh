# shellcheck shell=bash
# The bash library for hooks: source this one file. docs/hook-libraries.md has the names of all functions.

hook::_load() {
  local lib=${BASH_SOURCE[0]} part
  # The file may be reached through a link such as /shell_lib.sh; the other parts are beside the real one.
  if [[ -L $lib ]]; then
    lib=$(readlink -f -- "$lib")
  fi
  [[ $lib == /* ]] || lib=$PWD/$lib
  lib=${lib%/*}
  for part in hook context values metrics kubernetes webhooks; do
    # shellcheck source=/dev/null
    source "$lib/$part.sh"
  done
}

hook::_load
unset -f hook::_load
