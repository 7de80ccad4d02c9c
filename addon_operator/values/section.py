"""One section of values at one moment: its layers, the merged values, and where each value came from.

Pure. Sections are immutable: a change makes a new one. The store knows which section is in force.

Source: contract.md 2.7, 2.12.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence

from addon_operator.documents import jsondoc
from addon_operator.documents.jsondoc import JsonValue
from addon_operator.errors import ValuesRejected
from addon_operator.values import layers, patching
from addon_operator.values.layers import Origin, StaticLayer
from addon_operator.values.patches import Operation, PatchError
from addon_operator.values.schema import SectionSchemas


@dataclasses.dataclass(frozen=True, slots=True)
class SectionSpec:
    """What the files say about one section.

    Attributes:
        key: `global` or the camelCase key of a module.
        static: its layers, lowest first.
        schemas: its compiled schemas.
    """

    key: str
    static: tuple[StaticLayer, ...]
    schemas: SectionSchemas


@dataclasses.dataclass(frozen=True)
class Section:
    """One section. It has no slots, so that merged values can be kept once they are computed.

    Attributes:
        spec: what the files say.
        config: its content in the ConfigMap; `{}` if there is none.
        patches: the kept operations of hooks, compact.
        authors: path of a patch -> the hook that set it, and when.
    """

    spec: SectionSpec
    config: JsonValue = dataclasses.field(default_factory=dict, repr=False)
    patches: tuple[Operation, ...] = ()
    authors: Mapping[str, Origin] = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def config_effective(self) -> JsonValue:
        """Static layers, defaults of the config schema, and the ConfigMap."""
        schemas = self.spec.schemas
        base = schemas.with_config_defaults(layers.merge_layers(self.spec.static))
        # An empty section sets nothing, not even an empty list; items of a list in it get their defaults.
        return base if self.config == {} else schemas.with_config_defaults(jsondoc.deep_merge(base, self.config))

    @functools.cached_property
    def effective(self) -> JsonValue:
        """The effective config, defaults of the values schema, and patches."""
        value = self._defaulted(self.config_effective)
        pending = self.patches
        while pending:
            document, skipped = patching.reapply(pending, {self.spec.key: value})
            assert isinstance(document, dict)
            value = self._defaulted(document.get(self.spec.key, {}))
            # A default can be the parent that a skipped operation needs.
            pending = skipped if len(skipped) < len(pending) else ()
        return value

    @functools.cached_property
    def digest(self) -> str:
        """A digest of the effective values."""
        return jsondoc.digest(self.effective)

    def _defaulted(self, value: JsonValue) -> JsonValue:
        root = jsondoc.join(self.spec.key)
        removed = frozenset(item.path.removeprefix(root) for item in self.patches if item.op == "remove")
        return self.spec.schemas.with_values_defaults(value, absent=removed)

    def with_config(self, config: JsonValue) -> Section:
        """Returns the section with this content in the ConfigMap; itself if that is the same."""
        if jsondoc.digest(self.config) == jsondoc.digest(config):
            return self
        return dataclasses.replace(self, config=config)

    def with_config_patch(self, operations: Sequence[Operation], where: str) -> Section:
        """Returns the section with a patch applied to its content in the ConfigMap; itself if nothing changes.

        Raises:
            ValuesRejected: the patch does not fit.
        """
        if not operations:
            return self
        document = _resolve(operations, self.spec.key, self.config, where).document
        assert isinstance(document, dict)
        return self.with_config(document.get(self.spec.key, {}))

    def with_values_patch(self, operations: Sequence[Operation], where: str, author: Origin) -> Section:
        """Returns the section with a patch applied to its values; itself if the kept patches stay the same.

        Args:
            operations: the patch.
            where: what messages call it.
            author: of what is new in it; an operation that repeats an earlier one keeps its author.

        Raises:
            ValuesRejected: the patch does not fit.
        """
        if not operations:
            return self
        resolution = _resolve(operations, self.spec.key, self.effective, where)
        kept = patching.compact([*self.patches, *resolution.operations])
        known = {_identity(operation) for operation in self.patches}
        if {_identity(operation) for operation in kept} == known:
            return self
        authors = {item.path: self.authors[item.path] if _identity(item) in known else author for item in kept}
        return dataclasses.replace(self, patches=kept, authors=authors)

    def violations(self, *, complete: bool) -> tuple[str, ...]:
        """Returns the violations in the effective config and the effective values, sorted.

        Args:
            complete: whether values that hooks may still add are required already.
        """
        return self._violations(functools.partial(self.spec.schemas.check_values, complete=complete))

    def helm_violations(self) -> tuple[str, ...]:
        """Returns the violations that matter to helm in the effective config and the effective values, sorted."""
        return self._violations(self.spec.schemas.check_helm)

    def _violations(self, check_values: Callable[..., tuple[str, ...]]) -> tuple[str, ...]:
        key, schemas = self.spec.key, self.spec.schemas
        if any(not isinstance(value, dict | list) for value in (self.config, self.config_effective, self.effective)):
            return (f"{key} in body must be of type object or array",)
        lines = schemas.check_config(key, self.config_effective, origin=self._said_by)
        return tuple(sorted({*lines, *check_values(key, self.effective, origin=self._said_by)}))

    def helm_values(self) -> JsonValue:
        """Returns the effective values as helm needs them.

        Helm merges them over the chart's own values.yaml. A key of that file that hooks removed is null here:
        that is how helm drops it.

        Source: contract.md 2.12 "Chart defaults".
        """
        own = layers.merge_layers([layer for layer in self.spec.static if layer.chart])
        return _masking(own, self.effective)

    def origins(self) -> Mapping[str, Origin]:
        """Returns where each scalar and each empty map or list of the effective values came from, in their order.

        Returns:
            JSON pointer inside the section (`/servers/0`) -> origin.
        """
        pointers = _leaves(self.effective, "") if self.effective != {} else ()
        return {pointer: self._origin(pointer) for pointer in pointers}

    def _said_by(self, pointer: str) -> str:
        """Names the source of a value that a user may have to correct; empty for none, and for what is missing."""
        try:
            jsondoc.lookup(self.effective, pointer)
        except KeyError:
            return ""
        # Without the time: the text of an error stays the same when it is retried.
        return str(dataclasses.replace(self._origin(pointer), at=None)) if pointer else ""

    def _origin(self, pointer: str) -> Origin:
        root = jsondoc.join(self.spec.key)
        by_path = {operation.path: operation for operation in self.patches}
        patched = next((path for path in jsondoc.ancestry(root + pointer) if path in by_path), None)
        if patched is not None:
            operation = by_path[patched]
            inside = jsondoc.split((root + pointer).removeprefix(patched))
            is_set = operation.op == "add" and _sets(operation.value, inside)
            return self.authors[patched] if is_set else self._default(pointer)
        return self._unpatched(pointer)

    def _unpatched(self, pointer: str) -> Origin:
        tokens = jsondoc.split(pointer)
        layered = [(layer.value, _file_origin(layer, self.spec.key, pointer)) for layer in self.spec.static]
        layered.append((self.config, Origin("configmap", self.spec.key)))
        for value, origin in reversed(layered):
            is_set = None if value == {} else _sets(value, tokens)
            if is_set is not None:
                return origin if is_set else self._default(pointer)
        return self._default(pointer)

    def _default(self, pointer: str) -> Origin:
        schemas = self.spec.schemas
        from_config = _sets(self.config_effective, jsondoc.split(pointer))
        return Origin("default", schemas.config_file if from_config else schemas.values_file)


def _resolve(operations: Sequence[Operation], key: str, value: JsonValue, where: str) -> patching.Resolution:
    try:
        resolution = patching.resolve(operations, {key: value}, where)
        jsondoc.dumps(resolution.document)
    except PatchError as error:
        raise ValuesRejected(str(error)) from error
    except ValueError as error:
        raise ValuesRejected(f"{where}: the result is nested too deeply") from error
    return resolution


def _identity(operation: Operation) -> str:
    return jsondoc.digest(operation.as_json())


def _masking(below: JsonValue, value: JsonValue) -> JsonValue:
    if not isinstance(below, dict) or not isinstance(value, dict):
        return value
    masked = {key: _masking(below.get(key), item) for key, item in value.items()}
    return masked | {key: None for key in below if key not in value}


def _leaves(value: JsonValue, pointer: str) -> Iterator[str]:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _leaves(item, f"{pointer}/{jsondoc.escape(key)}")
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield from _leaves(item, f"{pointer}/{index}")
    else:
        yield pointer


def _sets(value: JsonValue, tokens: Sequence[str]) -> bool | None:
    """Returns whether a layer has a value at a pointer: None if that is up to the layers below.

    Maps are merged, so a missing key sets nothing; anything else replaces all that is below.
    """
    missing = None
    for token in tokens:
        if isinstance(value, dict):
            if token not in value:
                return missing
            value = value[token]
        else:
            missing = False
            index = jsondoc.array_index(token)
            if not isinstance(value, list) or index is None or index >= len(value):
                return missing
            value = value[index]
    return True


def _file_origin(layer: StaticLayer, key: str, pointer: str) -> Origin:
    places = jsondoc.ancestry(jsondoc.join(key) + pointer)
    return Origin("file", layer.file, line=next((layer.lines[place] for place in places if place in layer.lines), None))
