"""Which snapshots the runs of a binding get: `includeSnapshotsFrom`, and those of its group. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TypeVar

from addon_operator.documents.fields import Fields
from addon_operator.documents.jsondoc import JsonObject, JsonValue
from addon_operator.hooks.config.model import CONVERSION, Admission, Conversion, HookConfig, Kubernetes, Schedule

Grouped = TypeVar("Grouped", Schedule, Kubernetes, Admission, Conversion)


def includes(fields: Fields) -> tuple[str, ...]:
    """Takes the `includeSnapshotsFrom` of a binding: names of `kubernetes` bindings."""
    return fields.texts("includeSnapshotsFrom", minimum=1)


def check_includes(root: Fields, config: HookConfig) -> None:
    """Notes each name in an `includeSnapshotsFrom` that does not mean exactly one `kubernetes` binding."""
    count_of = Counter(binding.name for binding in config.kubernetes)
    for key in ("schedule", "kubernetes", "kubernetesValidating", "kubernetesMutating", CONVERSION):
        for index, item in enumerate(_maps(root.map.get(key))):
            names = item.get("includeSnapshotsFrom")
            for name in names if isinstance(names, list) else []:
                if isinstance(name, str) and count_of[name] != 1:
                    ambiguous = f"there are {count_of[name]} {name!r} binding names" if count_of[name] else ""
                    root.fail(f"{key}[{index}].includeSnapshotsFrom", ambiguous or f"{name!r} binding name not found")


def with_groups(config: HookConfig) -> HookConfig:
    """Returns the configuration in which each member of a group includes the snapshots of the group.

    These are the snapshots of all its `kubernetes` bindings.
    """

    def widen(bindings: tuple[Grouped, ...]) -> tuple[Grouped, ...]:
        return tuple(
            replace(binding, include_snapshots_from=tuple(dict.fromkeys(binding.include_snapshots_from + shared)))
            if (shared := members.get(binding.group, ()))
            else binding
            for binding in bindings
        )

    groups = {binding.group for binding in config.kubernetes if binding.group}
    members = {name: tuple(item.name for item in config.kubernetes if item.group == name) for name in groups}
    return replace(
        config,
        schedules=widen(config.schedules),
        kubernetes=widen(config.kubernetes),
        admissions=widen(config.admissions),
        conversions=widen(config.conversions),
    )


def _maps(value: JsonValue) -> list[JsonObject]:
    return [item if isinstance(item, dict) else {} for item in value] if isinstance(value, list) else []
