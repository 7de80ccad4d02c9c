"""Another commit in the place of the former one, with equal times and sizes: each change of content is seen."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from addon_operator.helm.chart import ChartReader
from addon_operator.modules.loader import ModuleLoader, Scan
from addon_operator.modules.module import Module
from tests.fakes.git_sync import GitSync

HOOK, ENABLED = "modules/010-demo/hooks/hook.sh", "modules/010-demo/enabled"
COMMIT = {
    "modules/values.yaml": "global: {a: 1}\ndemo: {common: 1}\n",
    "modules/010-demo/values.yaml": "demo: {own: 1}\n",
    "modules/010-demo/openapi/values.yaml": "{type: object, properties: {x: {default: 1}}}\n",
    "modules/010-demo/openapi/config-values.yaml": "{type: object, properties: {y: {default: 1}}}\n",
    "modules/010-demo/Chart.yaml": "{apiVersion: v2, name: demo, version: 0.0.1}\n",
    "modules/010-demo/templates/a.yaml": "a: 1\n",
    "modules/010-demo/charts/sub/templates/b.yaml": "b: 1\n",
    HOOK: "#!/bin/sh\necho '{configVersion: v1, onStartup: 1}'\n",
    ENABLED: "#!/bin/sh\necho 1\n",
    "global-hooks/openapi/values.yaml": "{type: object, properties: {z: {default: 1}}}\n",
}
EXECUTABLE = frozenset({HOOK, ENABLED})


@pytest.fixture
def repository(tmp_path: Path) -> GitSync:
    repository = GitSync(tmp_path)
    repository.check_out(COMMIT, executable=EXECUTABLE)
    return repository


@pytest.fixture
def loader(repository: GitSync) -> ModuleLoader:
    return ModuleLoader(
        modules_dirs=[repository.link / "modules"],
        global_hooks_dir=repository.link / "global-hooks",
        default_order=1,
        strict_values=False,
    )


def _change(repository: GitSync, name: str) -> None:
    """Changes one digit of one file."""
    changed = COMMIT[name].replace("1}", "2}").replace(": 1\n", ": 2\n").replace("echo 1", "echo 2")
    assert changed != COMMIT[name]
    assert len(changed) == len(COMMIT[name])
    repository.check_out({**COMMIT, name: changed}, executable=EXECUTABLE)


def _demo(scan: Scan) -> Module:
    (module,) = scan.modules
    return module


@pytest.mark.parametrize(
    ("file", "sections"),
    [
        pytest.param("modules/values.yaml", {"global", "demo"}, id="values of all modules"),
        pytest.param("modules/010-demo/values.yaml", {"demo"}, id="values of the module"),
        pytest.param("modules/010-demo/openapi/values.yaml", {"demo"}, id="schema of values"),
        pytest.param("modules/010-demo/openapi/config-values.yaml", {"demo"}, id="schema of the configuration"),
        pytest.param("global-hooks/openapi/values.yaml", {"global"}, id="schema of global values"),
    ],
)
def test_values_and_schemas(repository: GitSync, loader: ModuleLoader, file: str, sections: set[str]) -> None:
    before = loader.scan()
    assert _demo(loader.scan()) is _demo(before)
    _change(repository, file)
    after = loader.scan()
    assert {key for key, section in after.sections.items() if section != before.sections[key]} == sections
    repository.check_out(COMMIT, executable=EXECUTABLE)
    assert loader.scan() == before


def test_files_that_come_and_go(repository: GitSync, loader: ModuleLoader) -> None:
    assert _demo(loader.scan()).has_chart
    repository.check_out(
        {name: text for name, text in COMMIT.items() if not name.endswith("Chart.yaml")}, executable=EXECUTABLE
    )
    assert not _demo(loader.scan()).has_chart


def test_the_enabled_script(repository: GitSync, loader: ModuleLoader) -> None:
    script = _demo(loader.scan()).enabled_script
    assert script is not None
    assert subprocess.check_output([script]) == b"1\n"
    _change(repository, ENABLED)
    assert _demo(loader.scan()).enabled_script == script
    assert subprocess.check_output([script]) == b"2\n"
    repository.check_out(COMMIT, executable=frozenset({HOOK}))
    assert _demo(loader.scan()).enabled_script is None


@pytest.mark.parametrize("file", ["modules/010-demo/templates/a.yaml", "modules/010-demo/charts/sub/templates/b.yaml"])
def test_templates(repository: GitSync, file: str) -> None:
    charts, module = ChartReader(), repository.link / "modules" / "010-demo"
    before = charts.digest(module)
    assert charts.digest(module) == before
    _change(repository, file)
    assert charts.digest(module) != before
    repository.check_out(COMMIT, executable=EXECUTABLE)
    assert charts.digest(module) == before
