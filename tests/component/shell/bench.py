"""Runs a hook as the operator does, and reads what it leaves with the operator's own readers."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from addon_operator.documents.jsondoc import JsonObject, JsonValue
from addon_operator.kube import patch_ops
from addon_operator.metrics import operations
from addon_operator.values import patches, patching

PROJECT = Path(__file__).parents[3]
INPUTS = ("BINDING_CONTEXT_PATH", "VALUES_PATH", "CONFIG_VALUES_PATH")
RESULTS = (
    "VALUES_JSON_PATCH_PATH",
    "CONFIG_VALUES_JSON_PATCH_PATH",
    "METRICS_PATH",
    "KUBERNETES_PATCH_PATH",
    "ADMISSION_RESPONSE_PATH",
    "CONVERSION_RESPONSE_PATH",
)
VALUES: JsonObject = {"global": {"enabledModules": ["my-module"]}, "myModule": {}}


@dataclasses.dataclass(frozen=True, slots=True)
class HookRun:
    """What one run left behind: exit code, output, and the content of each result file by its variable."""

    code: int
    stdout: str
    stderr: str
    files: Mapping[str, bytes]
    values: JsonObject
    config_values: JsonObject

    @property
    def lines(self) -> list[str]:
        return self.stdout.splitlines()

    def patch(self, variable: str = "VALUES_JSON_PATCH_PATH") -> tuple[patches.Operation, ...]:
        return patches.parse(self.files[variable], variable)

    def new_values(self) -> JsonValue:
        """Answers the values after the hook, by the operator's rules."""
        return patching.resolve(self.patch(), self.values, "values").document

    def new_config_values(self) -> JsonValue:
        """Answers the config values after the hook, by the operator's rules."""
        return patching.resolve(self.patch("CONFIG_VALUES_JSON_PATCH_PATH"), self.config_values, "config").document

    def metrics(self) -> tuple[operations.MetricOperation, ...]:
        return operations.parse(self.files["METRICS_PATH"], "METRICS_PATH")

    def objects(self) -> tuple[patch_ops.ObjectOperation, ...]:
        return patch_ops.parse(self.files["KUBERNETES_PATCH_PATH"], "KUBERNETES_PATCH_PATH")

    def answer(self, variable: str) -> JsonValue:
        parsed: JsonValue = json.loads(self.files[variable])
        return parsed

    @property
    def is_silent(self) -> bool:
        """Answers whether no result file was written."""
        return not self.written

    @property
    def written(self) -> set[str]:
        """Gives the variables of the result files that were written."""
        return {variable for variable, content in self.files.items() if content}


class HookBench:
    """Runs hooks one after the other, each in a directory of its own."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._count = 0

    def write(self, name: str, text: str) -> Path:
        """Writes an executable file."""
        path = self._directory / "hooks" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
        return path

    def run(
        self,
        path: Path,
        *arguments: str,
        contexts: Sequence[JsonObject] = ({"binding": "beforeHelm", "snapshots": {}},),
        values: JsonObject | None = None,
        config_values: JsonObject | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> HookRun:
        """Runs a hook once, and looks that it leaves no file behind that is not its own."""
        given = values or VALUES
        config = config_values or {"global": {}, "myModule": {}}
        self._count += 1
        files = {variable: self._directory / f"run{self._count}" / variable for variable in (*INPUTS, *RESULTS)}
        directory = files["VALUES_PATH"].parent
        directory.mkdir()
        for variable, document in zip(INPUTS, (list(contexts), given, config), strict=True):
            files[variable].write_text(json.dumps(document))
        for variable in RESULTS:
            files[variable].touch()
        done = subprocess.run(
            [str(path), *arguments],
            env={
                "PATH": os.environ["PATH"],
                **{name: str(file) for name, file in files.items()},
                **(environment or {}),
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert {file.name for file in directory.iterdir()} == {*INPUTS, *RESULTS}
        contents = {variable: files[variable].read_bytes() for variable in RESULTS}
        return HookRun(done.returncode, done.stdout, done.stderr, contents, given, config)
