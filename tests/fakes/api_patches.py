"""How patches change objects, as API servers do it."""

from __future__ import annotations

import base64

import jsonpatch
import jsonpointer

from addon_operator.documents.jsondoc import JsonObject, JsonValue


def decoded_secret(document: JsonObject) -> JsonObject:
    """Returns a Secret with its `stringData` in `data`; other objects as they are."""
    texts = document.get("stringData")
    if not isinstance(texts, dict):
        return document
    coded = {name: base64.b64encode(str(text).encode()).decode() for name, text in texts.items()}
    data = document.get("data")
    plain = {name: value for name, value in document.items() if name != "stringData"}
    return {**plain, "data": {**(data if isinstance(data, dict) else {}), **coded}}


def merged(base: JsonValue, patch: JsonValue) -> JsonValue:
    """Returns a value after a merge patch (RFC 7386)."""
    if not isinstance(patch, dict):
        return patch
    result = dict(base) if isinstance(base, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


def json_patched(item: JsonObject, patch: JsonValue) -> JsonObject:
    """Returns the object after a JSON patch (RFC 6902).

    Raises:
        ValueError: it cannot be applied.
    """
    assert isinstance(patch, list)
    try:
        result: JsonObject = jsonpatch.apply_patch(
            item, [operation for operation in patch if isinstance(operation, dict)]
        )
    except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException) as error:
        raise ValueError from error
    return result
