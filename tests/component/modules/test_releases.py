"""From values, charts and what happens in the cluster to releases; in virtual time, with a helm that renders nothing.

What only the real helm shows is in `tests/cluster/test_helm.py`.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from addon_operator.documents.jsondoc import lookup
from addon_operator.kube.refs import CONFIG_MAPS
from addon_operator.modules.registry import ModulePhase
from tests.fakes.bench import NAMESPACE, Bench, play, write_template

HOOKS = {"web/x": "beforeHelm: 1\nafterHelm: 1\nbeforeDeleteHelm: 1\nafterDeleteHelm: 1\n"}


def with_chart(bench: Bench) -> None:
    write_template(bench.root, "web", text="a")


def text(bench: Bench) -> str | None:
    found = bench.api.find(CONFIG_MAPS, NAMESPACE, "web")
    return None if found is None else str(lookup(found, "/data/text"))


def operations(bench: Bench) -> list[tuple[str, str]]:
    done, bench.helm.operations = bench.helm.operations, []
    return done


def test_a_module_is_installed_once_and_upgraded_when_its_chart_changes(tmp_path: Path) -> None:
    async def steps(bench: Bench) -> None:
        await bench.rest()
        assert (text(bench), operations(bench)) == ("a", [("upgrade", "web")])
        assert [what for _, what in bench.runs()] == ["beforeHelm", "afterHelm"]
        bench.converge_again()
        await bench.rest()
        assert operations(bench) == []
        write_template(bench.root, "web", text="b")
        bench.converge_again()
        await bench.rest()
        assert (text(bench), operations(bench)[-1]) == ("b", ("upgrade", "web"))
        assert bench.releases["web"].revision == 2

    play(tmp_path, HOOKS, steps, prepare=with_chart)


def test_values_that_change_nothing_that_is_rendered_make_no_revision(tmp_path: Path) -> None:
    async def steps(bench: Bench) -> None:
        await bench.rest()
        before = bench.releases["web"]
        operations(bench)
        bench.edit(web="unused: 1")
        await bench.rest()
        assert operations(bench) == [("template", "web")]
        assert bench.releases["web"].revision == 1
        assert bench.releases["web"].fingerprint != before.fingerprint

    play(tmp_path, HOOKS, steps, prepare=with_chart)


def test_an_object_that_somebody_deletes_is_back_without_a_converge(tmp_path: Path) -> None:
    async def steps(bench: Bench) -> None:
        await bench.rest()
        bench.since()
        bench.api.remove(CONFIG_MAPS, NAMESPACE, "web")
        tasks = await bench.rest()
        assert [task for task in tasks if task.startswith("ModuleRun:main:web")]
        assert not [task for task in tasks if task.startswith("Converge")]
        assert text(bench) == "a"

    play(tmp_path, HOOKS, steps, prepare=with_chart)


def test_a_disabled_module_is_uninstalled_and_its_record_waits_for_its_last_hooks(tmp_path: Path) -> None:
    async def steps(bench: Bench) -> None:
        await bench.rest()
        bench.runs()
        bench.hooks.failing.add("web/x")
        bench.edit(webEnabled="false")
        await asyncio.sleep(60)
        assert (text(bench), list(bench.releases)) == ("a", ["web"]), "beforeDeleteHelm fails"
        bench.hooks.failing.clear()
        await bench.rest()
        assert [what for _, what in bench.runs()][-2:] == ["beforeDeleteHelm", "afterDeleteHelm"]
        assert (text(bench), dict(bench.releases)) == (None, {})

    play(tmp_path, HOOKS, steps, prepare=with_chart)


def test_a_chart_that_cannot_be_installed_is_tried_again_and_recovers(tmp_path: Path) -> None:
    def prepare(bench: Bench) -> None:
        with_chart(bench)
        bench.helm.failing["web"] = "the server says no"

    async def steps(bench: Bench) -> None:
        await asyncio.sleep(60)
        assert not bench.converged
        assert bench.registry.state("web").error == "module web: helm upgrade: the server says no"
        assert bench.releases["web"].status == "failed"
        bench.helm.failing.clear()
        await bench.rest()
        assert bench.converged
        assert bench.registry.state("web").phase is ModulePhase.READY
        assert text(bench) == "a"

    play(tmp_path, HOOKS, steps, prepare=prepare)


def test_a_release_that_somebody_uninstalls_is_back(tmp_path: Path) -> None:
    async def steps(bench: Bench) -> None:
        await bench.rest()
        bench.api.remove(CONFIG_MAPS, NAMESPACE, "web")
        bench.uninstall("web")
        await bench.rest()
        assert (text(bench), bench.releases["web"].status) == ("a", "deployed")

    play(tmp_path, HOOKS, steps, prepare=with_chart)


def test_releases_without_a_module_are_purged(tmp_path: Path) -> None:
    async def steps(bench: Bench) -> None:
        tasks = await bench.rest()
        assert [task.split(":")[2] for task in tasks if task.startswith("ModulePurge")] == ["old"]
        assert bench.releases.keys() == {"web"}

    def prepare(bench: Bench) -> None:
        with_chart(bench)
        bench.install("old")

    play(tmp_path, HOOKS, steps, prepare=prepare)
