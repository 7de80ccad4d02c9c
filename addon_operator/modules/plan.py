"""Which modules run, which are deleted, which releases are purged, and why.

Pure. `enabled` scripts are run by `enablement.py`; their results are facts here. Source: contract.md 2.10, 3.2, 3.9.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence

from addon_operator.hooks.call import EnabledAnswer
from addon_operator.modules.module import Module
from addon_operator.modules.removals import Mark, Removal, hold
from addon_operator.values.layers import EnableFlag, section_key


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a module is enabled, and the chain that led there.

    Attributes:
        chain: all flags that were found, weakest first; the last one decides.
        script: the script's answer, if it was asked.
        enabled: the result.
    """

    chain: tuple[EnableFlag, ...]
    script: EnabledAnswer | None
    enabled: bool

    @property
    def reason(self) -> str:
        """The result in one sentence."""
        if self.script is not None and (self.script.reason or not self.script.enabled):
            words = self.script.reason or "it gives no reason"
            return f"enabled script says {str(self.script.enabled).lower()}: {words}"
        if not self.chain:
            return "disabled: no source enables it"
        flag = self.chain[-1]
        return f"{'enabled' if flag.value else 'disabled'} by {flag}"


@dataclasses.dataclass(frozen=True, slots=True)
class ConvergePlan:
    """What a converge has to do.

    Attributes:
        run: modules to run, in groups of equal order; the members of a group may run side by side.
        delete: disabled modules to delete, in exactly the reverse of the run order.
        purge: releases of ours without a module directory, in reverse name order.
        crds: modules whose CRDs come before everything else.
        held: name -> reason, of what would be deleted or purged only since something is missing, sorted by name.
    """

    run: tuple[tuple[str, ...], ...]
    delete: tuple[str, ...]
    purge: tuple[str, ...]
    crds: tuple[str, ...]
    held: Mapping[str, str] = dataclasses.field(default_factory=dict)


def flag_chain(
    module: Module, *, dynamic: Mapping[str, EnableFlag], config: Mapping[str, EnableFlag]
) -> tuple[EnableFlag, ...]:
    """Lists the enable flags of a module: values files, global hooks' patches, ConfigMap.

    Args:
        module: with the flags of its values files.
        dynamic: section key -> flag set by a global hook's patch.
        config: section key -> flag of the ConfigMap.
    """
    later = [layer[module.key] for layer in (dynamic, config) if module.key in layer]
    return (*module.flags, *later)


def flag_says(chain: Sequence[EnableFlag]) -> bool:
    """Returns what the flags alone decide; disabled if there is none."""
    return bool(chain) and chain[-1].value


@dataclasses.dataclass(frozen=True, slots=True)
class Installed:
    """What is installed, and what is recorded about it.

    Attributes:
        alive: names of modules that were started in this process and not deleted since.
        releases: names of the releases that carry our mark.
        marks: name -> what is recorded of it; of any of these names.
        unread: names of entries in the modules directories that are no module now, such as a broken link: not purged,
            and held if it is.
        ignored_release: never purged.
        flags: section key -> flag of the ConfigMap, which is all that decides about a release without a module.
    """

    alive: Collection[str] = ()
    releases: Collection[str] = ()
    marks: Mapping[str, Mark] = dataclasses.field(default_factory=dict)
    unread: Collection[str] = ()
    ignored_release: str | None = None
    flags: Mapping[str, EnableFlag] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class RemovalRules:
    """What may be removed although nobody requested it; see `removals.hold`.

    Attributes:
        missing_config_map: the ConfigMap as messages name it, if it does not exist.
        confirmed: names whose removal a person has confirmed.
        limit: the setting `max_removals`.
    """

    missing_config_map: str | None = None
    confirmed: Collection[str] = ()
    limit: int | None = None


def make_plan(
    modules: Iterable[Module], verdicts: Mapping[str, Verdict], installed: Installed, rules: RemovalRules
) -> ConvergePlan:
    """Turns verdicts into work.

    Args:
        modules: all modules. If there is none at all, nothing is removed: their directories are not there yet.
        verdicts: one for each of them.
        installed: what is installed.
        rules: which removals have to wait.
    """
    ordered = sorted(modules, key=lambda module: module.sort_key)
    enabled = [module for module in ordered if verdicts[module.name].enabled]
    disabled = [module for module in ordered if not verdicts[module.name].enabled]
    needed = {module.name for module in ordered if module.has_release or not verdicts[module.name].enabled}
    present = {*installed.alive, *installed.releases}
    delete = [module.name for module in reversed(disabled) if module.name in present]
    purge = sorted({*installed.releases} - needed - {*installed.unread, installed.ignored_release}, reverse=True)
    held = hold(
        [
            *(_removal(name, installed, verdicts[name]) for name in delete),
            *(_removal(name, installed, None) for name in purge),
        ],
        missing_config_map=rules.missing_config_map,
        confirmed=rules.confirmed,
        installed=len(present - {installed.ignored_release}),
        limit=rules.limit,
        no_module_found=not ordered,
    )
    groups = itertools.groupby(enabled, key=lambda module: module.order)
    unread = (set(installed.unread) & set(installed.releases)) - needed - {*rules.confirmed, installed.ignored_release}
    held |= {name: mark.held for name in unread if (mark := installed.marks.get(name, Mark())).held}
    return ConvergePlan(
        run=tuple(tuple(module.name for module in group) for _, group in groups),
        delete=tuple(name for name in delete if name not in held),
        purge=tuple(name for name in purge if name not in held),
        crds=tuple(module.name for module in enabled if module.has_crds),
        held=dict(sorted(held.items())),
    )


def _removal(name: str, installed: Installed, verdict: Verdict | None) -> Removal:
    mark = installed.marks.get(name, Mark())
    if verdict is None:
        return Removal(name, mark, flag=installed.flags.get(section_key(name)), has_directory=False)
    if verdict.script is not None:
        return Removal(name, mark, script=verdict.reason)
    return Removal(name, mark, flag=verdict.chain[-1] if verdict.chain else None)
