"""A module in maintenance mode runs its hooks, and Helm leaves it alone; in virtual time."""

from __future__ import annotations

from pathlib import Path

from addon_operator.kube.refs import CONFIG_MAPS
from addon_operator.server import pages
from tests.fakes.bench import NAMESPACE, Bench, play, write_template
from tests.fakes.helm import ALL_VALUES

HOOKS = {"alpha/h": "beforeHelm: 1"}
RUN = ("alpha/h", "beforeHelm")
MAINTENANCE = 'mm_module_maintenance{module="alpha",state="NoResourceReconciliation"}'


def prepare(bench: Bench) -> None:
    write_template(bench.root, "alpha", values=ALL_VALUES)
    (bench.root / "modules/alpha/Chart.yaml").write_text("apiVersion: v2\nname: alpha\nversion: 0.0.1\n")


def revision(bench: Bench) -> tuple[int, str]:
    return bench.releases["alpha"].revision, bench.releases["alpha"].status


def test_a_module_in_maintenance_is_left_alone(tmp_path: Path) -> None:
    async def steps(bench: Bench) -> None:
        inspector = bench.operator.inspector
        await bench.rest()
        bench.runs()
        assert bench.metric(MAINTENANCE) == 0
        assert revision(bench) == (1, "deployed")
        bench.edit(alphaMaintenance="NoResourceReconciliation")
        await bench.rest()
        assert bench.runs() == [RUN]
        assert bench.metric(MAINTENANCE) == 1
        assert bench.metric('mm_module_enabled{module="alpha",version="0.0.1"}') == 1

        bench.api.remove(CONFIG_MAPS, NAMESPACE, "alpha")
        bench.edit(alpha="own: 1")
        await bench.rest()
        assert bench.runs() == [RUN]
        assert revision(bench) == (1, "deployed")
        assert bench.deployed("alpha") is None
        explained = pages.module_explain(inspector, pages.Query(module="alpha"))
        assert "maintenance: NoResourceReconciliation" in explained.text
        assert pages.resource_monitor(inspector, pages.Query()).document == {"alpha": "No monitor"}

        bench.edit(alphaMaintenance="")
        await bench.rest()
        assert bench.runs() == [RUN]
        assert '"alpha":{"own":1}' in str(bench.deployed("alpha"))
        assert revision(bench) == (2, "deployed")
        assert bench.metric(MAINTENANCE) == 0

    play(tmp_path, HOOKS, steps, prepare=prepare)


def test_a_release_that_somebody_uninstalls_during_maintenance_leads_to_no_run(tmp_path: Path) -> None:
    async def steps(bench: Bench) -> None:
        await bench.rest()
        bench.edit(alphaMaintenance="NoResourceReconciliation")
        await bench.rest()
        bench.runs()
        bench.uninstall("alpha")
        assert await bench.rest() == []
        assert "alpha" not in bench.releases
        bench.edit(alphaMaintenance=None)
        await bench.rest()
        assert revision(bench) == (1, "deployed")

    play(tmp_path, HOOKS, steps, prepare=prepare)
