"""Version v1 of the output of `hook --config`. Pure. Source: contract.md 2.2."""

from __future__ import annotations

import re

from addon_operator.documents.durations import parse_duration
from addon_operator.documents.fields import Fields
from addon_operator.hooks.call import Scope
from addon_operator.hooks.config import selectors, snapshots, webhooks
from addon_operator.hooks.config.crontabs import crontab
from addon_operator.hooks.config.filters import jq_filter
from addon_operator.hooks.config.lifecycle import lifecycle
from addon_operator.hooks.config.model import (
    CONVERSION,
    MAIN_QUEUE,
    WATCH_EVENTS,
    HookConfig,
    Kubernetes,
    Schedule,
    Throttle,
)
from addon_operator.kube.refs import WatchEvent


def config(root: Fields, scope: Scope) -> HookConfig:
    """Takes the whole document."""
    if len(root.map) == 1:
        root.errors.append("no binding: at least one key beside configVersion is needed")
    timeout_s, throttle = root.one("settings", _settings) or (None, None)
    declared = HookConfig(
        version="v1",
        lifecycle=lifecycle(root, scope),
        schedules=root.each("schedule", _schedule),
        kubernetes=root.each("kubernetes", _kubernetes),
        admissions=(
            *root.each("kubernetesValidating", lambda item: webhooks.admission(item, "kubernetesValidating")),
            *root.each("kubernetesMutating", lambda item: webhooks.admission(item, "kubernetesMutating")),
        ),
        conversions=root.each(CONVERSION, webhooks.conversion),
        timeout_s=timeout_s,
        throttle=throttle,
    )
    snapshots.check_includes(root, declared)
    return snapshots.with_groups(declared)


def _settings(fields: Fields) -> tuple[float | None, Throttle | None]:
    timeout_s = _duration(fields, "timeout") if fields.has("timeout") else None
    # Both spellings are in use: contract.md 3.9.
    alias = fields.has("executionMinPeriod") and not fields.has("executionMinInterval")
    interval = "executionMinPeriod" if alias else "executionMinInterval"
    if fields.has("timeout") and not fields.has(interval) and not fields.has("executionBurst"):
        return timeout_s, None
    min_interval_s = _duration(fields, interval)
    burst = fields.integer("executionBurst", 1, required=True)
    if burst < 1:
        fields.fail("executionBurst", "must be at least 1")
    return timeout_s, Throttle(min_interval_s or 0.0, burst)


def _duration(fields: Fields, key: str) -> float | None:
    text = fields.text(key, required=True)
    seconds = _seconds(text)
    if text and seconds is None:
        fields.fail(key, "must be a positive duration such as 90s or 1h30m")
    return seconds


def _seconds(text: str) -> float | None:
    """Reads a positive duration with a unit; None when it is something else."""
    try:
        seconds = parse_duration(text)
    except ValueError:
        return None
    return seconds if seconds > 0 and text[-1].isalpha() else None


def _schedule(fields: Fields) -> Schedule:
    return Schedule(
        name=fields.text("name", "schedule") or "schedule",
        crontab=crontab(fields),
        allow_failure=fields.flag("allowFailure", default=False),
        queue=fields.text("queue", MAIN_QUEUE) or MAIN_QUEUE,
        include_snapshots_from=snapshots.includes(fields),
        group=fields.text("group"),
    )


def _kubernetes(fields: Fields) -> Kubernetes:
    queue = fields.text("queue", MAIN_QUEUE) or MAIN_QUEUE
    wait = fields.flag("waitForSynchronization", default=True)
    fields.text("resynchronizationPeriod")  # accepted for the sake of old hooks, without effect
    namespaces, namespace_labels = fields.one("namespace", selectors.namespaces) or ((), None)
    return Kubernetes(
        name=fields.text("name", "kubernetes") or "kubernetes",
        kind=fields.text("kind", required=True),
        api_version=_api_version(fields),
        events=_events(fields),
        run_on_synchronization=fields.flag("executeHookOnSynchronization", default=True),
        wait_for_synchronization=wait or queue == MAIN_QUEUE,
        keep_full_objects=fields.flag("keepFullObjectsInMemory", default=True),
        names=fields.one("nameSelector", selectors.object_names) or (),
        label_selector=fields.one("labelSelector", selectors.label_selector) or "",
        field_selector=selectors.field_selector(fields),
        namespaces=namespaces,
        namespace_labels=namespace_labels,
        jq_filter=jq_filter(fields),
        allow_failure=fields.flag("allowFailure", default=False),
        queue=queue,
        include_snapshots_from=snapshots.includes(fields),
        group=fields.text("group"),
    )


def _api_version(fields: Fields) -> str | None:
    text = fields.text("apiVersion")
    if text and not re.fullmatch(r"([A-Za-z0-9.-]+/)?[A-Za-z0-9]+", text):
        fields.fail("apiVersion", "must be version or group/version")
    return text or None


def _events(fields: Fields) -> tuple[WatchEvent, ...]:
    older = fields.texts("watchEvent", allowed=WATCH_EVENTS)
    newer = fields.texts("executeHookOnEvent", allowed=WATCH_EVENTS)
    if not fields.has("watchEvent") and not fields.has("executeHookOnEvent"):
        return WATCH_EVENTS
    names = newer if fields.has("executeHookOnEvent") else older
    return tuple(event for event in WATCH_EVENTS if event in names)
