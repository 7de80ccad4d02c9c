"""Messages of the API server and of helm without values.

`messages/` holds real ones, of Kubernetes 1.36 and Helm 3.21, each with what is told of it. `mArKeR7`, and numbers with
`717`, stand for values that were sent; where they stand for a name or a key, the message says so by its name here.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from addon_operator.helm.stderr import explain
from addon_operator.redaction.messages import redact, redact_status
from addon_operator.redaction.words import WORDS

MESSAGES = Path(__file__).parent / "messages"
API: list[dict[str, Any]] = json.loads((MESSAGES / "api_server.json").read_text())
HELM: list[dict[str, Any]] = json.loads((MESSAGES / "helm.json").read_text())
MARKER = re.compile("marker7|7171", re.IGNORECASE)
# The marker is a name or a key here, or the chart itself says it.
NAMED = {"cm bad key", "cm bad name", "pod resource name", "pod default sa", "cr props", "cr strict", "strict unknown"}
NAMED |= {"ssa unknown field", "fail", "func", "bad ns name", "bad field"}


@pytest.mark.parametrize("row", API, ids=lambda row: row["about"])
def test_the_api_server_is_told_by_structure_alone(row: dict[str, Any]) -> None:
    assert redact_status(row["status"]) == row["told"]
    assert row["about"] in NAMED or not MARKER.search(row["told"])


@pytest.mark.parametrize("row", HELM, ids=lambda row: row["about"])
def test_helm_is_told_by_structure_alone(row: dict[str, Any]) -> None:
    assert explain(row["stderr"]) == row["told"]
    assert row["about"] in NAMED or not MARKER.search(row["told"])


def test_the_messages_do_hold_values() -> None:
    assert sum(bool(MARKER.search(json.dumps(row["status"]))) for row in API) > 60
    assert sum(bool(MARKER.search(row["stderr"])) for row in HELM) > 15


@pytest.mark.parametrize(
    "message",
    [
        '"data.key" is not a known field selector: only "metadata.name", "metadata.namespace"',
        "field label not supported: spec.size",
        'field label "spec.size" not supported for "Deployment"',
    ],
)
def test_the_field_of_a_selector_is_no_value(message: str) -> None:
    assert redact(message) == message


# A value, in which a word stands that nothing else has.
_WORD = st.text("abcdefghijklmnopqrstuvwxyzABCXYZ0123456789", min_size=6, max_size=12).map(lambda text: f"q9{text}")
_AROUND = st.text(" \"'`:;,.[]{}()<>=&\\/\n-äx", max_size=4)
_HOLDING = [row for row in API if row["about"] not in NAMED and "mArKeR7" in json.dumps(row["status"])]


@given(st.sampled_from(_HOLDING), _WORD, _AROUND, _AROUND)
def test_no_value_appears_whatever_it_is(row: dict[str, Any], word: str, before: str, after: str) -> None:
    # As Go quotes it; then as JSON quotes the message.
    value = json.dumps(json.dumps(f"{before}{word}{after}")[1:-1])[1:-1]
    status = json.loads(json.dumps(row["status"]).replace("mArKeR7", value))
    assert word not in redact_status(status)
    assert word not in redact_status(status, is_secret=True)
    assert word not in redact(status["message"])


_PIECES = st.sampled_from(
    [*sorted(WORDS)[::20], *"\"'`:;,.[]{}()=&\\/\n-", ": ", " ", "Invalid value: ", "map[", "!!str "]
)


@given(st.lists(_PIECES, max_size=12), _WORD, st.lists(_PIECES, max_size=12))
def test_unknown_text_is_reduced_to_known_words(before: list[str], word: str, after: list[str]) -> None:
    text = f"{' '.join(before)} {word} {' '.join(after)}"
    assert word not in redact(text)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        pytest.param("error parsing ip: hunter2", "error parsing ip: ...", id="helm, an address"),
        pytest.param("error parsing ip: 10.1.2.3", "error parsing ip: ...", id="helm, an address of numbers"),
        pytest.param(
            'x.example.com "a" is invalid: spec.a: Invalid value: v1.Spec{A:map[string]string{"a":"}"}, B:[]int(nil)}: '
            "field is immutable",
            'x.example.com "a" is invalid: spec.a: Invalid value: field is immutable',
            id="a structure of Go",
        ),
        pytest.param(
            'pods "a" is forbidden: violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false '
            '(container "c" must set securityContext.allowPrivilegeEscalation=false)',
            'pods "a" is forbidden: ... != ... (container ... must set ...)',
            id="pod security",
        ),
        pytest.param(
            'admission webhook "x.example.com" denied the request: the password must not be hunter2',
            'admission webhook "x.example.com" denied the request: the ... must not be ...',
            id="a webhook",
        ),
        pytest.param(
            'pods is forbidden: User "system:serviceaccount:a:b" cannot list resource "pods" in API group "" in the '
            'namespace "a"',
            'pods is forbidden: User "system:serviceaccount:a:b" cannot list resource "pods" in API group "" in the '
            'namespace "a"',
            id="permissions are whole",
        ),
        pytest.param("x" * 200_000 + " field is immutable", "... field is immutable", id="very long"),
        pytest.param("storage is (re)initializing", "storage is (re)initializing", id="informers look for it"),
        pytest.param("", "", id="nothing"),
    ],
)
def test_other_messages(text: str, told: str) -> None:
    assert redact(text) == told


@pytest.mark.parametrize(
    "part",
    ['"', '\\"', "{[", "[{", " ", "\n", "a.b[c]", "/a", 'a "b" ', "Invalid value: {", "- at '", " (e.g. ", "must be "],
    ids=repr,
)
def test_a_long_text_whose_quotes_and_brackets_never_end_takes_no_time(part: str) -> None:
    told = redact(part * (2**20 // len(part)) + " hunter2")
    assert "hunter2" not in told
    assert len(told) < 2**15


def test_many_causes_are_counted() -> None:
    causes: list[Any] = [
        {"reason": "FieldValueRequired", "message": "Required value", "field": f"a[{at}]"} for at in range(25)
    ]
    told = redact_status({"message": "", "details": {"kind": "Pod", "name": "p", "causes": causes}})
    assert told.startswith('Pod "p" is invalid: a[0]: Required value, a[1]: Required value')
    assert told.endswith("a[9]: Required value, and 15 more")


def test_a_secret_is_told_by_field_and_kind_of_error() -> None:
    cause: Any = {"reason": "FieldValueInvalid", "message": 'Invalid value: "x": must be mixed', "field": "data[a]"}
    status: dict[str, Any] = {"message": "must be mixed", "details": {"kind": "Secret", "name": "s", "causes": [cause]}}
    assert redact_status(status, is_secret=True) == 'Secret "s" is invalid: data[a]: Invalid value'
    assert redact_status({"message": "must be mixed"}, is_secret=True) == ""


def test_keys_of_lists_in_a_path_are_values() -> None:
    cause: Any = {
        "reason": "FieldManagerConflict",
        "message": 'conflict with "helm"',
        "field": '.spec.a[name="hunter2"].b',
    }
    assert redact_status({"details": {"causes": [cause]}}) == '.spec.a[...].b: conflict with "helm"'


@pytest.mark.parametrize("status", [{}, {"message": None}, {"details": []}, {"details": {"causes": [1, {}]}}], ids=str)
def test_a_status_of_another_shape(status: dict[str, Any]) -> None:
    assert redact_status(status) == redact_status(status, is_secret=True) == ""


def test_a_quote_that_a_cut_leaves_open_behind_a_backslash_is_a_quote() -> None:
    assert redact('"' + "create " * 100 + "\\") == "..."
    assert redact('"\\' * 50_000) == "...", "in one go, not anew from each quotation mark"
