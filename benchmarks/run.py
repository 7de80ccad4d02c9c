"""Measures the operator from outside and prints a table: `python -m benchmarks.run --help`.

Each figure is a whole run of the real operator with the real helm against a real API server; only the modules are
generated. The targets are those for 50 modules on two cores. Nothing is asserted.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import secrets
import statistics
import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Sequence
from pathlib import Path

import click

from addon_operator.devcluster import DevCluster
from addon_operator.devcluster.binaries import require
from addon_operator.devcluster.commands import API_ONLY, CONTROL_PLANE
from addon_operator.documents.jsondoc import JsonObject, dumps
from addon_operator.kube.client import KubeClient
from addon_operator.kube.transport import HttpTransport
from addon_operator.settings import CPU_COUNT
from benchmarks.operator_process import OperatorFiles, OperatorProcess
from benchmarks.releases import ReleaseWatch
from benchmarks.report import Figure, document, table
from tests.fakes.modules import GeneratedModules, helm_starts, write_counting_helm, write_modules

NAMES = ("cold-equal", "cold-own", "restart", "module", "global-used", "global-unused", "memory", "idle")
_SINGLE_CHANGES = 5


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """What was asked for.

    Attributes:
        helm: the real one.
        modules: how many.
        replicas: Pods of each module.
        idle_s: how long an idle operator is watched.
        components: programs of the control plane.
    """

    helm: Path
    modules: int
    replicas: int
    idle_s: float
    components: Sequence[str]


@dataclasses.dataclass(frozen=True, slots=True)
class Laboratory:
    """What all measurements share.

    Attributes:
        run: keeps namespaces of several benchmark runs in one cluster apart.
    """

    client: KubeClient
    kubeconfig: Path
    options: Options
    directory: Path
    run: str


@dataclasses.dataclass(frozen=True, slots=True)
class Stage:
    """One set of modules in one namespace."""

    generated: GeneratedModules
    files: OperatorFiles
    watch: ReleaseWatch
    helm_log: Path

    def counts(self) -> Counts:
        """Answers how much helm did so far."""
        return Counts(len(helm_starts(self.helm_log)), self.watch.revisions())


@dataclasses.dataclass(frozen=True, slots=True)
class Counts:
    """Helm processes started and revisions made."""

    helm: int
    revisions: int

    def note_since(self, before: Counts) -> str:
        """Says how much came on top."""
        return f"{self.helm - before.helm} helm processes, {self.revisions - before.revisions} new revisions"


@contextlib.asynccontextmanager
async def open_stage(laboratory: Laboratory, name: str, *, equal_order: bool) -> AsyncIterator[Stage]:
    """Writes modules and opens a namespace for them."""
    directory = laboratory.directory / name
    options = laboratory.options
    generated = write_modules(
        directory, count=options.modules, equal_order=equal_order, prefix=name, replicas=options.replicas
    )
    namespace, log = f"{name}-{laboratory.run}", directory / "helm.log"
    helm = write_counting_helm(directory / "helm", helm=options.helm, log=log)
    files = OperatorFiles(
        laboratory.kubeconfig, namespace, generated.directory, generated.global_hooks, helm, directory / "operator"
    )
    async with ReleaseWatch.open(laboratory.client, namespace) as watch:
        yield Stage(generated, files, watch, log)


async def measure(laboratory: Laboratory, wanted: Collection[str]) -> AsyncGenerator[Figure, None]:
    """Takes the wanted figures; what they need to happen before happens too."""
    if "cold-equal" in wanted:
        async with open_stage(laboratory, "equal", equal_order=True) as stage:
            yield await _start(stage, "cold-equal", "cold start to converged, equal orders", 4)
    if not set(wanted) - {"cold-equal"}:
        return
    async with open_stage(laboratory, "own", equal_order=False) as stage:
        yield await _start(stage, "cold-own", "cold start to converged, own orders", 6.5)
        if "restart" in wanted:
            yield await _start(stage, "restart", "restart with nothing to do", 1.5)
        if not set(wanted) - {"cold-equal", "cold-own", "restart"}:
            return
        async with OperatorProcess.start(stage.files) as operator:
            await operator.ready()
            async for figure in _while_running(laboratory, stage, operator, wanted):
                yield figure


async def _while_running(
    laboratory: Laboratory, stage: Stage, operator: OperatorProcess, wanted: Collection[str]
) -> AsyncGenerator[Figure, None]:
    if "module" in wanted:
        yield await _module_change(stage)
    if "global-used" in wanted:
        duration_s, note = await _global_change(stage, operator, "shared")
        text = "changed global value that all charts use, to quiet"
        yield Figure("global-used", text, duration_s, "s", 7, note)
    if "global-unused" in wanted:
        duration_s, note = await _global_change(stage, operator, "unused")
        text = "changed global value that no chart uses, to quiet"
        yield Figure("global-unused", text, duration_s, "s", 3, note)
    if "memory" in wanted:
        now, most = operator.resident_mib()
        yield Figure("memory", "resident memory of the operator", now, "MiB", 80, f"{most:.0f} MiB at its peak")
    if "idle" in wanted:
        yield await _idle(operator, laboratory.options.idle_s)


async def _start(stage: Stage, name: str, text: str, target: float) -> Figure:
    before, begin = stage.counts(), time.perf_counter()
    async with OperatorProcess.start(stage.files) as operator:
        await operator.ready()
        duration_s, cpu_s = time.perf_counter() - begin, operator.cpu_s()
        await stage.watch.upgraded(dict.fromkeys(stage.generated.names, 0))
        note = f"{stage.counts().note_since(before)}, {cpu_s:.1f} s CPU of operator and helm"
    return Figure(name, text, duration_s, "s", target, note)


async def _module_change(stage: Stage) -> Figure:
    durations = []
    before = stage.counts()
    for name, key in list(zip(stage.generated.names, stage.generated.keys, strict=True))[:_SINGLE_CHANGES]:
        revision = stage.watch.now()[name].revision
        begin = time.perf_counter()
        await stage.watch.configure(key, {"text": f"changed {begin}"})
        await stage.watch.upgraded({name: revision})
        durations.append(time.perf_counter() - begin)
    note = f"median of {len(durations)}, at most {max(durations):.2f} s; {stage.counts().note_since(before)}"
    median = statistics.median(durations)
    return Figure("module", "one module's ConfigMap change to upgraded release", median, "s", 0.25, note)


async def _global_change(stage: Stage, operator: OperatorProcess, value: str) -> tuple[float, str]:
    before, converges = stage.counts(), await operator.converges()
    begin = time.perf_counter()
    await stage.watch.configure("global", {value: f"changed {begin}"})
    await operator.converged_after(converges)
    duration_s = time.perf_counter() - begin
    # The watch may be a moment behind what the operator knows already.
    await asyncio.sleep(0.5)
    return duration_s, stage.counts().note_since(before)


async def _idle(operator: OperatorProcess, idle_s: float) -> Figure:
    await asyncio.sleep(2)
    before = operator.cpu_s()
    await asyncio.sleep(idle_s)
    used = operator.cpu_s() - before
    return Figure(
        "idle", "CPU of an idle operator, a minute", used * 60 / idle_s, "s", 0.05, f"watched for {idle_s:g} s"
    )


async def _run(options: Options, kubeconfig: Path, directory: Path, wanted: Collection[str]) -> list[Figure]:
    transport = await HttpTransport.connect(config_file=kubeconfig, context=None, server=None, qps=0, burst=0)
    laboratory = Laboratory(KubeClient(transport), kubeconfig, options, directory, run=secrets.token_hex(3))
    figures = []
    try:
        async with contextlib.aclosing(measure(laboratory, wanted)) as all_figures:
            async for figure in all_figures:
                if figure.name in wanted:
                    click.echo(f"{figure.name}: {figure.value:.2f} {figure.unit} ({figure.note})", err=True)
                    figures.append(figure)
    finally:
        await transport.close()
    return figures


async def _in_own_cluster(options: Options, directory: Path, wanted: Collection[str]) -> list[Figure]:
    async with DevCluster.start(directory / "cluster", components=options.components) as cluster:
        return await _run(options, cluster.kubeconfig, directory, wanted)


@click.command()
@click.option("--modules", default=50, show_default=True, help="How many modules.")
@click.option("--replicas", default=1, show_default=True, help="Pods of each module.")
@click.option("--only", multiple=True, type=click.Choice(NAMES), help="Take this figure only; may be repeated.")
@click.option("--idle", "idle_s", default=60.0, show_default=True, help="Seconds to watch an idle operator.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write the figures to this file too.")
@click.option("--api-only", is_flag=True, help="Only etcd and API server: no Pods, less noise.")
@click.option("--kubeconfig", type=click.Path(exists=True, path_type=Path), help="Use this cluster, not a fresh one.")
def main(
    *,
    modules: int,
    replicas: int,
    only: tuple[str, ...],
    idle_s: float,
    json_file: Path | None,
    api_only: bool,
    kubeconfig: Path | None,
) -> None:
    """Measure the operator against generated modules; prints a table."""
    components = API_ONLY if api_only else CONTROL_PLANE
    options, wanted = Options(require("helm"), modules, replicas, idle_s, components), only or NAMES
    with tempfile.TemporaryDirectory(prefix="addon-operator-benchmark-") as name:
        directory = Path(name)
        if kubeconfig is None:
            figures = asyncio.run(_in_own_cluster(options, directory, wanted))
        else:
            figures = asyncio.run(_run(options, kubeconfig, directory, wanted))
    click.echo(f"{modules} modules, {CPU_COUNT} CPUs; the targets are those for 50 modules on 2 CPUs\n")
    click.echo(table(figures))
    if json_file is not None:
        facts: JsonObject = {
            "modules": modules,
            "replicas": replicas,
            "cpus": CPU_COUNT,
            "components": list(components),
        }
        json_file.write_bytes(dumps(document(figures, **facts)) + b"\n")


if __name__ == "__main__":
    main()
