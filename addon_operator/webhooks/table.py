"""Which hook answers for what: the bindings of all hooks that are served, checked against each other.

Pure. `host.py` makes a new table whenever the bindings of a hook are served, or are served no longer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from addon_operator.errors import HookConfigError, InputError
from addon_operator.hooks.call import HookId
from addon_operator.hooks.config.model import Admission, AdmissionKind, Conversion
from addon_operator.webhooks.review import bare


@dataclass(frozen=True, slots=True)
class Bindings:
    """The webhook bindings of one hook."""

    admissions: tuple[Admission, ...]
    conversions: tuple[Conversion, ...]


@dataclass(frozen=True, slots=True)
class Admitter:
    """Who answers for one entry of a webhook configuration."""

    hook: HookId
    binding: Admission


@dataclass(frozen=True, slots=True)
class ConversionStep:
    """Who converts one version to another.

    Attributes:
        from_version: as the binding names it, with the group or without.
        to_version: likewise.
    """

    hook: HookId
    binding: Conversion
    from_version: str
    to_version: str

    def __str__(self) -> str:
        return f"{self.hook}, binding {self.binding.name}, {self.from_version} to {self.to_version}"


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


def steps_of(hook: HookId, binding: Conversion) -> dict[tuple[str, str], ConversionStep]:
    """Returns the steps of one binding.

    Raises:
        InputError: a version of another group than the definition's, or the same step twice; names the field.
    """
    group = binding.crd_name.partition(".")[2]
    steps: dict[tuple[str, str], ConversionStep] = {}
    for at, (source, target) in enumerate(binding.steps):
        where = f"{hook}, binding {binding.name}: conversions[{at}]"
        for name, version in (("fromVersion", source), ("toVersion", target)):
            if "/" in version and version.rpartition("/")[0] != group:
                raise InputError(f"{where}.{name}: {version} is not of group {group}, as {binding.crd_name} is")
        pair = (bare(source), bare(target))
        if pair in steps:
            raise InputError(f"{where}: {source} to {target} is there twice")
        steps[pair] = ConversionStep(hook, binding, source, target)
    return steps


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
