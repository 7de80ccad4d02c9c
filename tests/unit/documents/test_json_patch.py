"""The form of operations of JSON patches (RFC 6902)."""

from __future__ import annotations

import re

import pytest

from addon_operator.documents.fields import parse_map
from addon_operator.documents.json_patch import check_operation
from addon_operator.documents.jsondoc import JsonValue

NAMES = "add, remove, replace, move, copy, test"


@pytest.mark.parametrize(
    ("operation", "problems"),
    [
        ({"op": "add", "path": "", "value": None}, []),
        ({"op": "remove", "path": "/a~2", "comment": 1}, []),
        ({"op": "replace", "path": "/a", "value": 0}, []),
        ({"op": "move", "path": "/a", "from": "/b"}, []),
        ({"op": "copy", "path": "/a", "from": ""}, []),
        ({"op": "test", "path": "/a\n/b", "value": []}, []),
        (1, ["o: must be a map, not an integer"]),
        ({"path": "/a"}, [f"o.op: is required: one of {NAMES}"]),
        ({"op": "put"}, [f"o.op: must be one of {NAMES}"]),
        ({"op": None}, [f"o.op: is required: one of {NAMES}"]),
        ({"op": ["add"]}, ["o.op: must be a string, not a list"]),
        ({"op": "add", "path": "a"}, ["o.path: must be a JSON pointer", "o.value: is required"]),
        ({"op": "remove", "path": None}, ["o.path: is required"]),
        ({"op": "move", "path": 5}, ["o.path: must be a string, not an integer", "o.from: is required"]),
        ({"op": "copy", "path": "/a", "from": "b"}, ["o.from: must be a JSON pointer"]),
    ],
    ids=str,
)
def test_check(operation: JsonValue, problems: list[str]) -> None:
    errors: list[str] = []
    parse_map(operation, "o", errors, check_operation, lenient=True)
    assert errors == problems


def test_pointers_can_be_restricted() -> None:
    errors: list[str] = []
    below = re.compile(r"/a/.*")
    operation: JsonValue = {"op": "remove", "path": "/b"}
    parse_map(operation, "", errors, lambda fields: check_operation(fields, below, "/a/b"), lenient=True)
    assert errors == ["path: must be a JSON pointer such as /a/b"]
