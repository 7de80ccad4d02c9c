"""What a module directory contains, as plain facts.

Pure: `loader.py` reads the directory and fills these in. Source: contract.md 2.11.
"""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from addon_operator.values.layers import EnableFlag
from addon_operator.values.store import SectionSpec

_DIRECTORY = re.compile(r"(?:(\d+)-)?(.+)", re.DOTALL)


@dataclasses.dataclass(frozen=True, slots=True)
class Module:
    """One module directory.

    Attributes:
        name: kebab-case; also the name of the release.
        key: the section of its values, camelCase.
        order: modules run in ascending order, those of equal order side by side.
        path: the directory.
        has_chart: there is a Chart.yaml.
        has_templates: there are templates/ (with or without Chart.yaml there is something for Helm to do).
        has_hooks: there is hooks/.
        enabled_script: the executable `enabled`, if there is one.
        has_crds: whether there is crds/, or charts/ that may contain some.
        section: static values and schemas.
        flags: enable flags of values files, weakest first.
        chart_version: `version` of Chart.yaml; empty if there is none.
    """

    name: str
    key: str
    order: int
    path: Path
    has_chart: bool
    has_templates: bool
    has_hooks: bool
    enabled_script: Path | None
    has_crds: bool
    section: SectionSpec
    flags: tuple[EnableFlag, ...]
    chart_version: str = ""

    @property
    def has_release(self) -> bool:
        """Whether Helm has anything to do for this module. Source: contract.md 2.12 (chart-less)."""
        return self.has_chart or self.has_templates

    @property
    def sort_key(self) -> tuple[int, str]:
        """Run order: by number, then by name."""
        return self.order, self.name


def split_directory_name(name: str, default_order: int) -> tuple[int, str]:
    """Splits `020-simple-module` into order and module name; a name without a number has the default order."""
    match = _DIRECTORY.fullmatch(name)
    if match is None:
        return default_order, name
    number, rest = match.groups()
    return int(number) if number else default_order, rest
