"""helm without a program: releases are kept in an API server in helm's own format, charts are rendered as they stand.

It implements the edge `Helm`, so that the storage of releases, healing and all that is built on them run as they are.
A template is YAML; of templating it knows `{{ .Values | toJson | quote }}` only. helm hooks are unknown to it.
`tests/contract/test_helm.py` holds it to what the real helm does.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final

from addon_operator.documents import jsondoc, yamldoc
from addon_operator.documents.jsondoc import JsonObject
from addon_operator.errors import HelmError, KubeError
from addon_operator.helm import manifest
from addon_operator.helm.client import ChartRequest, UpgradeResult
from addon_operator.helm.labels import add_labels
from addon_operator.helm.manifest import Document
from addon_operator.helm.release import FINGERPRINT_LABEL, PENDING, REVISION_LABEL
from addon_operator.helm.release_record import decode_release, encode_release, secret_name
from addon_operator.kube.client import ApiServer, KubeClient
from addon_operator.kube.discovery import Discovery
from addon_operator.kube.refs import SECRETS, ObjectKey, ObjectRef, metadata_of

# The only templating that it knows: all values, as a string of JSON.
ALL_VALUES: Final = "{{ .Values | toJson | quote }}"
_KEPT_LABELS: Final = frozenset({"name", "owner", "status", "version", "createdAt", "modifiedAt"})


class FakeHelm:
    """The edge `Helm`.

    Attributes:
        operations: operation and release of each request, in order.
        history: each upgrade that was not needless, and each uninstallation, as `RELEASE OPERATION`.
        failing: release -> why its objects cannot be installed.
        lasts_s: how long an installation or upgrade takes, once it has begun.
        on_operation: receives module, operation and duration in seconds.
    """

    version = "v3.19.0"

    def __init__(
        self,
        api: ApiServer,
        namespace: str,
        *,
        extra_labels: Iterable[tuple[str, str]] = (),
        history_max: int = 10,
    ) -> None:
        """Takes what the real one takes."""
        self.operations: list[tuple[str, str]] = []
        self.history: list[str] = []
        self.failing: dict[str, str] = {}
        self.lasts_s = 0.0
        self.extra_labels = tuple(extra_labels)
        self._client, self._namespace = KubeClient(api), namespace
        self._history_max = history_max
        self.on_operation: Callable[[str, str, float], None] = lambda _module, _operation, _duration_s: None

    async def upgrade(
        self, request: ChartRequest, fingerprint: str, *, revision: int, unless: str | None = None
    ) -> UpgradeResult | None:
        """Installs or upgrades a release."""
        rendered = _render(request)
        if unless is not None and manifest.rendered_digest(rendered) == unless:
            return None
        name = request.name
        self._count("upgrade", name)
        self.history.append(f"{name} upgrade")
        text = add_labels(rendered, dict(self.extra_labels)) or manifest.NOTHING
        wanted = {ObjectKey.of(item): item for item in _objects(text, f"module {name}")}
        refs = await self._refs(name, wanted)
        records = await self._records(name)
        newest = max(records, default=0)
        if newest and _status(records[newest]) in PENDING:
            raise _failed(name, "upgrade", "another operation (install/upgrade/rollback) is in progress")
        deployed = max((at for at, secret in records.items() if _status(secret) == "deployed"), default=None)
        release: JsonObject = {
            "name": name, "namespace": self._namespace, "version": newest + 1, "manifest": text, "hooks": [],
            "config": request.values, "info": {"status": "pending-upgrade" if newest else "pending-install"},
        }  # fmt: skip
        labels = {FINGERPRINT_LABEL: fingerprint, REVISION_LABEL: str(revision)}
        if newest:
            labels = {**_own_labels(records[newest]), **labels}
        await self._client.create(self._record_ref(name, newest + 1), release_secret(release, labels))
        await asyncio.sleep(self.lasts_s)
        try:
            await self._put_objects(name, {refs[key]: item for key, item in wanted.items()})
            await self._delete_objects(records.get(deployed or newest), kept=wanted)
        except KubeError as error:
            await self._store(release, labels, "failed")
            raise _failed(name, "upgrade", str(error)) from error
        for secret in records.values():
            if _status(secret) == "deployed":
                await self._store(decode_release(secret), _own_labels(secret), "superseded")
        await self._store(release, labels, "deployed")
        await self._prune(name)
        return UpgradeResult(
            revision=newest + 1,
            rendered=manifest.rendered_digest(rendered),
            checksum=manifest.checksum(text),
            objects=tuple(item.key for item in manifest.objects(rendered) if item.lasting),
        )

    async def template(self, request: ChartRequest, *, kube_version: str, apis: Discovery, exact: bool) -> str:
        """Returns the digest of the rendering."""
        self._count("template", request.name)
        return manifest.rendered_digest(_render(request))

    async def uninstall(self, name: str, *, keep_record: bool = False) -> None:
        """Removes a release and its objects."""
        self._count("uninstall", name)
        self.history.append(f"{name} uninstall")
        records = await self._records(name)
        if not records:
            return
        newest = records[max(records)]
        if _status(newest) == "uninstalled" and keep_record:
            raise _failed(name, "uninstall", f'the release named "{name}" is already deleted')
        if _status(newest) != "uninstalled":
            await self._delete_objects(newest)
        if keep_record:
            for secret in records.values():
                status = "uninstalled" if secret is newest else "superseded"
                await self._store(decode_release(secret), _own_labels(secret), status)
        else:
            for revision in records:
                await self._client.delete(self._record_ref(name, revision))

    def _count(self, operation: str, name: str) -> None:
        self.operations.append((operation, name))
        self.on_operation(name, operation, 0.0)

    def _record_ref(self, name: str, revision: int) -> ObjectRef:
        return ObjectRef(SECRETS, self._namespace, secret_name(name, revision))

    async def _records(self, name: str) -> dict[int, JsonObject]:
        found = await self._client.list(SECRETS, self._namespace, label_selector=f"owner=helm,name={name}")
        return {int(_labels(secret)["version"]): secret for secret in found}

    async def _store(self, release: JsonObject, labels: dict[str, str], status: str) -> None:
        version = release["version"]
        assert isinstance(version, int)
        secret = release_secret({**release, "info": {"status": status}}, labels)
        # As helm does it: annotations that others have made stay.
        await self._client.patch(self._record_ref(str(release["name"]), version), secret)

    async def _prune(self, name: str) -> None:
        records = await self._records(name)
        old = [at for at in sorted(records) if _status(records[at]) != "deployed"]
        for revision in old[: max(len(records) - self._history_max, 0)]:
            await self._client.delete(self._record_ref(name, revision))

    # --- objects

    async def _refs(self, name: str, keys: Iterable[ObjectKey]) -> dict[ObjectKey, ObjectRef]:
        apis, found = await self._client.discover(), {}
        for key in keys:
            try:
                resource = apis.resource(key.kind, key.api_version)
            except KubeError as error:
                missing = f'resource mapping not found: no matches for kind "{key.kind}" in version "{key.api_version}"'
                raise _failed(name, "upgrade", missing) from error
            found[key] = ObjectRef(resource, key.namespace or self._namespace, key.name)
        return found

    async def _put_objects(self, name: str, wanted: dict[ObjectRef, JsonObject]) -> None:
        if name in self.failing:
            raise KubeError(self.failing[name], status=422, reason="Invalid")
        for ref, item in wanted.items():
            marked = _marked(item, name, self._namespace)
            if await self._client.get(ref, metadata_only=True) is None:
                await self._client.create(ref, marked)
            else:
                await self._client.patch(ref, marked)

    async def _delete_objects(self, record: JsonObject | None, kept: Collection[ObjectKey] = ()) -> None:
        """Deletes what a record has made; with its kind, an object is gone."""
        text = str(decode_release(record).get("manifest") or "") if record else ""
        gone = [key for item in _objects(text, "the stored manifest") if (key := ObjectKey.of(item)) not in kept]
        apis = await self._client.discover() if gone else None
        for key in gone:
            assert apis is not None
            with contextlib.suppress(KubeError):
                resource = apis.resource(key.kind, key.api_version)
                ref = ObjectRef(resource, key.namespace or self._namespace, key.name)
                await self._client.delete(ref, propagation="Background")


def release_secret(
    release: JsonObject, labels: dict[str, str], annotations: dict[str, str] | None = None
) -> JsonObject:
    """Returns the Secret in which helm keeps one revision of a release.

    Args:
        release: its document: name, namespace, version, manifest, info.status.
        labels: of others than helm.
        annotations: of others than helm; None leaves those that are there.
    """
    info, name, version = release["info"], release["name"], release["version"]
    assert isinstance(info, dict)
    own = {"name": str(name), "owner": "helm", "status": str(info["status"]), "version": str(version)}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": secret_name(str(name), int(str(version))),
            "namespace": release["namespace"],
            "labels": {**labels, **own},
            **({"annotations": {**annotations}} if annotations else {}),
        },
        "type": "helm.sh/release.v1",
        "data": encode_release(release),
    }


def _render(request: ChartRequest) -> tuple[Document, ...]:
    folder = request.module_dir / "templates"
    files = sorted(folder.rglob("*.yaml")) if folder.is_dir() else []
    values = jsondoc.dumps(jsondoc.dumps(request.values).decode()).decode()
    texts = ((file.name, file.read_text().replace(ALL_VALUES, values)) for file in files)
    pieces = (f"---\n# Source: {request.name}/templates/{name}\n{text}\n" for name, text in texts)
    return manifest.documents("".join(pieces))


def _objects(text: str, where: str) -> Iterator[JsonObject]:
    for document in yamldoc.load_all(text, where):
        if isinstance(document, dict) and document.get("kind"):
            yield document


def _marked(item: JsonObject, name: str, namespace: str) -> JsonObject:
    metadata = metadata_of(item)
    labels, annotations = metadata.get("labels"), metadata.get("annotations")
    marks: JsonObject = {
        "labels": {**(labels if isinstance(labels, dict) else {}), "app.kubernetes.io/managed-by": "Helm"},
        "annotations": {
            **(annotations if isinstance(annotations, dict) else {}),
            "meta.helm.sh/release-name": name, "meta.helm.sh/release-namespace": namespace,
        },
    }  # fmt: skip
    return {**item, "metadata": {**metadata, **marks}}


def _labels(secret: JsonObject) -> dict[str, str]:
    labels = metadata_of(secret).get("labels")
    return {name: str(text) for name, text in labels.items()} if isinstance(labels, dict) else {}


def _own_labels(secret: JsonObject) -> dict[str, str]:
    return {name: text for name, text in _labels(secret).items() if name not in _KEPT_LABELS}


def _status(secret: JsonObject) -> str:
    return _labels(secret).get("status", "")


def _failed(name: str, operation: str, reason: str) -> HelmError:
    return HelmError(f"module {name}: helm {operation}: {reason}")
