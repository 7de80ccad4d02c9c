"""Hypothesis strategies for values and patches."""

from __future__ import annotations

from hypothesis import strategies as st

from addon_operator.documents.jsondoc import JsonObject, JsonValue

KEYS = st.sampled_from(["a", "b", "c", "d/e", "~"])

scalars: st.SearchStrategy[JsonValue] = st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(["", "x", "y"])

values: st.SearchStrategy[JsonValue] = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=12
)

objects: st.SearchStrategy[JsonObject] = st.dictionaries(KEYS, values, max_size=4)

maps_only: st.SearchStrategy[JsonValue] = st.recursive(
    scalars, lambda inner: st.dictionaries(KEYS, inner, max_size=3), max_leaves=10
)
