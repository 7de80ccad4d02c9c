"""What Helm has stored about releases: one Secret for each revision.

Pure. The metadata of a Secret says what the operator has to know of a revision; its payload is the release document, as
Helm encodes it. `storage.py` watches, reads and writes the Secrets. Source: design.md 5.1, contract.md 2.12.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import gzip
import re
import zlib
from collections.abc import Mapping
from typing import Final

from addon_operator.documents import jsondoc
from addon_operator.documents.jsondoc import JsonObject, JsonValue
from addon_operator.errors import HelmError
from addon_operator.helm import manifest
from addon_operator.helm.release import (
    ENABLED_BY_ANNOTATION,
    FINGERPRINT_LABEL,
    HELD_ANNOTATION,
    OBJECTS_ANNOTATION,
    RENDERED_LABEL,
    REVISION_LABEL,
    ReleaseFacts,
    owned,
)
from addon_operator.kube.refs import ObjectKey
from addon_operator.values.layers import EnabledBy

UNLISTED: Final = "unlisted"
"""Value of the annotation with the objects of a release when the list would be too long."""
_DEPLOYED_ONCE: Final = frozenset({"deployed", "superseded", "uninstalled"})
_GZIP_MAGIC: Final = b"\x1f\x8b\x08"
_LARGEST_PAYLOAD: Final = 256 * 2**20
_SECRET_NAME: Final = re.compile(r"sh\.helm\.release\.v1\.(.+)\.v([1-9]\d*)")


@dataclasses.dataclass(frozen=True, slots=True)
class ReleaseRecord:
    """One revision of a release as the metadata of its Secret shows it.

    Attributes:
        status: as Helm writes it: `deployed`, `pending-upgrade`, ...
        fingerprint: of what went into it; empty if nobody has noted one.
        rendered: digest of what was rendered; empty likewise.
        owned: it carries the mark of the operator or of the peer.
        recorded: the outcome of its upgrade is noted.
        finished: helm came to its end with it.
        objects: what it consists of; None if that is not noted.
        enabled_by: what enables the module; None likewise.
        held: why the release is held; empty if it is not.
        problem: why the note of its objects cannot be read; empty if it can, or there is none.
    """

    status: str
    fingerprint: str
    rendered: str
    owned: bool
    recorded: bool
    finished: bool
    objects: tuple[ObjectKey, ...] | None
    enabled_by: EnabledBy | None
    held: str
    problem: str = ""


def read_record(revision: int, metadata: Mapping[str, JsonValue]) -> ReleaseRecord:
    """Reads a record.

    Args:
        revision: of the release.
        metadata: of its Secret.
    """
    labels, annotations = _texts(metadata.get("labels")), _texts(metadata.get("annotations"))
    note, problem = annotations.get(OBJECTS_ANNOTATION), ""
    objects: tuple[ObjectKey, ...] | None = None
    if note is not None and note != UNLISTED:
        try:
            objects = manifest.unpack(note)
        except ValueError as error:
            note, problem = None, str(error)
    return ReleaseRecord(
        status=labels.get("status", ""),
        fingerprint=labels.get(FINGERPRINT_LABEL, ""),
        rendered=labels.get(RENDERED_LABEL, ""),
        owned=owned(labels),
        recorded=note is not None,
        finished=labels.get(REVISION_LABEL) == str(revision),
        objects=objects,
        enabled_by=_read_enabled_by(annotations.get(ENABLED_BY_ANNOTATION)),
        held=annotations.get(HELD_ANNOTATION, ""),
        problem=problem,
    )


def facts_of(name: str, records: Mapping[int, ReleaseRecord]) -> ReleaseFacts:
    """Returns what its records say about a release: revision -> record. Missing objects are not known here."""
    if not records:
        return ReleaseFacts(name)
    revision = max(records)
    newest = records[revision]
    return ReleaseFacts(
        name=name,
        revision=revision,
        status=newest.status,
        deployed_revision=max((at for at, record in records.items() if record.status == "deployed"), default=None),
        ever_deployed=any(record.status in _DEPLOYED_ONCE for record in records.values()),
        fingerprint=newest.fingerprint,
        rendered=newest.rendered,
        recorded=newest.recorded,
        finished=newest.finished,
        owned=newest.owned,
        objects=newest.objects,
        enabled_by=newest.enabled_by,
        held=newest.held,
    )


def secret_name(release: str, revision: int) -> str:
    """Returns the name of the Secret of a revision."""
    return f"sh.helm.release.v1.{release}.v{revision}"


def parse_secret_name(name: str) -> tuple[str, int] | None:
    """Returns release and revision of a Secret; None if it has another kind of name."""
    found = _SECRET_NAME.fullmatch(name)
    return (found[1], int(found[2])) if found else None


def enabled_by_note(enabled_by: EnabledBy) -> str:
    """Returns the value of the annotation that says what enables a module."""
    return jsondoc.dumps({"flags": {**enabled_by.flags}, "configMap": enabled_by.config_map}).decode()


def decode_release(secret: Mapping[str, JsonValue]) -> JsonObject:
    """Reads the release document in a Secret, as the API server returns it: base64 of base64 of gzip of JSON.

    Raises:
        HelmError: it is something else.
    """
    data = secret.get("data")
    payload = str((data if isinstance(data, dict) else {}).get("release") or "")
    try:
        packed = base64.b64decode(base64.b64decode(payload, validate=True), validate=True)
        text = _unzip(packed) if packed.startswith(_GZIP_MAGIC) else packed
        release = jsondoc.loads(text)
    except (ValueError, zlib.error, binascii.Error) as error:
        raise HelmError("the stored release cannot be read") from error
    if not isinstance(release, dict) or not isinstance(release.get("manifest", ""), str):
        raise HelmError("the stored release cannot be read")
    return release


def encode_release(release: JsonObject) -> JsonObject:
    """Returns the `data` of a Secret that `decode_release` reads."""
    return {"release": base64.b64encode(base64.b64encode(gzip.compress(jsondoc.dumps(release)))).decode()}


def hooks_of(release: Mapping[str, JsonValue]) -> tuple[tuple[str, str], ...]:
    """Returns template and text of each hook of a release document."""
    hooks = release.get("hooks")
    found = (hook for hook in (hooks if isinstance(hooks, list) else []) if isinstance(hook, dict))
    return tuple((str(hook.get("path") or ""), str(hook.get("manifest") or "")) for hook in found)


def _unzip(packed: bytes) -> bytes:
    unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    data = unpacker.decompress(packed, _LARGEST_PAYLOAD)
    if unpacker.unconsumed_tail:
        raise ValueError(f"more than {_LARGEST_PAYLOAD} bytes")
    return data


def _read_enabled_by(text: str | None) -> EnabledBy | None:
    """Reads what `enabled_by_note` writes; None if nothing is noted, or somebody else wrote something else."""
    try:
        note = jsondoc.loads(text.encode()) if text else None
    except ValueError:
        return None
    flags, config_map = (note.get("flags"), note.get("configMap")) if isinstance(note, dict) else (None, None)
    if not isinstance(flags, dict) or not isinstance(config_map, str):
        return None
    return EnabledBy({source: value for source, value in flags.items() if isinstance(value, bool)}, config_map)


def _texts(value: JsonValue) -> dict[str, str]:
    return {name: str(text) for name, text in value.items()} if isinstance(value, dict) else {}
