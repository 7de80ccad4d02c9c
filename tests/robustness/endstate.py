"""What the cluster looks like in the end, and how two such states differ.

Compared are releases with what they were made from, all objects in the namespace, the definitions and webhooks of the
workload, and the ConfigMap. Not compared is what differs between two undisturbed runs: uids, versions, times,
certificates, ports, and the name of the namespace.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import gzip
import json
import re
from collections.abc import Iterable, Mapping
from typing import Final

from addon_operator.devcluster.api import Api
from addon_operator.documents.jsondoc import JsonObject, JsonValue, lookup
from tests.cluster.objects import administrator
from tests.cluster.operator import Operator, eventually
from tests.robustness.requests import counts
from tests.robustness.workload import group

_RBAC: Final = "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
NAMESPACED: Final = (
    *(f"/api/v1/namespaces/{{namespace}}/{plural}" for plural in ("configmaps", "secrets", "serviceaccounts")),
    f"{_RBAC}/roles",
    f"{_RBAC}/rolebindings",
)
CLUSTER_WIDE: Final = (
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
)
_RELEASE_TYPE: Final = "helm.sh/release.v1"
# Made by the API server, or different each time; none of it is anybody's wish.
_VOLATILE: Final = frozenset({
    "uid", "resourceVersion", "creationTimestamp", "managedFields", "generation", "selfLink", "status", "caBundle",
    "kubectl.kubernetes.io/last-applied-configuration", "addon-operator.io/content-digest",
})  # fmt: skip
# The operator removes those that it finds at its start, so that they are not in its way (docs/webhooks.md).
_MADE_AGAIN: Final = frozenset({"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"})
_PORT: Final = re.compile(r"(https?://127\.0\.0\.1):\d+")


@dataclasses.dataclass(frozen=True, slots=True)
class Release:
    """One release, as helm stores it.

    Attributes:
        revision: the newest.
        statuses: revision -> status.
        values: what the newest was given.
        manifest: what the newest rendered to.
    """

    revision: int
    statuses: Mapping[int, str]
    values: JsonValue
    manifest: str

    @property
    def status(self) -> str:
        """The status of the newest revision."""
        return self.statuses[self.revision]


@dataclasses.dataclass(frozen=True, slots=True)
class EndState:
    """All that is compared.

    Attributes:
        releases: by name.
        objects: `kind/name` -> the object, normalised.
        helm_hooks: the same, of Helm hooks: what of them is there depends on which revisions there were.
        uids: `kind/name` -> uid, of what nobody makes again on purpose: another one means deleted and made again.
        config: the data of the operator's ConfigMap.
    """

    releases: Mapping[str, Release]
    objects: Mapping[str, JsonValue]
    helm_hooks: Mapping[str, JsonValue]
    uids: Mapping[str, str]
    config: Mapping[str, str]


def capture(made: Operator) -> EndState:
    """Reads the state of an operator's namespace, past whatever proxy the operator talks to.

    Raises:
        AssertionError: the API server did not answer for a minute.
    """
    things = f"/apis/{group(made.namespace)}/v1/namespaces/{made.namespace}/things"
    namespaced = [path.format(namespace=made.namespace) for path in NAMESPACED]
    with contextlib.closing(administrator(made.cluster)) as api:
        items = [item for path in namespaced for item in _list(api, path)]
        wide = [item for path in CLUSTER_WIDE for item in _list(api, path)]
        ours = [item for item in wide if made.namespace in str(lookup(item, "/metadata/name"))]
        if any(item["kind"] == "CustomResourceDefinition" for item in ours):
            items += _list(api, things)
    return from_objects([*items, *ours], namespace=made.namespace)


def _list(api: Api, path: str) -> list[JsonObject]:
    # Of a kind that it has only just met, the API server says 429 for a while.
    document: JsonObject = eventually(lambda: _ask(api, path), what=f"GET {path}")
    items = document.get("items") or []  # none, too, of a definition that is being deleted
    assert isinstance(items, list)
    about = {"apiVersion": document["apiVersion"], "kind": str(document["kind"]).removesuffix("List")}
    return [{**about, **item} for item in items if isinstance(item, dict)]


def _ask(api: Api, path: str) -> JsonObject:
    status, body = api.request("GET", path)
    if status not in {200, 404}:
        raise OSError(f"status {status}")
    document: JsonObject = json.loads(body)
    return document


def from_objects(items: Iterable[JsonObject], *, namespace: str) -> EndState:
    """Sorts objects into a state (pure)."""
    stored: dict[str, dict[int, JsonObject]] = {}
    objects: dict[str, JsonValue] = {}
    helm_hooks: dict[str, JsonValue] = {}
    uids: dict[str, str] = {}
    config: dict[str, str] = {}
    for item in items:
        metadata = item["metadata"]
        assert isinstance(metadata, dict)
        name, labels = str(metadata["name"]), metadata.get("labels") or {}
        annotations = metadata.get("annotations") or {}
        assert isinstance(labels, dict)
        assert isinstance(annotations, dict)
        if not counts(name):
            continue
        key = f"{item['kind']}/{name.replace(namespace, 'NAMESPACE')}"
        if item.get("type") == _RELEASE_TYPE:
            stored.setdefault(str(labels["name"]), {})[int(str(labels["version"]))] = item
            continue
        if key == "ConfigMap/addon-operator":
            data = item.get("data") or {}
            assert isinstance(data, dict)
            config = {name: str(text) for name, text in data.items()}
        if "helm.sh/hook" in annotations:
            helm_hooks[key] = normalised(item, namespace=namespace)
            continue
        objects[key] = normalised(item, namespace=namespace)
        if item["kind"] not in _MADE_AGAIN:
            uids[key] = str(metadata.get("uid"))
    releases = {name: _release(revisions, namespace) for name, revisions in stored.items()}
    return EndState(releases, objects, helm_hooks, uids, config)


def _release(revisions: Mapping[int, JsonObject], namespace: str) -> Release:
    newest = max(revisions)
    statuses: dict[int, str] = {}
    for revision, secret in revisions.items():
        metadata = secret["metadata"]
        assert isinstance(metadata, dict)
        assert isinstance(metadata["labels"], dict)
        statuses[revision] = str(metadata["labels"]["status"])
    data = revisions[newest]["data"]
    assert isinstance(data, dict)
    document = json.loads(gzip.decompress(base64.b64decode(base64.b64decode(str(data["release"])))))
    values = json.loads(json.dumps(document.get("config") or {}).replace(namespace, "NAMESPACE"))
    manifest = str(document.get("manifest") or "").replace(namespace, "NAMESPACE")
    return Release(newest, statuses, values, manifest)


def normalised(value: JsonValue, *, namespace: str) -> JsonValue:
    """The document without what differs between two undisturbed runs (pure)."""
    if isinstance(value, dict):
        return {
            name.replace(namespace, "NAMESPACE"): normalised(item, namespace=namespace)
            for name, item in value.items()
            if name not in _VOLATILE
        }
    if isinstance(value, list):
        return [normalised(item, namespace=namespace) for item in value]
    if isinstance(value, str):
        return _PORT.sub(r"\1:PORT", value.replace(namespace, "NAMESPACE"))
    return value


def differences(expected: EndState, actual: EndState, *, extra_revisions: Mapping[str, int] | None = None) -> list[str]:
    """Says how a state differs from the one that it should be (pure).

    Args:
        expected: after an undisturbed run.
        actual: after the case.
        extra_revisions: release -> how many revisions it may have more than expected; others none. It may always have
            fewer: changes that come together need one upgrade. None: neither revisions nor the objects of Helm hooks
            are compared.
    """
    if extra_revisions is not None:
        expected = dataclasses.replace(expected, objects={**expected.objects, **expected.helm_hooks})
        actual = dataclasses.replace(actual, objects={**actual.objects, **actual.helm_hooks})
    found = [
        *_keys("release", expected.releases, actual.releases),
        *_keys("object", expected.objects, actual.objects),
        *_keys("key of the ConfigMap", expected.config, actual.config),
    ]
    for name in sorted(expected.releases.keys() & actual.releases.keys()):
        found += _release_differences(name, expected.releases[name], actual.releases[name])
        if extra_revisions is not None:
            most = expected.releases[name].revision + extra_revisions.get(name, 0)
            if actual.releases[name].revision > most:
                found.append(f"release {name}: revision {actual.releases[name].revision}, at most {most} are needed")
    for key in sorted(expected.objects.keys() & actual.objects.keys()):
        if expected.objects[key] != actual.objects[key]:
            found.append(f"object {key}: {paths(expected.objects[key], actual.objects[key])}")
    return found


def recreated(before: EndState, after: EndState) -> list[str]:
    """Says which objects were deleted and made again between two states: what they held is lost (pure)."""
    both = sorted(before.uids.keys() & after.uids.keys())
    return [f"object {key}: was deleted and made again" for key in both if before.uids[key] != after.uids[key]]


def paths(expected: JsonValue, actual: JsonValue, at: str = "") -> str:
    """Names the places where two documents differ, with both values (pure)."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        names = sorted(expected.keys() | actual.keys())
        parts = [
            paths(expected.get(name), actual.get(name), f"{at}/{name}")
            for name in names
            if expected.get(name) != actual.get(name)
        ]
        return "; ".join(parts)
    return f"{at or '/'} is {_short(actual)} and not {_short(expected)}"


