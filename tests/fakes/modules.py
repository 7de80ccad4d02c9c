"""Writes module directories and a helm that counts its starts, for tests and benchmarks.

A generated module is what most real ones are: a chart with a ServiceAccount, a Service, a Deployment and a ConfigMap,
schemas, no hooks. It renders `.Values.global.shared`, and ignores `.Values.global.unused`.
"""

from __future__ import annotations

import dataclasses
import json
import shlex
from collections.abc import Sequence
from pathlib import Path

from addon_operator.values.layers import section_key

_CHART = """\
apiVersion: v2
name: {name}
version: 0.1.0
"""

_TEMPLATE = """\
apiVersion: v1
kind: ServiceAccount
metadata:
  name: NAME
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: NAME
data:
  shared: {{ .Values.global.shared | quote }}
  text: {{ .Values.KEY.text | quote }}
---
apiVersion: v1
kind: Service
metadata:
  name: NAME
spec:
  selector: {app: NAME}
  ports:
    - {name: web, port: 80, targetPort: 8080}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: NAME
spec:
  replicas: {{ .Values.KEY.replicas }}
  selector:
    matchLabels: {app: NAME}
  template:
    metadata:
      labels: {app: NAME}
    spec:
      serviceAccountName: NAME
      containers:
        - name: web
          image: busybox:1.37
          command: [httpd, -f, -p, "8080"]
          resources:
            requests: {cpu: 1m, memory: 8Mi}
"""

_CONFIG_SCHEMA = """\
type: object
properties:
  text: {type: string, minLength: 1}
  replicas: {type: integer, minimum: 0}
"""

_VALUES_SCHEMA = """\
x-extend: {schema: config-values.yaml}
type: object
"""

_COUNTING_HELM = """\
#!/bin/sh
printf '%s\\n' "$1" >>{log}
exec {helm} "$@"
"""


@dataclasses.dataclass(frozen=True, slots=True)
class GeneratedModules:
    """Module directories as written by `write_modules`.

    Attributes:
        directory: for MODULES_DIR.
        global_hooks: for GLOBAL_HOOKS_DIR; there are none in it.
        names: module and release names, in run order.
    """

    directory: Path
    global_hooks: Path
    names: tuple[str, ...]

    @property
    def keys(self) -> tuple[str, ...]:
        """The sections of the modules' values, in run order."""
        return tuple(map(section_key, self.names))


def write_modules(
    root: Path, *, count: int, equal_order: bool = False, prefix: str = "generated", replicas: int = 1
) -> GeneratedModules:
    """Writes `count` modules, all of them enabled in `values.yaml`.

    Args:
        root: gets the subdirectories `modules` and `global-hooks`.
        count: how many.
        equal_order: whether all have one order (they run side by side) or each its own (one after another).
        prefix: of the names, `<prefix>007`; it keeps the releases of several sets apart.
        replicas: of each Deployment.
    """
    names = tuple(f"{prefix}{number:03d}" for number in range(1, count + 1))
    generated = GeneratedModules(root / "modules", root / "global-hooks", names)
    generated.directory.mkdir(parents=True)
    generated.global_hooks.mkdir()
    for number, name in enumerate(names, start=1):
        write_module(generated.directory, name=name, order=1 if equal_order else number, replicas=replicas)
    write_values(generated.directory, names)
    return generated


def write_module(directory: Path, *, name: str, order: int, replicas: int = 1) -> Path:
    """Writes one module directory and answers its path; enabling it is left to `write_values`."""
    key, path = section_key(name), directory / f"{order:03d}-{name}"
    for folder in ("templates", "openapi"):
        (path / folder).mkdir(parents=True)
    for file, text in {
        "Chart.yaml": _CHART.format(name=name),
        "values.yaml": json.dumps({key: {"text": "as generated", "replicas": replicas}}),
        "templates/all.yaml": _TEMPLATE.replace("NAME", name).replace("KEY", key),
        "openapi/config-values.yaml": _CONFIG_SCHEMA,
        "openapi/values.yaml": _VALUES_SCHEMA,
    }.items():
        (path / file).write_text(text, encoding="utf-8")
    return path


def write_values(directory: Path, names: Sequence[str]) -> None:
    """Writes `values.yaml` of a modules directory: two global values, and a flag that enables each of the names."""
    values = {"global": {"shared": "first", "unused": "first"}}
    flags = {f"{section_key(name)}Enabled": True for name in names}
    (directory / "values.yaml").write_text(json.dumps({**values, **flags}, indent=1), encoding="utf-8")


def write_counting_helm(path: Path, *, helm: Path, log: Path) -> Path:
    """Writes an executable for HELM_BIN_PATH that notes the subcommand of each start in `log` and becomes helm."""
    path.write_text(
        _COUNTING_HELM.format(log=shlex.quote(str(log)), helm=shlex.quote(str(helm.resolve()))), encoding="utf-8"
    )
    path.chmod(0o755)
    return path


def helm_starts(log: Path) -> tuple[str, ...]:
    """Lists the subcommands that the counting helm was started with, in order."""
    return tuple(log.read_text(encoding="utf-8").split()) if log.exists() else ()
