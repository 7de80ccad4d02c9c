# shellcheck shell=bash
# shellcheck disable=SC2016  # the variables in single quotes are those of jq
# Changes to objects, which the operator makes after the hook has succeeded.
#
# OBJECT and PATCH are JSON or YAML, as the last argument or on stdin. OPTIONS: -n or --namespace NAMESPACE,
# --api-version VERSION, --subresource NAME, --ignore-missing, --ignore-hook-error.

# kubernetes::create [OBJECT]: fails if the object exists.
kubernetes::create() {
  kubernetes::_create Create "$@"
}

# kubernetes::create_or_update [OBJECT]
kubernetes::create_or_update() {
  kubernetes::_create CreateOrUpdate "$@"
}

# kubernetes::create_if_not_exists [OBJECT]
kubernetes::create_if_not_exists() {
  kubernetes::_create CreateIfNotExists "$@"
}

# kubernetes::delete [OPTIONS] KIND NAME: waits until the object is gone.
kubernetes::delete() {
  kubernetes::_change Delete '' "$@"
}

# kubernetes::delete_in_background [OPTIONS] KIND NAME: does not wait.
kubernetes::delete_in_background() {
  kubernetes::_change DeleteInBackground '' "$@"
}

# kubernetes::delete_non_cascading [OPTIONS] KIND NAME: leaves dependents alone.
kubernetes::delete_non_cascading() {
  kubernetes::_change DeleteNonCascading '' "$@"
}

# kubernetes::merge_patch [OPTIONS] KIND NAME [PATCH]: RFC 7396.
kubernetes::merge_patch() {
  kubernetes::_change MergePatch mergePatch "$@"
}

# kubernetes::json_patch [OPTIONS] KIND NAME [PATCH]: RFC 6902.
kubernetes::json_patch() {
  kubernetes::_change JSONPatch jsonPatch "$@"
}

# kubernetes::jq_patch [OPTIONS] KIND NAME [PROGRAM]: the object becomes what the jq program makes of it.
kubernetes::jq_patch() {
  kubernetes::_change JQPatch jqFilter "$@"
}

kubernetes::_create() {
  (($# <= 2)) || hook::_usage '[OBJECT]' || return
  local body
  body=${2-$(cat)}
  hook::_record KUBERNETES_PATCH_PATH --arg operation "$1" --rawfile body /dev/stdin \
    '{operation: $operation, object: ($body | document)}' <<<"$body"
}

kubernetes::_change() {
  local operation=$1 field=$2 usage="[OPTION...] KIND NAME${2:+ [PATCH]}" body=''
  local namespace='' api_version='' subresource='' missing=false hook_error=false
  shift 2
  while [[ ${1:-} == -* ]]; do
    case $1 in
      --ignore-missing) missing=true ;;
      --ignore-hook-error) hook_error=true ;;
      -n | --namespace) namespace=${2-} ;;
      --api-version) api_version=${2-} ;;
      --subresource) subresource=${2-} ;;
      *) hook::_usage "$usage" || return ;;
    esac
    [[ $1 == --ignore-* ]] || shift
    (($# == 0)) || shift
  done
  (($# == 2 || ($# == 3 && ${#field} > 0))) || hook::_usage "$usage" || return
  [[ -z $field ]] || body=${3-$(cat)}
  hook::_record KUBERNETES_PATCH_PATH \
    --arg operation "$operation" --arg field "$field" --arg kind "$1" --arg name "$2" \
    --arg namespace "$namespace" --arg apiVersion "$api_version" --arg subresource "$subresource" \
    --argjson ignoreMissingObject "$missing" --argjson ignoreHookError "$hook_error" --rawfile body /dev/stdin '
      ({$operation, $apiVersion, $kind, $namespace, $name, $subresource, $ignoreMissingObject, $ignoreHookError}
        | without_blanks)
      + if $field == "" then {} elif $field == "jqFilter" then {jqFilter: ($body | carried)}
        else {($field): ($body | document)} end' <<<"$body"
}