def _short(value: JsonValue) -> str:
    text = json.dumps(value)
    return text if len(text) <= 200 else f"{text[:200]}..."


def _keys(what: str, expected: Mapping[str, object], actual: Mapping[str, object]) -> list[str]:
    missing = [f"{what} {key}: is missing" for key in sorted(expected.keys() - actual.keys())]
    return [*missing, *(f"{what} {key}: should not be there" for key in sorted(actual.keys() - expected.keys()))]


def _release_differences(name: str, expected: Release, actual: Release) -> list[str]:
    found = []
    if actual.status != expected.status:
        found.append(f"release {name}: revision {actual.revision} is {actual.status}, not {expected.status}")
    stuck = [f"{one} is {status}" for one, status in actual.statuses.items() if status.startswith(("pending", "unin"))]
    if stuck:
        found.append(f"release {name}: revision {', '.join(stuck)}")
    if actual.values != expected.values:
        found.append(f"release {name}: values: {paths(expected.values, actual.values)}")
    if actual.manifest != expected.manifest:
        found.append(f"release {name}: its manifest is another one")
    return found


def unfinished(made: Operator) -> list[str]:
    """Says what an operator has not done yet, or cannot do: not ready, tasks in queues, modules that fail."""
    status, text = made.http("/readyz")
    if status != 200:
        return [f"not ready: {status} {text.strip()}"]
    queues = made.queues()
    waiting = [f"queue {queue}: {task}" for queue, tasks in queues.items() if queue != "ticks" for task in tasks]
    return waiting or [
        f"module {name}: {module['state']}"
        for name, module in made.modules().items()
        if module["state"] not in {"ready", "disabled"}
    ]
