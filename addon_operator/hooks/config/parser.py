"""The output of `hook --config`, read as a HookConfig, in whichever version of the format (contract.md 2.2).

Pure. Every rule is checked and all violations are reported together, each with the path of its field.
"""

from __future__ import annotations

from addon_operator.documents import yamldoc
from addon_operator.documents.fields import Fields, parse_map
from addon_operator.documents.jsondoc import JsonValue
from addon_operator.errors import HookConfigError, InputError
from addon_operator.hooks.call import HookId, Scope
from addon_operator.hooks.config import v0, v1
from addon_operator.hooks.config.model import HookConfig


def parse_config(document: JsonValue, *, scope: Scope, hook: HookId) -> HookConfig:
    """Reads what a hook printed.

    Args:
        document: YAML or JSON text, or what was read from it.
        scope: where the hook lives, which decides about its lifecycle bindings.
        hook: for error messages.

    Raises:
        HookConfigError: all violations, one in each line, each starting with the path of its field.

    Source: contract.md 2.2.
    """
    errors: list[str] = []
    value = _read(document, errors) if isinstance(document, str) else document
    config = HookConfig("v1") if errors else parse_map(value, "", errors, lambda root: _config(root, scope))
    if errors:
        raise HookConfigError("\n".join([f"{hook}: bad configuration:", *(f"  - {line}" for line in errors)]))
    return config


def _read(text: str, errors: list[str]) -> JsonValue:
    try:
        return yamldoc.load(text, "output").value
    except InputError as error:
        errors.append(str(error))
        return None


def _config(root: Fields, scope: Scope) -> HookConfig:
    if not root.has("configVersion"):
        return v0.config(root, scope)
    version = root.map["configVersion"]
    if version is None:
        root.fail("configVersion", "missing value")
    elif root.text("configVersion") != "v1" and isinstance(version, str):
        root.fail("configVersion", f"unsupported version {version!r}, supported: v1")
    if root.errors:
        # Without a known version nothing else in the document has a meaning.
        root.map = {}
        return HookConfig("v1")
    return v1.config(root, scope)
