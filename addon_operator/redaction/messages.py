"""Messages of the API server and of helm about objects, without the values that they quote.

Pure. What is known is kept: the structure of a message (kind, name, field path, kind of error, allowed values, place in
a template) and the words that Kubernetes and Helm use. All else becomes `...`: values in quotes or without, numbers
that are no limits, and in the free text of webhooks and policies each word that is not one of theirs.

Source: the messages of Kubernetes 1.36 and Helm 3.17 to 3.21.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from addon_operator.documents.jsondoc import JsonObject, JsonValue
from addon_operator.redaction.words import WORDS

LEFT_OUT: Final = "..."

_LONGEST: Final = 16 * 2**10
_LONG: Final = 300
_DEEPEST: Final = 50
_MOST_CAUSES: Final = 10

# All repetitions are bounded, so that no text takes long.
_DOUBLE: Final = r'"(?:\\.|[^"\\]){0,300}+"'
_SINGLE: Final = r"'(?:\\.|[^'\\\n]){0,300}+'"
_NAME: Final = r'"[^"\n]{0,253}"'
_PATH: Final = r"(?:<nil>|\[\]|\.?[A-Za-z_$][\w$/-]*(?:\.[\w$-]+|\[[\w./$ -]{0,253}\]){0,40})"
_RULE: Final = r"(?:(?:Invalid|Unsupported|Duplicate) value|Not found|Required value|Forbidden|Too (?:long|many|few))"
_TYPE: Final = r"(?:null|boolean|object|array|number|string|integer)"
_GO_TYPE: Final = r"[\w.\[\]*]+(?: \{\})?"
_AT: Final = rf"^[ \t]*- at {_SINGLE}: "
# A span that is kept whole; without the part named `value...`, where there is one.
_KEPT: Final = (
    # The API server: which object, which field, what is wrong with it.
    rf"{_PATH}(?=: {_RULE}\b)",
    rf"supported values: {_DOUBLE}(?:, {_DOUBLE})*",
    rf"{_PATH} in body should match '[^'\n]*'",
    rf"{_PATH} in body (?:should|must)\b",
    rf"[\w.-]+ {_NAME} (?=is invalid: |is forbidden: )",
    r'"" (?=is invalid: )',
    rf"(?:^|(?<=resource: ))[\w.-]+ {_NAME} (?=already exists|not found)",
    rf"Operation cannot be fulfilled on [\w.]+ {_NAME}",
    r'[A-Za-z]+ in version "[\w/.-]+" cannot be handled as an? [A-Za-z]+',
    r"json: cannot unmarshal \w+",
    rf"into Go (?:struct field [\w.]+|value) of type {_GO_TYPE}",
    r'unknown field "[\w.\[\]-]+"',
    r"\([\w.-]*/[\w.-]*; [\w./-]+, Kind=\w+\): (?:\.[\w$-]+(?=[.\[:]))*",
    r'conflicts? with "[^"\n]*"(?: using [\w/.]+)?',
    r"[0-9]+ (?:conflicts?|errors? occurred)",
    rf"User {_NAME} cannot [a-z]+ resource {_NAME} in API group {_NAME}"
    rf"(?: in the namespace {_NAME}| at the cluster scope)",
    r"exceeded quota: [\w.,:=/ -]*",
    r"in namespace \S+ because it is being terminated",
    r"storage is \(re\)initializing",
    rf"admission webhook {_NAME} denied the request",
    rf"failed calling webhook {_NAME}",
    r"ValidatingAdmissionPolicy '[^'\n]*' with binding '[^'\n]*' denied request",
    # Limits.
    r"between -?[0-9]+ and -?[0-9]+",
    r"(?:than or equal to|more than|less than|at most|at least|multiple of|RFC|exit code) -?[0-9]+",
    r"valid ports is [0-9]+-[0-9]+",
    r"input byte [0-9]+",
    r"regular expression '[^'\n]*'",
    r"\(a-z, 0-9\)",
    # Fields.
    rf"{_DOUBLE} is not a known field selector: only {_DOUBLE}(?:, {_DOUBLE})*",
    rf"field label (?:not supported: {_PATH}|{_DOUBLE} not supported for {_DOUBLE})",
    rf"fields other than {_SINGLE}(?:(?:, | and ){_SINGLE})*",
    r"`(?:metadata|spec|status)\.[\w.\[\]*]+`(?:,`spec\.[\w.\[\]*]+`)*",
    r"`selector` does not match template `labels`",
    r"(?:when|than or equal to) `\w+`",
    # Helm: which object, which file, which place in a template.
    rf"cannot patch {_NAME} with kind \w+",
    rf'resource mapping not found for name: {_NAME} namespace: {_NAME} from "[^"\n]*"',
    rf"no matches for kind {_NAME} in version {_NAME}",
    r"no matches for kind \w+",
    rf"resource \w+ {_NAME} in namespace {_NAME}",
    r"resource \w+(?:/[\w.-]+)+ not ready\. status: \w+",
    r"job [a-z0-9.-]+ failed: \w+",
    rf"context {_NAME} does not exist",
    r"(?:pre|post)-(?:install|upgrade|delete|rollback)",
    r"YAML parse error on [^\s:]+",
    r"\b(?:yaml: )?line [0-9]+",
    r"(?:!!)(?:str|int|bool|float|map|seq|null|timestamp|binary|merge)\b",
    r"execution error at \([^()\n]+:[0-9]+:[0-9]+\): (?s:.*)",  # the message of `fail` or `required` in a chart
    rf"parse error at \([^()\n]+:[0-9]+\): function {_NAME} not defined",
    r"parse error at \([^()\n]+:[0-9]+\)",
    r"template: [^\s:]+:[0-9]+(?::[0-9]+)?",
    rf"executing {_DOUBLE} at <.{{0,500}}?>(?=: )",
    r"error calling \w+",
    r"nil pointer evaluating interface \{\}\.\S+",
    rf"can't evaluate field \w+ in type {_GO_TYPE}",
    rf"expected {_GO_TYPE}; got {_GO_TYPE}",
    r"found in Chart\.yaml, but missing in charts/ directory: [\w., -]+",
    r"chart requires kubeVersion: .* which is incompatible with Kubernetes \S+",
    r"chart\.metadata\.\w+ is required",
    r"schema\(s\) in the following chart\(s\):\n[\w.-]+:$",
    r'^[\w.-]+:$(?=\n *(?:- at |"file:))',
    r'"file:///values\.schema\.json#" is not valid against metaschema: jsonschema validation failed with \'[^\'\n]*\'',
    # The schema of a chart: its rules, which are no values.
    rf"{_AT}(?P<value_1>{_SINGLE} )does not match pattern {_SINGLE}",
    rf"{_AT}(?P<value_2>{_SINGLE} )is not valid [\w-]+(?P<value_3>:.*)",
    rf"{_AT}\w+:(?P<value_4> got [0-9,.+-]+,) want [0-9,.+-]+",
    rf"{_AT}got {_TYPE}, want {_TYPE}(?: or {_TYPE}|, {_TYPE})*",
    rf"{_AT}value must be .*",
    rf"{_AT}missing propert(?:y|ies) {_SINGLE}(?:, {_SINGLE})*",
    rf"{_AT}additional properties {_SINGLE}(?:, {_SINGLE})* not allowed",
    rf"{_AT}properties {_SINGLE}(?:, {_SINGLE})* required, if {_SINGLE} exists",
    rf"{_AT}false schema",
    rf"{_AT}invalid propertyName {_SINGLE}",
    rf"{_AT}'(?:allOf|anyOf|oneOf|not|enum|const)' failed(?:, none matched|, subschemas [0-9]+, [0-9]+ matched)?",
    rf"{_AT}",
    # Connections and files.
    r'(?:Get|Post|Put|Patch|Delete|Head) "https?://[^"@\s]*"',
    r"dial tcp [\w.:\[\]-]+(?=: )",
    r"lookup [\w.-]+(?: on [\w.:]+)?(?=: )",
    r"(?:open|stat|lstat|read|mkdir) /[^\s:]+(?=: )",
    r"""(?P<sign>["'`])[^A-Za-z0-9\s"'`\\]{1,3}(?P=sign)""",
)
# Constant text of no use: `(e.g. 'example.com', regex used for validation is '...')`.
_EXAMPLE: Final = r",? \(e\.g\. (?:[^\n]{0,100}?regex used for validation is '[^'\n]*'\)|[^()\n]{0,100}\))"
_TOKEN: Final = re.compile(
    rf"(?P<kept>{'|'.join(_KEPT)})|(?P<example>{_EXAMPLE})|(?P<quoted>{_DOUBLE}|{_SINGLE}|`[^`]{{0,300}}`)"
    r"|(?P<word>[^\s\"'`\[\](){}<>,;]+(?:'[a-z]{1,2}(?![a-z]))?)",
    re.MULTILINE,
)
_SENTENCE: Final = ".:!?"
_GAP: Final = re.compile(r"\.\.\.(?:[\s\"'`,;:=&*\\/|-]*\.\.\.)+|[&*]?(?:\[\.\.\.\]|\{\.\.\.\})")
_LONG_QUOTE: Final = re.compile(r'"[^"\\]*+(?:\\(?:.|\Z)[^"\\]*+)*+(?:"|\Z)', re.DOTALL)
# What a field holds, as JSON or as Go prints it: `{"a":"b"}`, `v1.Spec{A:map[string]string{"a":"b"}}`.
_STRUCTURE: Final = re.compile(rf"{_RULE}: (?=[^\s:\"{{\[]*[{{\[])")
_BRACKET: Final = re.compile(rf"{_DOUBLE}|[\[{{]|[\]}}]")
# How an update differs, in lines of the object.
_DIFF: Final = re.compile(r"\n@@ -[0-9].*?(?=\n\n|\Z)", re.DOTALL)
_OF_VALUE: Final = re.compile(rf"({_RULE}): \.\.\.(: )?")

_RULES: Final[Mapping[str, str]] = {
    "FieldValueInvalid": "Invalid value",
    "FieldValueTypeInvalid": "Invalid value",
    "FieldValueNotSupported": "Unsupported value",
    "FieldValueDuplicate": "Duplicate value",
    "FieldValueNotFound": "Not found",
    "FieldValueRequired": "Required value",
    "FieldValueForbidden": "Forbidden",
    "FieldValueTooLong": "Too long",
    "FieldValueTooMany": "Too many",
    "FieldManagerConflict": "conflict",
}
_UNCHECKED: Final = "<nil>"  # the field of a cause that stands for unchecked fields
# The beginning of refusals that concern the request, not its content.
_ABOUT_THE_REQUEST: Final = re.compile(
    r'admission webhook "[^"]*" denied the request'
    r'|\S+ (?:"[^"]*" )?is forbidden: (?:'
    r'User "[^"]*" cannot [a-z]+ resource "[^"]*" in API group "[^"]*"'
    r'(?: in the namespace "[^"]*"| at the cluster scope)'
    r"|exceeded quota: [\w.,:=/ -]*"
    r"|unable to create new content in namespace \S+ because it is being terminated"
    r"|ValidatingAdmissionPolicy '[^']*' with binding '[^']*' denied request)"
)


def redact(text: str) -> str:
    """Returns a message of the API server or of helm without the values that it quotes; each becomes `...`."""
    short = _LONG_QUOTE.sub(lambda quote: quote[0] if len(quote[0]) <= _LONG else LEFT_OUT, text)
    plain = _without_structures(_DIFF.sub("", short))
    if len(plain) > _LONGEST:
        plain = f"{plain[: _LONGEST // 2]} {LEFT_OUT} {plain[-_LONGEST // 2 :]}"
    known = "".join(_pieces(plain))
    for _ in range(_DEEPEST):
        known = _GAP.sub(LEFT_OUT, known)
    return _OF_VALUE.sub(lambda found: found[1] + (found[2] or ""), known).strip()


def redact_status(status: JsonObject, *, is_secret: bool = False) -> str:
    """Returns the message of a `Status` of the API server without the values that it quotes.

    Args:
        status: with `message`, and with `details.causes` where the API server names fields.
        is_secret: whether it is about a Secret: then only names, fields and kinds of errors are kept.
    """
    found = status.get("details")
    details = found if isinstance(found, dict) else {}
    causes = _causes(details.get("causes"))
    if not causes:
        message = str(status.get("message") or "")
        if not is_secret:
            return redact(message)
        begins = _ABOUT_THE_REQUEST.match(message)
        return begins[0] if begins else ""
    kind = ".".join(str(details[key]) for key in ("kind", "group") if details.get(key))
    about = f'{kind} "{details.get("name", "")}" is invalid: ' if kind else ""
    shown = dict.fromkeys(_cause(cause, is_secret=is_secret) for cause in causes[:_MOST_CAUSES])
    left = f", and {len(causes) - _MOST_CAUSES} more" if len(causes) > _MOST_CAUSES else ""
    return about + ", ".join(shown) + left


def _causes(causes: JsonValue) -> list[JsonObject]:
    """Returns the causes that name a field, each once."""
    maps = [cause for cause in causes if isinstance(cause, dict)] if isinstance(causes, list) else []
    named = list({str(cause): cause for cause in maps if cause.get("field")}.values())
    return [cause for cause in named if cause["field"] != _UNCHECKED or len(named) == 1]


def _cause(cause: JsonObject, *, is_secret: bool) -> str:
    """Returns field and problem of a cause."""
    field = re.sub(r"\[[^\]]*=[^\]]*\]", f"[{LEFT_OUT}]", str(cause["field"]))
    rule = _RULES.get(str(cause.get("reason")), "")
    message = rule if is_secret else redact(str(cause.get("message") or "")) or rule
    return f"{field}: {message}" if message else field


def _without_structures(text: str) -> str:
    parts, at = [], 0
    while begins := _STRUCTURE.search(text, at):
        end = _balanced_end(text, begins.end())
        if end is None:
            break
        parts += [text[at : begins.end()], LEFT_OUT]
        at = end
    return "".join([*parts, text[at:]])


def _balanced_end(text: str, start: int) -> int | None:
    """Returns the position after the bracket that closes the ones opened from `start` on; None if there is none."""
    depth = 0
    for found in _BRACKET.finditer(text, start):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(found[0], 0)
        if not depth and len(found[0]) == 1:
            return found.end()
    return None


def _pieces(text: str) -> Iterator[str]:
    """Yields what is kept of a text, `...` for what is not, and all punctuation and space between."""
    at = 0
    for token in _TOKEN.finditer(text):
        yield text[at : token.start()]
        at = token.end()
        match token.lastgroup:
            case "kept":
                yield _without_values(token)
            case "example":
                continue
            case "word":
                word = token[0].rstrip(_SENTENCE)
                known = word.lower() in WORDS or not any(map(str.isalnum, word))
                yield token[0] if known else LEFT_OUT + token[0][len(word) :]
            case _:
                yield LEFT_OUT
    yield text[at:]


def _without_values(token: re.Match[str]) -> str:
    kept, start = token[0], token.start()
    for name in ("value_4", "value_3", "value_2", "value_1"):
        begin, end = token.span(name)
        if begin >= 0:
            kept = kept[: begin - start] + kept[end - start :]
    return kept
