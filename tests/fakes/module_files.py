"""Writes files of hooks and modules for a bench: hooks that hold their configuration, charts of one template."""

from __future__ import annotations

from pathlib import Path

from addon_operator.documents import yamldoc
from addon_operator.documents.jsondoc import JsonObject, JsonValue
from addon_operator.modules.module import split_directory_name
from tests.fakes.helm import ALL_VALUES


def write_hook(root: Path, name: str, config: str) -> None:
    """Writes a hook's file, with its configuration."""
    path = hook_file(root, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"configVersion: v1\n{config}")
    path.chmod(0o755)


def write_template(root: Path, directory: str, **data: JsonValue) -> None:
    """Writes the only template of a module: a ConfigMap with the module's name; data may be `ALL_VALUES`."""
    name = split_directory_name(directory, 0)[1]
    document: JsonObject = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {**data}}
    path = root / "modules" / directory / "templates" / "configmap.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yamldoc.dump(document).replace(f"'{ALL_VALUES}'", ALL_VALUES))


def write_enabled_script(root: Path, directory: str, answer: str = "true") -> None:
    """Writes the `enabled` script of a module, which answers what its file holds unless a test scripts it."""
    path = root / "modules" / directory / "enabled"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(answer)
    path.chmod(0o755)


def hook_file(root: Path, name: str) -> Path:
    """Where a hook's file is."""
    scope, file = name.split("/")
    return root / "global" / file if scope == "global" else root / "modules" / f"{scope}/hooks" / file
