"""Runs the hooks of the samples as the operator does: files written by hand, a kubectl that answers from a table."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from addon_operator.devcluster.binaries import require
from addon_operator.documents.jsondoc import JsonObject, JsonValue, loads
from addon_operator.kube import patch_ops
from addon_operator.kube.patch_ops import ObjectOperation
from addon_operator.metrics import operations
from addon_operator.metrics.operations import MetricOperation
from addon_operator.webhooks.review import (
    AdmissionAnswer,
    ConversionAnswer,
    parse_admission_response,
    parse_conversion_response,
)

ROOT = Path(__file__).parents[3]
MODULES, GLOBAL_HOOKS = ROOT / "modules", ROOT / "global-hooks"
NAMESPACE = "platform"
SHELL_LIB = ROOT / "addon_operator" / "shell" / "shell_lib.sh"
RESPONSES = ("ADMISSION_RESPONSE_PATH", "CONVERSION_RESPONSE_PATH")
RESULTS = (
    "VALUES_JSON_PATCH_PATH",
    "CONFIG_VALUES_JSON_PATCH_PATH",
    "METRICS_PATH",
    "KUBERNETES_PATCH_PATH",
    *RESPONSES,
)
ANSWERS = ("MODULE_ENABLED_RESULT", "MODULE_ENABLED_REASON")

_KUBECTL = """\
#!/usr/bin/env bash
[[ $1 == get && $2 == --raw ]] || { echo "unexpected: $*" >&2; exit 1; }
jq -ce --arg path "$3" '.[$path] // halt_error' "$(dirname "$0")/answers.json"
"""


@dataclasses.dataclass(frozen=True, slots=True)
class HookRun:
    """What one run left behind: exit code, output, and the text of each result file by its variable."""

    code: int
    stdout: str
    stderr: str
    files: Mapping[str, str]

    def operations(self, variable: str) -> list[JsonValue]:
        """Parses a JSON patch file that holds one array; an empty file is no operations."""
        text = self.files[variable]
        parsed = loads(text) if text.strip() else []
        assert isinstance(parsed, list)
        return parsed

    def objects(self) -> tuple[ObjectOperation, ...]:
        """Reads the changes to objects as the operator does."""
        return patch_ops.parse(self.files["KUBERNETES_PATCH_PATH"].encode(), "KUBERNETES_PATCH_PATH")

    def metrics(self) -> tuple[MetricOperation, ...]:
        """Reads the metrics as the operator does."""
        return operations.parse(self.files["METRICS_PATH"].encode(), "METRICS_PATH")

    def admission(self) -> AdmissionAnswer:
        """Reads the answer to an admission review as the operator does."""
        return parse_admission_response(self.files["ADMISSION_RESPONSE_PATH"].encode())

    def conversion(self) -> ConversionAnswer:
        """Reads the answer to a conversion review as the operator does."""
        return parse_conversion_response(self.files["CONVERSION_RESPONSE_PATH"].encode())


class HookBench:
    """Runs one executable at a time in a directory of its own."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._bin = directory / "bin"
        self._bin.mkdir()
        kubectl = self._bin / "kubectl"
        kubectl.write_text(_KUBECTL)
        kubectl.chmod(0o755)
        self.serve({})

    def serve(self, answers: Mapping[str, JsonValue]) -> None:
        """Sets what `kubectl get --raw PATH` answers; another path is an error."""
        (self._bin / "answers.json").write_text(json.dumps(dict(answers)))

    def run(
        self,
        path: Path,
        *,
        values: JsonObject | None = None,
        contexts: Sequence[JsonObject] = ({"binding": "onStartup"},),
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> HookRun:
        """Runs a hook or an `enabled` script once."""
        given = {"VALUES_PATH": values or {"global": {}}, "BINDING_CONTEXT_PATH": list(contexts)}
        for variable, document in given.items():
            (self._directory / variable).write_text(json.dumps(document))
        for variable in (*RESULTS, *ANSWERS):
            (self._directory / variable).write_text("")
        files = {variable: str(self._directory / variable) for variable in (*given, *RESULTS, *ANSWERS)}
        search = f"{self._bin}:{os.environ['PATH']}"
        # As the operator does for Python hooks of a module with a venv.
        interpreter = [sys.executable] if path.suffix == ".py" else []
        done = subprocess.run(
            [*interpreter, str(path), *arguments],
            env={
                "PATH": search,
                "HOME": str(self._directory),
                "ADDON_OPERATOR_NAMESPACE": NAMESPACE,
                "ADDON_OPERATOR_SHELL_LIB": str(SHELL_LIB),
                "HELM_BIN_PATH": str(require("helm")),
                **files,
                **(environment or {}),
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        results = {variable: (self._directory / variable).read_text() for variable in (*RESULTS, *ANSWERS)}
        return HookRun(done.returncode, done.stdout, done.stderr, results)


@pytest.fixture
def bench(tmp_path: Path) -> HookBench:
    """A fresh bench."""
    return HookBench(tmp_path)


@pytest.fixture(scope="session")
def helm() -> Path:
    """The real helm."""
    return require("helm")
