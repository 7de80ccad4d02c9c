# The JSON half of the bash library: paths, JSON patches, texts that become JSON.
# Each definition answers from its input. Works with jq 1.6 and later.

# Ends jq with exit code 2; 1 is what `jq -e` says for false.
def fail($text): "\($text)\n" | halt_error(2);

# Splits a path such as a.b[0]."key with.dots".'it"s'  into ["a","b","0","key with.dots","it\"s"].
# A dot in front is allowed; the empty path is the whole document.
def tokens($path):
  if $path == "" or $path == "." then []
  else
    (if $path | test("^[.\\[]") then $path else "." + $path end) as $whole
    | [$whole | match(
        "\\.(?<bare>[^.\\[\\]\"']+)"
        + "|\\.(?<double>\"(?:[^\"\\\\]|\\\\.)*\")|\\.'(?<single>[^']*)'|\\[(?<index>[0-9]+)\\]";
        "g")]
    | if map(.string) | join("") == $whole then . else fail("bad path: \($path)") end
    | map(.captures | map(select(.string != null))[0]
        | if .name == "double" then .string | fromjson else .string end)
  end;

def pointer: map("/" + (gsub("~"; "~0") | gsub("/"; "~1"))) | join("");

def unpointer: if . == "" then [] else .[1:] | split("/") | map(gsub("~1"; "/") | gsub("~0"; "~")) end;

# Answers the index that a token means in the array, -1 if it means none.
def position($token): if $token | test("^(0|[1-9][0-9]*)$") then $token | tonumber else -1 end;

# Answers [value] of what the tokens lead to, [] if they lead nowhere.
def find($tokens):
  if $tokens == [] then [.]
  elif type == "object" and has($tokens[0]) then .[$tokens[0]] | find($tokens[1:])
  elif type == "array" and (position($tokens[0]) | . >= 0) and position($tokens[0]) < length
  then .[position($tokens[0])] | find($tokens[1:])
  else [] end;

# Answers what the path leads to; not there is an error.
def required($path): find(tokens($path)) | if . == [] then fail("\($path) is required, but is not there") else .[0] end;

# Answers the results of a program; with "required", none but nulls is an error.
def given($how; $program):
  if $how == "required" and all(. == null) then fail("\($program) is required, but is not there") else .[] end;

# Answers what the path leads to, null if it leads nowhere.
def at($path): find(tokens($path))[0];

def has_path($path): find(tokens($path)) != [];

def misfit($tokens): fail("the path \($tokens | pointer) does not fit the values");

# Changes what the tokens lead to: `last` works on the container, with [the remaining token] as its $token.
def edit($tokens; $all; last):
  if $tokens == [] then misfit($all)
  elif $tokens | length == 1 then last
  elif find($tokens[:1]) == [] then misfit($all)
  elif type == "array" then .[position($tokens[0])] |= edit($tokens[1:]; $all; last)
  else .[$tokens[0]] |= edit($tokens[1:]; $all; last) end;

def add($tokens; $value):
  $tokens[-1] as $token
  | edit($tokens; $tokens;
      if type == "object" then .[$token] = $value
      elif type == "array" then
        (if $token == "-" then length else position($token) end) as $at
        | if $at < 0 or $at > length then misfit($tokens) else .[:$at] + [$value] + .[$at:] end
      else misfit($tokens) end);

# Global hooks set enable flags beside the sections: one that is to be unset need not be in the document.
def is_flag($tokens): ($tokens | length) == 1 and ($tokens[0] | endswith("Enabled"));

def remove($tokens):
  $tokens[-1] as $token
  | if is_flag($tokens) then del(.[$token]) else edit($tokens; $tokens;
      if find([$token]) == [] then misfit($tokens)
      elif type == "array" then del(.[position($token)])
      else del(.[$token]) end) end;

def replace($tokens; $value):
  $tokens[-1] as $token
  | edit($tokens; $tokens;
      if find([$token]) == [] then misfit($tokens)
      elif type == "array" then .[position($token)] = $value
      else .[$token] = $value end);

