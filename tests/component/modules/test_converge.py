"""What a converge makes of directories and of a ConfigMap that are not as they should be; in virtual time."""

from __future__ import annotations

import gc
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from addon_operator.modules.module import Module
from tests.fakes.bench import Bench, play, write_hook

HOOKS = {"web/hook": "beforeHelm: 1\n", "data/hook": "beforeHelm: 1\n"}


def hide(modules: Path) -> None:
    (modules / "web").rename(modules / ".web")
    (modules / "web").symlink_to(modules / "nowhere")


def turn_into_a_file(modules: Path) -> None:
    shutil.rmtree(modules / "web")
    (modules / "web").write_text("../elsewhere/web")


def empty(modules: Path) -> None:
    for entry in modules.iterdir():
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()


def remove(modules: Path) -> None:
    shutil.rmtree(modules)


@pytest.mark.parametrize(
    ("harm", "releases", "purged", "says"),
    [
        pytest.param(hide, {"web", "old"}, ["old"], "web: broken symbolic link", id="broken link"),
        pytest.param(turn_into_a_file, {"web", "old"}, ["old"], "web: not a module directory", id="link made a file"),
        pytest.param(empty, {"web", "data"}, [], "module is held: neither upgraded nor removed", id="empty"),
        pytest.param(remove, {"old"}, [], "no such modules directory; create it or set MODULES_DIR", id="missing"),
    ],
)
def test_a_module_that_is_out_of_sight_keeps_its_release(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    *,
    harm: Callable[[Path], None],
    releases: set[str],
    purged: list[str],
    says: str,
) -> None:
    async def steps(bench: Bench) -> None:
        await bench.rest()
        harm(bench.root / "modules")
        bench.install(*releases)
        bench.converge_again()
        assert [task.split(":")[2] for task in await bench.rest() if task.startswith("ModulePurge")] == purged

    play(tmp_path, HOOKS, steps)
    assert says in capsys.readouterr().out


def test_a_refused_configmap_is_accepted_when_the_schema_that_allows_it_is_read(tmp_path: Path) -> None:
    async def steps(bench: Bench) -> None:
        await bench.rest()
        schema = bench.root / "modules/web/openapi/config-values.yaml"
        schema.parent.mkdir()
        schema.write_text("{type: object, properties: {a: {}}}")
        bench.converge_again()
        await bench.rest()

        # The edit comes first: the next converge looks again, and says the same only once.
        bench.edit(web="b: 1")
        await bench.tick()
        assert ["web.b is a forbidden property" in message for message in bench.refused] == [True]
        assert await bench.rest() == []
        bench.converge_again()
        await bench.rest()
        assert (len(bench.refused), bench.store.effective("web")) == (1, {})
        schema.write_text("{type: object, properties: {a: {}, b: {}}}")
        bench.converge_again()
        await bench.rest()
        assert (len(bench.refused), bench.store.effective("web")) == (1, {"b": 1})

        # The schema comes first: the refusal leads to a converge.
        schema.write_text("{type: object, properties: {a: {}, b: {}, other: {}}}")
        bench.edit(web="other: 1")
        await bench.tick()
        assert len(bench.refused) == 2
        await bench.rest()
        assert (len(bench.refused), bench.store.effective("web")) == (2, {"other": 1})

    play(tmp_path, HOOKS, steps)


def test_the_reason_of_an_enable_state_is_that_of_the_newest_configmap(tmp_path: Path) -> None:
    async def steps(bench: Bench) -> None:
        def reason() -> str:
            verdict = bench.registry.verdict("web")
            assert verdict is not None
            assert verdict.enabled
            return verdict.reason

        await bench.rest()
        assert "values file" in reason()
        # What decides is another place now; nothing runs for it.
        bench.edit(webEnabled="true")
        assert await bench.rest() == ["ApplyKubeConfigValues:main:Apply-Kube-Config-Values-Changes"]
        assert "webEnabled" in reason()
        assert "ConfigMap" in reason()
        bench.edit(webEnabled=None)
        await bench.rest()
        assert "values file" in reason()

    play(tmp_path, HOOKS, steps)


def test_nothing_is_remembered_of_module_directories_that_are_gone(tmp_path: Path) -> None:
    def left() -> list[object]:
        gc.collect()
        found = [item for item in gc.get_objects() if isinstance(item, Module | Path)]
        return [item for item in found if "passing" in str(item.path if isinstance(item, Module) else item)]

    async def steps(bench: Bench) -> None:
        await bench.rest()
        for number in range(3):
            name = f"passing{number}"
            write_hook(bench.root, f"{name}/hook", "beforeHelm: 1\n")
            bench.edit(**{f"{name}Enabled": "true"})
            await bench.rest()
            assert bench.registry.is_enabled(name)
            shutil.rmtree(bench.root / "modules" / name)
            bench.edit()
            bench.converge_again()
            await bench.rest()
        assert left() == []
        assert "passing" not in bench.metrics.render().decode()

    play(tmp_path, HOOKS, steps)
