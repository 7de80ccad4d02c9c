# shellcheck shell=bash
# shellcheck disable=SC2016  # the variables in single quotes are those of jq
# Metrics of the hook. The operator adds the labels `hook` and `module`.

# metrics::add [--group GROUP] NAME VALUE [LABEL=TEXT...]: counts up.
metrics::add() {
  metrics::_record add '[--group GROUP] NAME VALUE [LABEL=TEXT...]' "$@"
}

# metrics::set [--group GROUP] NAME VALUE [LABEL=TEXT...]: sets a gauge.
metrics::set() {
  metrics::_record set '[--group GROUP] NAME VALUE [LABEL=TEXT...]' "$@"
}

# metrics::observe [--group GROUP] --buckets NUMBER,... NAME VALUE [LABEL=TEXT...]: adds to a histogram.
metrics::observe() {
  metrics::_record observe '[--group GROUP] --buckets NUMBER,... NAME VALUE [LABEL=TEXT...]' "$@"
}

# metrics::expire GROUP: drops all series of a group.
metrics::expire() {
  (($# == 1)) || hook::_usage GROUP || return
  hook::_record METRICS_PATH --arg group "$1" '{action: "expire", group: $group}'
}

metrics::_record() {
  local action=$1 usage=$2 group='' buckets=''
  shift 2
  while [[ ${1:-} == --* ]] && (($# > 1)); do
    case $1 in
      --group) group=$2 ;;
      --buckets) buckets=$2 ;;
      *) hook::_usage "$usage" || return ;;
    esac
    shift 2
  done
  (($# >= 2)) || hook::_usage "$usage" || return
  hook::_record METRICS_PATH --arg action "$action" --arg name "$1" --arg value "$2" --arg group "$group" \
    --arg buckets "$buckets" '{
      name: $name, action: $action, value: ($value | numeric), group: $group,
      labels: ($ARGS.positional | labels),
      buckets: (if $buckets == "" then null else $buckets | split(",") | map(numeric) end)
    } | without_blanks' --args "${@:3}"
}
