# Which handlers a binding context may go to. Works with jq 1.6 and later; apart from hook.jq to be compiled quickly.

# A bash function's name cannot hold these characters.
def in_name: gsub("[\\s\\x00-\\x1f\"'`$\\\\=<>|&;()]"; "_");

def event: {
  Added: "added", Modified: "modified", Deleted: "deleted",
  add: "added", update: "modified", delete: "deleted"
}[.];

def lifecycle: {
  onStartup: ["__on_startup"],
  beforeAll: ["__before_all", "__on_before_all"],
  afterAll: ["__after_all", "__on_after_all"],
  beforeHelm: ["__before_helm", "__on_before_helm"],
  afterHelm: ["__after_helm", "__on_after_helm"],
  beforeDeleteHelm: ["__before_delete_helm", "__on_before_delete_helm"],
  afterDeleteHelm: ["__after_delete_helm", "__on_after_delete_helm"]
}[.];

# Answers the handlers that may take a binding context, the first choice first.
def handlers:
  (.binding // "unknown") as $name
  | ($name | in_name) as $binding
  | "__on_kubernetes::\($binding)" as $kubernetes
  | ((.watchEvent // .resourceEvent // "") | event) as $event
  | if .type == "Synchronization" then ["\($kubernetes)::synchronization", $kubernetes]
    elif .type == "Event" or (.type == null and .resourceEvent != null) then
      (if $event then ["\($kubernetes)::\($event)"] else [] end)
      + (if $event == "added" or $event == "modified" then ["\($kubernetes)::added_or_modified"] else [] end)
      + [$kubernetes]
    elif .type == "Group" then ["__on_group::\((.groupName // $name) | in_name)"]
    elif .type == "Schedule" then ["__on_schedule::\($binding)"]
    elif .type == "Validating" then ["__on_validating::\($binding)"]
    elif .type == "Mutating" then ["__on_mutating::\($binding)"]
    elif .type == "Conversion" then
      "__on_conversion::\($binding)" as $conversion
      | ["\($conversion)::\([.fromVersion, .toVersion] | map(sub("/"; ".") | in_name) | join("::"))", $conversion]
    elif .type == null then ($name | lifecycle) // ["__on_schedule::\($binding)"]
    else [] end
  | . + ["__main__"];

# Answers two lines for each context: its binding, type and handlers, divided by tabs; the context itself.
def contexts: .[] | ([.binding // "unknown", .type // "", (handlers | join(" "))] | @tsv), tojson;
