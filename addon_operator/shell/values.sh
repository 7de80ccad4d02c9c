# shellcheck shell=bash
# shellcheck disable=SC2016  # the variables in single quotes are those of jq
# Values and config values (--config as the first argument). What a hook has changed is seen by what it asks later.
# Paths: see tokens in hook.jq.

# values::get [--config] [--required] PATH: prints what is there, a string without quotes; null if there is nothing.
values::get() {
  local value=at document=VALUES
  while [[ ${1:-} == --* ]]; do
    case $1 in
      --config) document=CONFIG_VALUES ;;
      --required) value=required ;;
      *) hook::_usage '[--config] [--required] PATH' || return ;;
    esac
    shift
  done
  (($# <= 1)) || hook::_usage '[--config] [--required] PATH' || return
  values::_query "$document" hook::_jq -r --arg path "${1:-}" "$value(\$path)"
}

# values::set [--config] [--string] PATH VALUE: VALUE is JSON if it can be read as JSON, else, or with --string, a text.
values::set() {
  local document=VALUES meaning=meaning
  while [[ ${1:-} == --* && $# -gt 2 ]]; do
    case $1 in
      --config) document=CONFIG_VALUES ;;
      --string) meaning=. ;;
      *) break ;;
    esac
    shift
  done
  (($# == 2)) || hook::_usage '[--config] [--string] PATH VALUE' || return
  values::_change "$document" --arg path "$1" --rawfile value /dev/stdin \
    "setting(tokens(\$path); \$value | carried | $meaning; [])" <<<"$2"
}

# values::unset [--config] PATH: without effect if there is nothing.
values::unset() {
  local document=VALUES
  values::_config "$@" && shift
  (($# == 1)) || hook::_usage '[--config] PATH' || return
  values::_change "$document" --arg path "$1" 'unsetting(tokens($path))'
}

# values::json_patch [--config] OP POINTER [VALUE], or move and copy: OP POINTER FROM. VALUE: as for values::set.
values::json_patch() {
  local document=VALUES
  values::_config "$@" && shift
  (($# >= 2 && $# <= 3)) || hook::_usage '[--config] OP POINTER [VALUE | FROM]' || return
  values::_change "$document" --arg op "$1" --arg path "$2" --argjson given "$(($# - 2))" --rawfile value /dev/stdin '
    ($value | carried) as $text
    | if $op == "move" or $op == "copy" then {op: $op, path: $path, from: $text}
      elif $given == 1 and $op != "remove" then {op: $op, path: $path, value: ($text | meaning)}
      elif $op == "remove" then {op: $op, path: $path}
      else fail("\($op) needs a value") end' <<<"${3-}"
}

values::has() {
  values::_ask 'has_path($path)' "$@"
}

values::is_true() {
  values::_ask 'at($path) == true' "$@"
}

values::is_false() {
  values::_ask 'at($path) == false' "$@"
}

# values::array_has [--config] PATH VALUE: VALUE is compared with texts, and with other items as JSON.
values::array_has() {
  local document=VALUES
  values::_config "$@" && shift
  (($# == 2)) || hook::_usage '[--config] PATH VALUE' || return
  values::_is 'at($path) | type == "array" and any(.[]; tostring == $value)' "$1" "$2"
}

# values::jq [--config] JQ-ARGUMENT...: jq on all values.
values::jq() {
  local document=VALUES
  values::_config "$@" && shift
  values::_query "$document" jq "$@"
}

# module::name: prints the name of the hook's module, in kebab case as in its directory.
module::name() {
  hook::_jq -r module_name "${VALUES_PATH:?is set by the operator}"
}

# Sets the caller's `document` if the first argument is --config.
values::_config() {
  [[ ${1:-} == --config ]] && document=CONFIG_VALUES
}

# values::_ask PROGRAM [--config] PATH
values::_ask() {
  local program=$1 document=VALUES
  shift
  values::_config "$@" && shift
  (($# == 1)) || hook::_usage '[--config] PATH' || return
  values::_is "$program" "$1"
}

values::_is() {
  values::_query "$document" hook::_jq -e --arg path "$2" --arg value "${3-}" "$1" >/dev/null
}

# values::_query DOCUMENT COMMAND...: runs a command that reads the document, with the changes made so far, from stdin.
values::_query() {
  local path=${1}_PATH changes
  values::_changes "${1}_JSON_PATCH_PATH"
  if [[ -s $changes ]]; then
    # With process substitution a failure of the first jq would not be noticed.
    local text
    text=$(hook::_jq -c --slurpfile changes "$changes" 'patched($changes)' "${!path}") || return
    "${@:2}" <<<"$text"
  else
    "${@:2}" <"${!path:?is set by the operator}"
  fi
}

# values::_change DOCUMENT JQ-ARGUMENT...: adds the operation that a jq program makes of the document, if it fits.
values::_change() {
  local path=${1}_PATH variable=${1}_JSON_PATCH_PATH changes
  local -a arguments=("${@:2:$# - 2}")
  values::_changes "$variable"
  hook::_record "$variable" --slurpfile document "${!path:?is set by the operator}" --slurpfile changes "$changes" \
    "${arguments[@]}" "\$document[0] | patched(\$changes) | checked(${*: -1})"
}

# Sets the caller's `changes` to a file with the changes made so far: see hook::_target. An `enabled` script has none.
values::_changes() {
  local file=/dev/null
  [[ -z ${!1:-} ]] || hook::_target "$1"
  changes=$file
  [[ -e $changes ]] || changes=/dev/null
}
