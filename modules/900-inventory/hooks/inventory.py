#!/usr/bin/env python3
"""Keeps a ConfigMap `platform-inventory` that says which modules are on, and removes it with the module.

A module needs no chart: hooks run all the same, and beforeHelm means "at every run of the module".
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

CONFIG = {"configVersion": "v1", "beforeHelm": 10, "afterDeleteHelm": 10}
NAME = "platform-inventory"


def read(variable: str) -> Any:
    """Reads one of the files that the operator hands over."""
    return json.loads(Path(os.environ[variable]).read_bytes())


def keep(values: dict[str, Any]) -> dict[str, Any]:
    """Makes the operation that writes the inventory."""
    return {
        "operation": "CreateOrUpdate",
        "object": {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": NAME, "namespace": os.environ["ADDON_OPERATOR_NAMESPACE"]},
            "data": {
                "kubernetesVersion": values["global"]["discovery"]["kubernetesVersion"],
                "modules": "\n".join(values["global"]["enabledModules"]),
            },
        },
    }


def remove() -> dict[str, Any]:
    """Makes the operation that removes it; an object that is gone already is no error."""
    namespace = os.environ["ADDON_OPERATOR_NAMESPACE"]
    return {"operation": "Delete", "apiVersion": "v1", "kind": "ConfigMap", "namespace": namespace, "name": NAME}


def main() -> None:
    """Answers --config, or handles the events that the operator hands over in one run, in order."""
    if sys.argv[1:] == ["--config"]:
        sys.stdout.write(json.dumps(CONFIG))
        return
    operations = [
        remove() if context["binding"] == "afterDeleteHelm" else keep(read("VALUES_PATH"))
        for context in read("BINDING_CONTEXT_PATH")
    ]
    Path(os.environ["KUBERNETES_PATCH_PATH"]).write_text("\n".join(map(json.dumps, operations)), encoding="utf-8")


if __name__ == "__main__":
    main()
