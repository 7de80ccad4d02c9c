"""Which modules run, which are deleted, which releases are purged, and why.

Pure. `enabled` scripts are run by `enablement.py`; their answers come in as facts. Source: contract.md 2.10, 3.2, 3.9.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence

from addon_operator.hooks.call import EnabledAnswer
from addon_operator.modules.module import Module
from addon_operator.values.layers import EnableFlag


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
    """

    run: tuple[tuple[str, ...], ...]
    delete: tuple[str, ...]
    purge: tuple[str, ...]
    crds: tuple[str, ...]


def flag_chain(
    module: Module, *, dynamic: Mapping[str, EnableFlag], config: Mapping[str, EnableFlag]
) -> tuple[EnableFlag, ...]:
    """Lists what the sources say about a module: values files, global hooks' patches, ConfigMap.

    Args:
        module: with the flags of its values files.
        dynamic: section key -> flag set by a global hook's patch.
        config: section key -> flag of the ConfigMap.
    """
    later = [layer[module.key] for layer in (dynamic, config) if module.key in layer]
    return (*module.flags, *later)


def flag_says(chain: Sequence[EnableFlag]) -> bool:
    """Answers what the flags alone decide; nothing said means disabled."""
    return bool(chain) and chain[-1].value


def make_plan(
    modules: Iterable[Module],
    verdicts: Mapping[str, Verdict],
    *,
    alive: Collection[str],
    releases: Collection[str],
    unread: Collection[str],
    ignored_release: str | None,
) -> ConvergePlan:
    """Turns verdicts into work.

    Args:
        modules: all modules.
        verdicts: one for each of them.
        alive: names of modules that were started in this process and not deleted since.
        releases: names of the releases that carry our mark.
        unread: names of what is in the modules directories and is no module now, such as a broken link: not purged.
        ignored_release: never purged. Neither is anything if there is no module at all: then they are not there yet.
    """
    ordered = sorted(modules, key=lambda module: module.sort_key)
    enabled = [module for module in ordered if verdicts[module.name].enabled]
    disabled = [module for module in ordered if not verdicts[module.name].enabled]
    needed = {module.name for module in ordered if module.has_release or not verdicts[module.name].enabled}
    kept = set(releases) if not ordered else {*needed, *unread, ignored_release}
    groups = itertools.groupby(enabled, key=lambda module: module.order)
    return ConvergePlan(
        run=tuple(tuple(module.name for module in group) for _, group in groups),
        delete=tuple(m.name for m in reversed(disabled) if m.name in alive or m.name in releases),
        purge=tuple(sorted(set(releases) - kept, reverse=True)),
        crds=tuple(module.name for module in enabled if module.has_crds),
    )
