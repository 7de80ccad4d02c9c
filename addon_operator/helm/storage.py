"""The release Secrets of one namespace, listed and watched as metadata only; what is in one: `release_record.py`.

Facts come from memory; the API server is asked only to change a record or to read a manifest that nobody has noted.
Installing and uninstalling releases is helm's (`client.py`). Source: design.md 5.1, contract.md 2.12.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Iterable
from typing import Final

from addon_operator.documents.jsondoc import JsonObject
from addon_operator.errors import HelmError, KubeError
from addon_operator.helm import manifest
from addon_operator.helm.release import (
    CHECKSUM_LABEL,
    ENABLED_BY_ANNOTATION,
    FINGERPRINT_LABEL,
    HELD_ANNOTATION,
    OBJECTS_ANNOTATION,
    RENDERED_LABEL,
    REVISION_LABEL,
    ReleaseFacts,
)
from addon_operator.helm.release_record import (
    UNLISTED,
    ReleaseRecord,
    decode_release,
    enabled_by_note,
    encode_release,
    facts_of,
    parse_secret_name,
    read_record,
    secret_name,
)
from addon_operator.kube.client import KubeClient
from addon_operator.kube.informers.reflector import Reflector
from addon_operator.kube.refs import SECRETS, ObjectKey, ObjectRef, WatchEvent, metadata_of
from addon_operator.logs import get_logger
from addon_operator.values.layers import EnabledBy

SEEN_WITHIN_S: Final = 30.0
_LARGEST_NOTE: Final = 200_000
_UNINSTALLING: Final = frozenset({"uninstalling", "uninstalled"})

_log = get_logger("helm")


class ReleaseStorage:
    """The releases of one namespace.

    Attributes:
        namespace: theirs.
    """

    def __init__(self, client: KubeClient, namespace: str) -> None:
        """Prepares the watch; `run` does the work.

        Args:
            client: the API server.
            namespace: of the releases.
        """
        self._client = client
        self.namespace = namespace
        self._on_change: Callable[[str], None] = lambda _name: None
        self._records: dict[str, dict[int, ReleaseRecord]] = {}
        self._changed = asyncio.Event()
        self._reflector = Reflector(
            client,
            SECRETS,
            namespace=namespace,
            label_selector="owner=helm",
            field_selector="type=helm.sh/release.v1",
            metadata_only=True,
            handler=self._on_event,
        )

    async def run(self, on_change: Callable[[str], None] = lambda _name: None) -> None:
        """Watches until it is cancelled.

        Args:
            on_change: called with the name of a release whenever one of its records changes, whoever changed it.
        """
        self._on_change = on_change
        await self._reflector.run()

    async def wait_synced(self, timeout_s: float) -> None:
        """Waits until all releases are known.

        Raises:
            KubeError: not in time.
        """
        await self._reflector.wait_synced(timeout_s)

    def facts(self, name: str) -> ReleaseFacts:
        """Returns what is known about a release; absent objects are not known here."""
        return facts_of(name, self._records.get(name, {}))

    def releases(self) -> tuple[ReleaseFacts, ...]:
        """Lists all releases of the namespace, sorted by name."""
        return tuple(self.facts(name) for name in sorted(self._records))

    async def wait_gone(self, name: str, *, timeout_s: float = SEEN_WITHIN_S) -> None:
        """Waits until the watch has shown that a release is gone.

        Raises:
            KubeError: not in time.
        """
        await self._until(lambda: name not in self._records, f"end of release {name}", timeout_s)

    async def wait_uninstalled(self, name: str, *, timeout_s: float = SEEN_WITHIN_S) -> None:
        """Waits until the watch has shown that a release is gone, but for records of it.

        Raises:
            KubeError: not in time.
        """
        await self._until(lambda: not self.facts(name).installed, f"end of release {name}", timeout_s)

    async def forget(self, name: str) -> None:
        """Deletes the records of a release that is uninstalled, and waits until the watch shows it.

        Raises:
            KubeError: refused, or not seen in time.
        """
        await asyncio.gather(*(self._delete_record(name, revision) for revision in self._records.get(name, {})))
        await self.wait_gone(name)

    async def record(
        self,
        name: str,
        revision: int,
        *,
        rendered: str,
        checksum: str,
        objects: Iterable[ObjectKey],
        enabled_by: EnabledBy,
    ) -> None:
        """Notes the outcome of an upgrade on its record, in one request, and waits until the watch shows it.

        Args:
            name: the release.
            revision: the one that helm has just made.
            rendered: digest of what was rendered.
            checksum: MD5 of the manifest.
            enabled_by: what enables the module.
            objects: what the release consists of. A list above 200 kB is left out; `objects` reads the manifest then.

        Raises:
            KubeError: refused, or not seen in time.
        """
        note = manifest.pack(objects)
        annotations: JsonObject = {
            OBJECTS_ANNOTATION: note if len(note) <= _LARGEST_NOTE else UNLISTED,
            ENABLED_BY_ANNOTATION: enabled_by_note(enabled_by),
        }
        labels: JsonObject = {RENDERED_LABEL: rendered, CHECKSUM_LABEL: checksum}
        await self._patch(name, revision, {"labels": labels, "annotations": annotations})
        await self._until(lambda: self._is_recorded(name, revision, rendered), f"note on release {name}")

    async def move_label(self, name: str, revision: int, fingerprint: str) -> None:
        """Notes a new fingerprint on a record and waits until the watch shows it.

        Raises:
            KubeError: refused, or not seen in time.
        """
        await self._patch(name, revision, {"labels": {FINGERPRINT_LABEL: fingerprint}})
        await self._until(lambda: self.facts(name).fingerprint == fingerprint, f"label of release {name}")

    async def note_enabled(self, name: str, revision: int, enabled_by: EnabledBy) -> None:
        """Notes on a record what enables its module, and that it is not held; waits until the watch shows it.

        Raises:
            KubeError: refused, or not seen in time.
        """
        annotations: JsonObject = {ENABLED_BY_ANNOTATION: enabled_by_note(enabled_by), HELD_ANNOTATION: None}
        await self._patch(name, revision, {"annotations": annotations})
        await self._until(
            lambda: self.facts(name).enabled_by == enabled_by and not self.facts(name).held, f"note on release {name}"
        )

    async def hold(self, name: str, reason: str) -> None:
        """Notes on the newest record of a release that it is held; waits until the watch shows it.

        Raises:
            KubeError: refused, or not seen in time.
        """
        await self._patch(name, self.facts(name).revision, {"annotations": {HELD_ANNOTATION: reason}})
        await self._until(lambda: self.facts(name).held == reason, f"note on release {name}")

    async def delete_record(self, name: str, revision: int) -> None:
        """Deletes the record of an interrupted helm run; objects stay.

        What the interrupted run has changed already is unknown, so the revision that becomes the newest loses its note
        first: whatever happens in between, the next decision is an upgrade.

        Raises:
            KubeError: refused, or not seen in time.
        """
        before = max((at for at in self._records.get(name, {}) if at < revision), default=None)
        if before is not None:
            unnoted: JsonObject = {"annotations": {OBJECTS_ANNOTATION: None}, "labels": {REVISION_LABEL: None}}
            await self._patch(name, before, unnoted)
            await self._until(lambda: not self._is_noted(name, before), f"note on release {name}")
        await self._delete_record(name, revision)
        await self._until(
            lambda: revision not in self._records.get(name, {}), f"end of release {name}, revision {revision}"
        )

    async def _delete_record(self, name: str, revision: int) -> None:
        await self._client.delete(self._ref(name, revision))

    async def objects(self, name: str) -> tuple[ObjectKey, ...]:
        """Lists what the newest revision consists of, reading the stored manifest only if nobody has noted it.

        Raises:
            KubeError: refused.
            HelmError: the payload cannot be read.
        """
        facts = self.facts(name)
        if facts.objects is not None or not facts.exists:
            return facts.objects or ()
        text = str((await self.document(name, facts.revision)).get("manifest") or "")
        return tuple(found.key for found in manifest.objects(manifest.documents(text)) if found.lasting)

    async def hand_over(self, name: str) -> dict[ObjectKey, str]:
        """Removes from a release the objects that other releases of ours contain by now: its uninstall spares them.

        Helm lets a release take objects over, and then deletes them with the one that had them before (decision 13).
        Only the newest record counts. It loses its note with them, so that the release would be upgraded if it should
        be wanted again. Others whose records cannot be read count for nothing; a list that cannot be taken apart stays
        as a whole.

        Returns:
            The objects that were taken out, and the release that has each of them.

        Raises:
            KubeError: refused, or somebody else has changed the record.
            HelmError: the payload cannot be read.
        """
        facts = self.facts(name)
        others = [
            release.name
            for release in self.releases()
            if release.owned and release.name != name and release.status not in _UNINSTALLING
        ]
        owners = {self.anywhere(key): other for other in others for key in await self._known(other)}
        shared = {key: owners[at] for key in await self.objects(name) if (at := self.anywhere(key)) in owners}
        if shared:
            secret, release = await self._read(name, facts.revision)
            parts = manifest.documents(str(release.get("manifest") or ""))
            release["manifest"] = manifest.without(
                parts, lambda key: self.anywhere(key) in owners, on_refused=lambda part: _spare(name, part)
            )
            secret["data"] = encode_release(release)
            for field, mark in (("annotations", OBJECTS_ANNOTATION), ("labels", REVISION_LABEL)):
                marks = metadata_of(secret).get(field)
                if isinstance(marks, dict):
                    marks.pop(mark, None)
            await self._client.replace(self._ref(name, facts.revision), secret)
        return shared

    async def document(self, name: str, revision: int) -> JsonObject:
        """Reads the release document of one record.

        Raises:
            KubeError: refused, or there is none.
            HelmError: the payload cannot be read.
        """
        _, release = await self._read(name, revision)
        return release

    def anywhere(self, key: ObjectKey) -> ObjectKey:
        """Returns the key by which releases can be compared: in no version of the API, always with a namespace."""
        group = key.api_version.rpartition("/")[0]
        return dataclasses.replace(key, api_version=group, namespace=key.namespace or self.namespace)

    async def _known(self, name: str) -> tuple[ObjectKey, ...]:
        try:
            return await self.objects(name)
        except (KubeError, HelmError) as error:
            _log.warning("what a release consists of cannot be read", release=name, error=error)
            return ()

    async def _read(self, name: str, revision: int) -> tuple[JsonObject, JsonObject]:
        """Reads one record: its Secret, and the release document in it."""
        secret = await self._client.get_existing(self._ref(name, revision))
        try:
            return secret, decode_release(secret)
        except HelmError as error:
            raise HelmError(f"release {name}, revision {revision}: {error}") from error

    async def _patch(self, name: str, revision: int, metadata: JsonObject) -> None:
        await self._client.patch(self._ref(name, revision), {"metadata": metadata}, metadata_only=True)

    def _ref(self, name: str, revision: int) -> ObjectRef:
        return ObjectRef(SECRETS, self.namespace, secret_name(name, revision))

    def _is_noted(self, name: str, revision: int) -> bool:
        record = self._records.get(name, {}).get(revision)
        return record is not None and record.recorded

    def _is_recorded(self, name: str, revision: int, rendered: str) -> bool:
        record = self._records.get(name, {}).get(revision)
        return record is not None and record.recorded and record.rendered == rendered

    async def _until(self, holds: Callable[[], bool], what: str, timeout_s: float = SEEN_WITHIN_S) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                while not holds():
                    await self._changed.wait()
        except TimeoutError as error:
            message = f"the watch of release Secrets has not shown the {what} within {timeout_s:g} s"
            raise KubeError(message, status=0, reason="Timeout") from error

    def _on_event(self, event: WatchEvent, secret: JsonObject) -> None:
        metadata = metadata_of(secret)
        found = parse_secret_name(str(metadata.get("name") or ""))
        if found is None:
            return
        name, revision = found
        records = self._records.setdefault(name, {})
        if event == "Deleted":
            records.pop(revision, None)
        else:
            records[revision] = record = read_record(revision, metadata)
            if record.problem:
                message = "the note of what a release consists of was changed by somebody else and is ignored"
                _log.warning(message, release=name, reason=record.problem)
        if not records:
            del self._records[name]
        self._changed.set()
        self._changed = asyncio.Event()
        self._on_change(name)


def _spare(name: str, part: manifest.Document) -> None:
    _log.warning("objects stay, since their list cannot be taken apart", release=name, template=part.source)
