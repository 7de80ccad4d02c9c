"""What to do with a release: one pure function over what is known about it.

Pure. Facts come from `storage.py` and `healing/`; actions are carried out by `deploy.py`. Source: contract.md 3.8.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Literal

from addon_operator.documents.jsondoc import JsonValue, digest
from addon_operator.helm.manifest import DIGEST_CHARS
from addon_operator.helm.traits import ChartTraits
from addon_operator.kube.refs import ObjectKey
from addon_operator.values.layers import EnabledBy

FINGERPRINT_LABEL = "addon-operator/fingerprint"
REVISION_LABEL = "addon-operator/revision"
RENDERED_LABEL = "addon-operator/rendered"
CHECKSUM_LABEL = "moduleChecksum"
OBJECTS_ANNOTATION = "addon-operator/objects"
ENABLED_BY_ANNOTATION = "addon-operator/enabled-by"
HELD_ANNOTATION = "addon-operator/held"

PENDING = frozenset({"pending-install", "pending-upgrade", "pending-rollback"})
_SHOWN_OBJECTS = 3


@dataclasses.dataclass(frozen=True, slots=True)
class ReleaseFacts:
    """What is known about one release.

    Attributes:
        name: its name.
        revision: the newest one; 0 if there is no release.
        status: of the newest revision, in helm's words; empty if there is no release.
        deployed_revision: the newest revision with the status `deployed`.
        ever_deployed: a revision that is known was deployed once.
        fingerprint: what the newest revision was made from; empty if it is not ours.
        rendered: digest of its rendering; empty if unknown.
        recorded: this operator has noted the outcome of the newest revision. Helm carries labels over to revisions
            that others make, this note it does not.
        finished: an operator's helm has made the newest revision and come to its end, whether that is noted or not. The
            number of the revision in a label says so: labels are carried over to revisions that others make, but the
            number is another one then.
        owned: it carries the operator's or the peer's mark.
        objects: what it consists of; None if only the stored manifest tells.
        enabled_by: what enabled the module last; None if that is not noted.
        held: why it is neither upgraded nor removed; empty if it is not held.
        absent: those that are not in the cluster.
    """

    name: str
    revision: int = 0
    status: str = ""
    deployed_revision: int | None = None
    ever_deployed: bool = False
    fingerprint: str = ""
    rendered: str = ""
    recorded: bool = False
    finished: bool = False
    owned: bool = False
    objects: tuple[ObjectKey, ...] | None = None
    enabled_by: EnabledBy | None = None
    held: str = ""
    absent: tuple[ObjectKey, ...] = ()

    @property
    def exists(self) -> bool:
        """Whether helm knows the release at all."""
        return self.revision > 0

    @property
    def installed(self) -> bool:
        """Whether there is more of it than records."""
        return self.exists and self.status != "uninstalled"


ActionKind = Literal[
    "install", "upgrade", "skip", "move-label", "note", "render", "drop-record", "finish-uninstall", "uninstall"
]


@dataclasses.dataclass(frozen=True, slots=True)
class HelmAction:
    """The one thing to do next, and why, in a sentence.

    Attributes:
        kind: `install` and `upgrade` make a revision, `skip` leaves the release alone, `move-label` only notes the new
            fingerprint on it, `uninstall` removes it. After the others one has to decide again: `note` notes what an
            operator that was interrupted has left without a note; `render` renders the chart; `drop-record` deletes
            the record of the newest revision (the objects stay, and are taken over) and `finish-uninstall` uninstalls
            once more, so that helm can go on from there.
        reason: why.
    """

    kind: ActionKind
    reason: str


def fingerprint(
    *,
    chart_digest: str,
    values: JsonValue,
    helm_version: str,
    kube_version: str,
    apis: str,
    extra_labels: Iterable[tuple[str, str]],
) -> str:
    """Returns whether two helm runs have the same input; fits into a label.

    Args:
        chart_digest: of all files of the chart.
        values: what helm gets.
        helm_version: as helm tells it.
        kube_version: as the API server tells it.
        apis: what the chart asks the cluster about its APIs (`traits.api_answer`).
        extra_labels: labels that are put on all objects.

    Source: design.md 5.1.
    """
    labels: list[JsonValue] = [f"{name}={value}" for name, value in sorted(extra_labels)]
    return digest([chart_digest, digest(values), helm_version, kube_version, apis, labels])[:DIGEST_CHARS]


def decide(facts: ReleaseFacts, wanted: str, traits: ChartTraits, rendered: str | None) -> HelmAction:
    """Returns what brings a release up to date.

    Args:
        facts: what is known about the release.
        wanted: the fingerprint that it should have.
        traits: of its chart.
        rendered: digest of the chart's rendering; None if it was not rendered.

    Source: contract.md 3.8; issue part 4.
    """
    status = facts.status
    if not facts.exists:
        return HelmAction("install", "there is no release yet")
    if status in PENDING:
        return HelmAction("drop-record", f"revision {facts.revision} is {status}: helm was interrupted")
    if status == "uninstalling":
        return HelmAction("finish-uninstall", f"revision {facts.revision} is uninstalling: helm was interrupted")
    if status == "uninstalled":
        return HelmAction("install", "the release was uninstalled, its history was kept")
    if status == "deployed":
        return _decide_deployed(facts, wanted, traits, rendered)
    if status == "failed" and not facts.ever_deployed and traits.has_install_hooks:
        return HelmAction(
            "drop-record", f"revision {facts.revision} is failed and none is deployed: install hooks run anew"
        )
    if status in {"failed", "superseded"} or facts.deployed_revision is not None:
        return HelmAction("upgrade", f"revision {facts.revision} is {status}")
    return HelmAction(
        "drop-record", f"revision {facts.revision} is {status or 'of unknown status'} and none is deployed"
    )


def decide_removal(facts: ReleaseFacts, reason: str) -> HelmAction:
    """Returns whether a release that nobody wants has to be uninstalled; helm can do that in every status."""
    return HelmAction("uninstall", reason) if facts.exists else HelmAction("skip", "there is no release")


def owned(labels: Mapping[str, str]) -> bool:
    """Returns whether a release carries the operator's or the peer's mark; only such a one is ever purged."""
    return FINGERPRINT_LABEL in labels or CHECKSUM_LABEL in labels


def _decide_deployed(facts: ReleaseFacts, wanted: str, traits: ChartTraits, rendered: str | None) -> HelmAction:
    if facts.absent:
        return HelmAction("upgrade", f"absent in the cluster: {_some(facts.absent)}")
    if facts.finished and not facts.recorded:
        return HelmAction("note", f"revision {facts.revision} was finished, but the operator was interrupted")
    if not facts.recorded:
        return HelmAction(
            "upgrade", f"revision {facts.revision} was made by somebody else, or the operator was interrupted"
        )
    same_input = facts.fingerprint == wanted
    if same_input and not traits.varies:
        return HelmAction("skip", "nothing changed")
    if rendered is None:
        return HelmAction("render", _why_render(traits) if same_input else "chart, values or versions changed")
    if rendered != facts.rendered:
        return HelmAction(
            "upgrade", "the rendered manifest changed" + (f" ({_why_render(traits)})" if same_input else "")
        )
    return (
        HelmAction("skip", "the rendered manifest did not change")
        if same_input
        else HelmAction("move-label", "the manifest did not change")
    )


def _why_render(traits: ChartTraits) -> str:
    return f"the chart draws anew: {traits.draws[0]}" if traits.draws else "the chart reads the cluster"


def _some(keys: tuple[ObjectKey, ...]) -> str:
    shown = ", ".join(str(key) for key in keys[:_SHOWN_OBJECTS])
    return shown if len(keys) <= _SHOWN_OBJECTS else f"{shown} and {len(keys) - _SHOWN_OBJECTS} more"
