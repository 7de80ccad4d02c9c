"""A kind of objects that hooks of a bench are bound to, as those see it who change objects and permissions."""

from __future__ import annotations

from collections.abc import Mapping

from addon_operator.documents.jsondoc import JsonObject, JsonValue
from addon_operator.kube.refs import CUSTOM_RESOURCE_DEFINITIONS, Resource, metadata_of
from tests.fakes.api_server import FakeApiServer
from tests.fakes.gate import Gate


class BoundKind:
    """What a `kubernetes` binding is about: a kind, its objects, and whether the API server answers for it."""

    def __init__(self, resource: Resource, api: FakeApiServer, gate: Gate) -> None:
        self.resource = resource
        self._api, self._gate = api, gate

    @property
    def lists(self) -> int:
        """How often the objects were listed."""
        return self._gate.lists[self.resource.plural]

    @property
    def stopped(self) -> bool:
        """Whether nobody watches."""
        return not self._gate.watches[self.resource.plural]

    @property
    def is_served(self) -> bool:
        """Whether the API server knows the kind."""
        resource = self.resource
        return (resource.group, resource.version, resource.plural) in self._api.objects.kinds

    def change(self, event: str, name: str, *, labels: Mapping[str, str] | None = None, **fields: JsonValue) -> None:
        """Somebody creates (`Added`), changes or deletes an object.

        Args:
            event: as hooks see it.
            name: of the object.
            labels: of the object; None leaves those that it has.
            fields: of the object, in the place of those that it has.
        """
        if event == "Deleted":
            self._api.remove(self.resource, self._namespace, name)
            return
        existing = self._api.find(self.resource, self._namespace, name)
        assert (existing is None) is (event == "Added"), f"{name}: {event}"
        metadata: JsonObject = {"name": name, "namespace": self._namespace} if self._namespace else {"name": name}
        changes = {"n": str(metadata_of(existing).get("resourceVersion"))} if existing else {}
        kept = metadata_of(existing).get("labels", {}) if existing else {}
        document: JsonObject = {
            "apiVersion": self.resource.api_version, "kind": self.resource.kind,
            "metadata": {**metadata, "labels": kept if labels is None else {**labels}, "annotations": {**changes}},
        }  # fmt: skip
        self._api.put({**document, **fields})

    def answer(self) -> None:
        """The API server serves the kind, and answers who asks for its objects."""
        if not self.is_served:
            self.define()
        self._gate.answer(self.resource.plural)

    def refuse(self, reason: str) -> None:
        """The API server forbids lists and watches."""
        self._gate.refuse(self.resource.plural, reason)

    def define(self, *versions: str) -> None:
        """Somebody creates the CustomResourceDefinition of the kind, in one or several versions."""
        resource = self.resource
        schema: JsonObject = {"openAPIV3Schema": {"type": "object"}}
        names: JsonObject = {"plural": resource.plural, "kind": resource.kind}
        served: list[JsonValue] = [
            {"name": version, "served": True, "storage": not number, "schema": schema}
            for number, version in enumerate(versions or (resource.version,))
        ]
        self._api.put(
            {
                "apiVersion": CUSTOM_RESOURCE_DEFINITIONS.api_version,
                "kind": CUSTOM_RESOURCE_DEFINITIONS.kind,
                "metadata": {"name": f"{resource.plural}.{resource.group}"},
                "spec": {"group": resource.group, "scope": "Cluster", "names": names, "versions": served},
            }
        )

    def undefine(self) -> None:
        """Somebody deletes the definition of the kind."""
        if self.is_served:
            name = f"{self.resource.plural}.{self.resource.group}"
            self._api.remove(CUSTOM_RESOURCE_DEFINITIONS, "", name)

    @property
    def _namespace(self) -> str:
        return "default" if self.resource.namespaced else ""
