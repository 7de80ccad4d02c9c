"""The tree in the docstring is the tree of the classes."""

from __future__ import annotations

import importlib
import pkgutil
import re

import addon_operator
from addon_operator import errors
from addon_operator.errors import AddonOperatorError


def drawn() -> set[tuple[str, str]]:
    """Pairs of a class and its parent, as the docstring draws them."""
    path: list[str] = []
    pairs = set()
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"    ([ │├└─]*)([A-Z]\w+)", line)
        if found:
            depth = len(found[1]) // 4
            path[depth:] = [found[2]]
            pairs.add((found[2], path[depth - 1] if depth else ""))
    return pairs


def existing() -> set[tuple[str, str]]:
    """Pairs of a public class of the package and its parent."""
    for module in pkgutil.walk_packages(addon_operator.__path__, "addon_operator."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    todo, pairs = [AddonOperatorError], {("AddonOperatorError", "")}
    while todo:
        parent = todo.pop()
        children = [child for child in parent.__subclasses__() if child.__module__.startswith("addon_operator.")]
        todo += children
        pairs |= {(child.__name__, parent.__name__) for child in children if not child.__name__.startswith("_")}
    return pairs


def test_every_error_is_in_the_tree() -> None:
    assert drawn() == existing()
