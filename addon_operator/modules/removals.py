"""Which uninstalls were requested, and which would only follow from something that is missing.

Pure. A release is removed because a source requests it: an enable flag that is false, or an edit that removes a flag.
A source that vanished as a whole requests nothing: what would be uninstalled for that reason alone is held, neither
upgraded nor removed, until the source is back or a person confirms. Source: docs/modules.md, "Held modules".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable
from typing import Final

from addon_operator.values.layers import VALUES_FILE_SOURCE, EnabledBy, EnableFlag

LEAST_LIMIT: Final = 3
"""The smallest default limit: up to so many modules may lose what enabled them in one converge."""

LIMIT_VARIABLE: Final = "ADDON_OPERATOR_MAX_REMOVALS"
"""The setting of the limit, as messages name it."""


@dataclasses.dataclass(frozen=True, slots=True)
class Mark:
    """What is recorded of a module since it was enabled last.

    Attributes:
        enabled_by: what enabled it; None if that was not recorded.
        held: why the module is held; empty if it is not.
    """

    enabled_by: EnabledBy | None = None
    held: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Removal:
    """One uninstall that a plan asks for.

    Attributes:
        name: of the module and its release.
        mark: what is recorded of it.
        flag: the enable flag that decides; None if no source has one.
        script: the result of its `enabled` script, as a sentence; empty if the flags decide.
        has_directory: there is a module of this name that has something for Helm.
    """

    name: str
    mark: Mark
    flag: EnableFlag | None = None
    script: str = ""
    has_directory: bool = True


def config_map_was_missing(config_map: str) -> str:
    """Returns why a module is held that lost its ConfigMap.

    In the past tense: the module stays held when there is a new ConfigMap that does not mention it.
    """
    return f"{config_map} was missing, which existed when the module was enabled"


def config_map_was_replaced(config_map: str) -> str:
    """Returns why a module is held that the ConfigMap does not mention, when the former one was deleted unnoticed."""
    return f"{config_map} was replaced by another one while the operator did not run"


def enabled_by(chain: Iterable[EnableFlag], *, config_map: str) -> EnabledBy:
    """Returns what is to be recorded of a module that is enabled.

    Args:
        chain: the flags that say something about it, the weakest first.
        config_map: uid of the ConfigMap; empty if there is none.
    """
    return EnabledBy({flag.source: flag.value for flag in chain}, config_map)


def hold(
    removals: Iterable[Removal],
    *,
    missing_config_map: str | None,
    confirmed: Collection[str],
    installed: int,
    limit: int | None,
    no_module_found: bool = False,
) -> dict[str, str]:
    """Decides which removals have to wait.

    Args:
        removals: all that one converge would remove.
        missing_config_map: the ConfigMap as messages name it, if it does not exist; None if it does.
        confirmed: names whose removal a person has confirmed.
        installed: how many modules are installed.
        limit: how many removals that nobody requested one converge may make; None for half of the installed
            ones, but at least `LEAST_LIMIT`.
        no_module_found: whether the modules directories are empty: nobody requested that, whatever the limit.

    Returns:
        Name -> reason, of those that are held, sorted by name.
    """
    held: dict[str, str] = {}
    vanished: dict[str, str] = {}
    for removal in removals:
        if removal.name in confirmed or _is_requested(removal, config_map_exists=missing_config_map is None):
            continue
        if removal.mark.held:
            held[removal.name] = removal.mark.held
        elif missing_config_map is not None and _may_need_config_map(removal):
            held[removal.name] = config_map_was_missing(missing_config_map)
        else:
            vanished[removal.name] = _what_vanished(removal)
    most = max(LEAST_LIMIT, installed // 2) if limit is None else limit
    if no_module_found:
        why = "no module is found at all"
    elif len(vanished) > most:
        why = f"one converge would uninstall {len(vanished)} modules, more than {most} ({LIMIT_VARIABLE})"
    else:
        vanished, why = {}, ""
    held.update({name: f"{reason}; {why}" for name, reason in vanished.items()})
    return dict(sorted(held.items()))


def _is_requested(removal: Removal, *, config_map_exists: bool) -> bool:
    """Returns whether a flag disables the module that did not when the module was enabled last.

    Without the ConfigMap, hooks see other values than they were written for, so only a file counts.
    """
    flag, noted = removal.flag, removal.mark.enabled_by
    if removal.script or flag is None or flag.value:
        return False
    if noted is None or not (config_map_exists or flag.source == VALUES_FILE_SOURCE):
        return config_map_exists
    return noted.flags.get(flag.source) is not False


def _may_need_config_map(removal: Removal) -> bool:
    """Returns whether the ConfigMap may have enabled a module: by its flag, or by values that hooks have read."""
    noted = removal.mark.enabled_by
    return removal.has_directory and (noted is None or noted.config_map != "")


def _what_vanished(removal: Removal) -> str:
    if not removal.has_directory:
        return "its directory has no chart any more, or is gone"
    noted = removal.mark.enabled_by
    sources = sorted(source for source, value in noted.flags.items() if value) if noted else ()
    return removal.script or "no source enables it any more" + (f" ({', '.join(sources)} did)" if sources else "")
