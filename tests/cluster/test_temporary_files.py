"""The directories of temporary files, which cleaners, hooks and other users of the machine get at."""

from __future__ import annotations

import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from addon_operator.devcluster import DevCluster
from tests.cluster.operator import Operator, bindings, config_map_chart, eventually, noting_hook, operator

CHART = config_map_chart("alpha", 'a: "{{ .Values.alpha.a }}"')
MODULE = {**CHART, "values.yaml": "alpha: {a: 0}\nalphaEnabled: true\n"}


def _remove(path: Path) -> None:
    shutil.rmtree(path)


def _upgraded(made: Operator, to: int) -> None:
    """Changes a value, and waits until helm has rolled it out."""
    made.configure({"alpha": f"a: {to}"})
    eventually(lambda: made.deployed("alpha") == {"a": str(to)}, what=f"alpha at {to}")
    made.wait_idle()


def test_helm_and_hooks_go_on_when_their_directories_are_removed(cluster: DevCluster, tmp_path: Path) -> None:
    with operator(cluster, tmp_path) as made:
        made.module("010-alpha", {**MODULE, "hooks/h.sh": noting_hook("h", bindings(beforeHelm=1))})
        # Another one, without a chart, removes what helm is to use next.
        made.module(
            "005-cleaner",
            {
                "values.yaml": "cleanerEnabled: true\n",
                "hooks/h.sh": noting_hook("c", bindings(beforeHelm=1), f"rm -rf {tmp_path}/tmp/run-*/helm"),
            },
        )
        made.start_ready()
        (run,) = (tmp_path / "tmp").glob("run-*")
        for number, removed in enumerate([run / "helm", run, tmp_path / "tmp" / "helm", tmp_path / "tmp"], start=1):
            _remove(removed)
            _upgraded(made, number)
            assert not made.modules()["alpha"]["lastError"]
        _remove(tmp_path / "tmp")
        made.configure({"alphaEnabled": "false"})
        eventually(lambda: made.revisions("alpha") == {}, what="alpha uninstalled")
        made.wait_idle()
        for name in ("tmp", f"tmp/{run.name}", "tmp/helm", "tmp/helm/cache"):
            assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o700
        assert made.stop() == 0
        assert not run.exists()


def test_a_directory_that_others_can_write_to_is_refused_until_it_is_private_again(
    cluster: DevCluster, tmp_path: Path
) -> None:
    with operator(cluster, tmp_path) as made:
        made.module("010-alpha", MODULE)
        made.start_ready()
        (run,) = (tmp_path / "tmp").glob("run-*")
        run.chmod(0o777)
        made.configure({"alpha": "a: 1"})
        refused = f"{run}: others can write to it (mode 0777)"
        eventually(lambda: refused in str(made.modules()["alpha"]["lastError"]), what="alpha fails")
        run.chmod(0o700)
        eventually(lambda: made.deployed("alpha") == {"a": "1"}, what="alpha at 1")


def _link(path: Path) -> None:
    (path.parent / "elsewhere").mkdir()
    path.symlink_to("elsewhere")


def _open(path: Path) -> None:
    path.mkdir()
    path.chmod(0o777)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [(_open, "others can write to it (mode 0777)"), (_link, "is a symbolic link")],
    ids=["open to all", "link"],
)
def test_the_start_refuses_a_directory_that_is_not_its_own(
    cluster: DevCluster, tmp_path: Path, spoil: Callable[[Path], None], message: str
) -> None:
    with operator(cluster, tmp_path) as made:
        spoil(tmp_path / "tmp")
        made.start()
        assert made.process is not None
        assert made.process.wait(timeout=60) == 1
        assert f"Error: {tmp_path}/tmp: cannot be used for temporary files: {message}" in made.text()
        assert "Traceback" not in made.text()
