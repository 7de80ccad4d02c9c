"""Which hook answers for what: the bindings of all hooks that are served, checked against each other.

Pure. `host.py` makes one whenever a hook comes or goes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from addon_operator.errors import HookConfigError, InputError
from addon_operator.hooks.call import HookId
from addon_operator.hooks.config.model import Admission, AdmissionKind, Conversion
from addon_operator.webhooks.conversion import ConversionStep, steps_of


@dataclass(frozen=True, slots=True)
class Bindings:
    """What one hook has."""

    admissions: tuple[Admission, ...]
    conversions: tuple[Conversion, ...]

    def concerned(self) -> set[str]:
        """Answers the kinds and the names of definitions that have to do with it."""
        return {one.kind for one in self.admissions} | {one.crd_name for one in self.conversions}


@dataclass(frozen=True, slots=True)
class Admitter:
    """Who answers for one entry of a webhook configuration."""

    hook: HookId
    binding: Admission


@dataclass(frozen=True, slots=True)
class Table:
    """What is served.

    Attributes:
        admitters: by the kind of their binding, in order: global hooks first, then module by module.
        conversions: definition -> pair of versions without groups -> who converts.
    """

    admitters: Mapping[AdmissionKind, tuple[Admitter, ...]] = field(default_factory=dict)
    conversions: Mapping[str, Mapping[tuple[str, str], ConversionStep]] = field(default_factory=dict)


def tabulate(served: Mapping[HookId, Bindings]) -> Table:
    """Puts the bindings of all hooks together.

    Raises:
        HookConfigError: two of them have one name, or convert the same; names both hooks.
    """
    admitters: dict[AdmissionKind, dict[str, Admitter]] = {}
    conversions: dict[str, dict[tuple[str, str], ConversionStep]] = {}
    for hook, bindings in sorted(served.items()):
        for admission in bindings.admissions:
            _add_admission(admitters.setdefault(admission.kind, {}), Admitter(hook, admission))
        for conversion in bindings.conversions:
            _add_conversion(conversions.setdefault(conversion.crd_name, {}), hook, conversion)
    return Table({kind: tuple(found.values()) for kind, found in admitters.items()}, conversions)


def _add_admission(found: dict[str, Admitter], admitter: Admitter) -> None:
    name = admitter.binding.name
    if (other := found.get(name)) is not None:
        raise HookConfigError(
            f"{admitter.hook}: {admitter.binding.kind}: the name {name} is taken{_by(other.hook, admitter.hook)}"
        )
    found[name] = admitter


def _add_conversion(found: dict[tuple[str, str], ConversionStep], hook: HookId, conversion: Conversion) -> None:
    try:
        steps = steps_of(hook, conversion)
    except InputError as error:
        raise HookConfigError(str(error)) from error
    for pair, step in steps.items():
        if (other := found.get(pair)) is not None:
            raise HookConfigError(
                f"{hook}, binding {conversion.name}: {pair[0]} to {pair[1]} of {conversion.crd_name} is converted"
                f"{_by(other.hook, hook)} already, in its binding {other.binding.name}"
            )
        found[pair] = step


def _by(other: HookId, hook: HookId) -> str:
    return " by the hook itself" if other == hook else f" by {other}"