def apply($operation):
  ($operation.path | unpointer) as $path
  | if $operation.op == "add" then add($path; $operation.value)
    elif $operation.op == "replace" then replace($path; $operation.value)
    elif $operation.op == "remove" then remove($path)
    elif $operation.op == "test" then
      if find($path) == [$operation.value] then . else fail("the test of \($operation.path) failed") end
    elif $operation.op == "copy" or $operation.op == "move" then
      find($operation.from | unpointer) as $found
      | if $found == [] then misfit($operation.from | unpointer) else . end
      | if $operation.op == "move" then remove($operation.from | unpointer) else . end
      | add($path; $found[0])
    else fail("op must be one of add, remove, replace, move, copy, test") end;

# Applies a list of operations, or of lists of them.
def patched($operations): reduce ($operations | flatten[]) as $operation (.; apply($operation));

def nest($tokens; $value): reduce ($tokens | reverse[]) as $token ($value; {($token): .});

# Answers the operation that sets a value; parents that are missing or null are made.
def setting($tokens; $value; $above):
  ($above + $tokens[:1]) as $here
  | if $tokens == [] then fail("the path is empty")
    elif type == "object" then
      if ($tokens | length) > 1 and .[$tokens[0]] != null then .[$tokens[0]] | setting($tokens[1:]; $value; $here)
      else {op: "add", path: ($here | pointer), value: nest($tokens[1:]; $value)} end
    elif type == "array" then
      (if $tokens[0] == "-" then length else position($tokens[0]) end) as $at
      | if $at < 0 or $at > length then misfit($here)
        elif $at == length then {op: "add", path: ($above + ["-"] | pointer), value: nest($tokens[1:]; $value)}
        elif ($tokens | length) > 1 and .[$at] != null then .[$at] | setting($tokens[1:]; $value; $here)
        else {op: "replace", path: ($here | pointer), value: nest($tokens[1:]; $value)} end
    else fail("\($above | pointer) is no map and no list") end;

# Answers the operation that takes a value away; nothing if it is not there.
def unsetting($tokens):
  if find($tokens) == [] and (is_flag($tokens) | not) then empty else {op: "remove", path: ($tokens | pointer)} end;

# Answers the operation, if it fits the document.
def checked($operation): apply($operation) | $operation;

def number: if test("^-?(0|[1-9][0-9]*)(\\.[0-9]+)?([eE][+-]?[0-9]+)?$") then tonumber else error("not a number") end;

# Answers what a text means: JSON if it is JSON, else the text itself. What jq would read as a number although it is
# none for JSON (nan, 007) stays a text.
def meaning:
  . as $text
  | try (if test("^\\s*$") then $text else fromjson end) catch $text
  | if type == "number" then $text | try (gsub("\\s"; "") | number) catch $text else . end;

# The here-string that carries a text has added a line end to it.
def carried: rtrimstr("\n");

# Answers what a text holds: JSON as what it means, else the text itself, which the operator reads as YAML.
def document: . as $text | if test("^\\s*$") then fail("there is no document") else try fromjson catch $text end;

def without_blanks: with_entries(select(.value != "" and .value != false and .value != null));

def numeric: . as $text | try number catch fail("\($text) is not a number");

# Answers a map of texts such as "name=value".
def labels:
  map(if test("=") then split("=") | {(.[0]): (.[1:] | join("="))} else fail("a label is LABEL=TEXT") end) | add // {};

# Answers the field of warnings; each comes with a = in front, or jq would take "-x" for an option.
def warnings: if . == [] then {} else {warnings: map(.[1:])} end;

# Answers the name of the module whose values these are: l2LoadBalancer -> l2-load-balancer.
def module_name:
  (keys_unsorted - ["global"])[0]
  | if . == null then fail("a global hook belongs to no module") else . end
  | gsub("(?<upper>[A-Z])"; "-" + (.upper | ascii_downcase));
