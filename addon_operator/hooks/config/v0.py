"""Version v0 of the output of `hook --config`: that without `configVersion`. Pure. Source: contract.md 2.2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from addon_operator.documents.fields import Fields
from addon_operator.hooks.call import Scope
from addon_operator.hooks.config import selectors
from addon_operator.hooks.config.crontabs import crontab
from addon_operator.hooks.config.filters import jq_filter
from addon_operator.hooks.config.lifecycle import lifecycle
from addon_operator.hooks.config.model import MAIN_QUEUE, WATCH_EVENTS, HookConfig, Kubernetes, Schedule
from addon_operator.kube.refs import WatchEvent

_EVENTS: Final[Mapping[str, WatchEvent]] = {"add": "Added", "update": "Modified", "delete": "Deleted"}


def config(root: Fields, scope: Scope) -> HookConfig:
    """Takes the whole document."""
    if not root.map:
        root.errors.append("no binding: configVersion and at least one binding are needed")
    return HookConfig(
        version="v0",
        lifecycle=lifecycle(root, scope),
        schedules=root.each("schedule", _schedule),
        kubernetes=root.each("onKubernetesEvent", _kubernetes),
    )


def _schedule(fields: Fields) -> Schedule:
    return Schedule(
        name=fields.text("name", "schedule") or "schedule",
        crontab=crontab(fields),
        allow_failure=fields.flag("allowFailure", default=False),
        queue=MAIN_QUEUE,
        include_snapshots_from=(),
        group="",
    )


def _kubernetes(fields: Fields) -> Kubernetes:
    return Kubernetes(
        name=fields.text("name", "onKubernetesEvent") or "onKubernetesEvent",
        kind=fields.text("kind", required=True),
        events=_events(fields),
        run_on_synchronization=False,
        names=selectors.object_name(fields, "objectName"),
        label_selector=fields.one("selector", selectors.label_selector) or "",
        namespaces=fields.one("namespaceSelector", _namespaces) or (),
        jq_filter=jq_filter(fields),
        allow_failure=fields.flag("allowFailure", default=False),
    )


def _events(fields: Fields) -> tuple[WatchEvent, ...]:
    names = fields.texts("event", allowed=tuple(_EVENTS))
    return tuple(_EVENTS[name] for name in dict.fromkeys(names)) if fields.has("event") else WATCH_EVENTS


def _namespaces(fields: Fields) -> tuple[str, ...]:
    names = selectors.namespace_names(fields, "matchNames")
    return () if fields.flag("any", default=False) else names
