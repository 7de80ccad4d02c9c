"""Stands in for hooks that are asked by the API server."""

from __future__ import annotations

import asyncio
import dataclasses

from addon_operator.documents.jsondoc import JsonObject
from addon_operator.errors import AddonOperatorError
from addon_operator.hooks.call import HookId
from addon_operator.hooks.config.model import Admission, AdmissionKind, AdmissionRule, Conversion
from addon_operator.webhooks.review import AdmissionAnswer, ConversionAnswer, bare

ALLOWED = AdmissionAnswer(allowed=True)


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """One run of a conversion hook."""

    hook: HookId
    from_version: str
    to_version: str
    desired: str
    names: tuple[str, ...]


class ScriptedReviewer:
    """Answers by the name of the binding, and remembers what it was asked.

    Attributes:
        answers: binding -> answer, or the error of its hook; everything else is allowed.
        stuck: bindings whose hooks do not end before they are let.
    """

    def __init__(self) -> None:
        self.answers: dict[str, AdmissionAnswer | AddonOperatorError] = {}
        self.stuck: set[str] = set()
        self.let_end = asyncio.Event()
        self.requests: list[tuple[HookId, str, JsonObject]] = []
        self.steps: list[Step] = []
        self.running = 0
        self.most_running = 0
        self.conversion: ConversionAnswer | AddonOperatorError | None = None
        self._asked = asyncio.Event()

    async def admit(self, hook: HookId, binding: Admission, request: JsonObject) -> AdmissionAnswer:
        self.requests.append((hook, binding.name, request))
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        self._asked.set()
        try:
            if binding.name in self.stuck:
                await self._die_slowly()
            answer = self.answers.get(binding.name, ALLOWED)
            if isinstance(answer, AddonOperatorError):
                raise answer
            return answer
        finally:
            self.running -= 1

    async def convert(
        self, hook: HookId, binding: Conversion, *, from_version: str, to_version: str, request: JsonObject
    ) -> ConversionAnswer:
        objects, target = request["objects"], str(request["desiredAPIVersion"])
        assert isinstance(objects, list)
        items = [item for item in objects if isinstance(item, dict)]
        names = tuple(_name(item) for item in items)
        self.steps.append(Step(hook, from_version, to_version, target, names))
        if isinstance(self.conversion, AddonOperatorError):
            raise self.conversion
        return self.conversion or ConversionAnswer(
            objects=tuple(_converted(item, api_version=target, step=to_version) for item in items)
        )

    async def until_asked(self, times: int) -> None:
        while len(self.requests) < times:
            self._asked.clear()
            await self._asked.wait()

    async def _die_slowly(self) -> None:
        try:
            await self.let_end.wait()
        except asyncio.CancelledError:
            # As a process that has to be killed.
            await self.let_end.wait()
            raise


def _name(item: JsonObject) -> str:
    metadata = item["metadata"]
    assert isinstance(metadata, dict)
    return str(metadata["name"])


def _converted(item: JsonObject, *, api_version: str, step: str) -> JsonObject:
    """Notes in the object which way it went."""
    spec = item.get("spec")
    assert isinstance(spec, dict)
    return {**item, "apiVersion": api_version, "spec": {**spec, "way": f"{spec.get('way', '')}>{bare(step)}"}}


def admission(
    name: str,
    *,
    kind: AdmissionKind = "kubernetesValidating",
    namespace: str = "",
    timeout_s: int = 10,
    failure_policy: str = "Fail",
) -> Admission:
    """Makes a binding to the creation of ConfigMaps, all of them unless there is a namespace."""
    selector: JsonObject = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    return Admission(
        kind=kind,
        name=name,
        rules=(AdmissionRule(("",), ("v1",), ("configmaps",), ("CREATE",), "Namespaced"),),
        failure_policy=failure_policy,
        side_effects="None",
        timeout_s=timeout_s,
        match_conditions=(),
        label_selector=None,
        namespace_labels=selector if namespace else None,
        include_snapshots_from=(),
        group="",
    )


def conversion(crd_name: str, *steps: tuple[str, str]) -> Conversion:
    """Makes a binding to the conversion of a definition."""
    return Conversion("convert", crd_name, steps, (), "")
