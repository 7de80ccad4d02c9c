"""Measures how fast hooks hear of objects, and what watching costs: `python -m benchmarks.reactions --help`.

The operator is the real one, without modules; its global hooks are bash and do nothing but say when their first line
ran, through a pipe. All times are of one clock, that of the machine. An answer of the API server counts from when it is
read here, a fraction of a millisecond after it was sent; on busy processors more, and a hook may then even be first.
The targets are those for two cores. Nothing is asserted.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import random
import re
import secrets
import shlex
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence, Set
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import click

from addon_operator.devcluster import DevCluster
from addon_operator.devcluster.binaries import require
from addon_operator.devcluster.commands import API_ONLY
from addon_operator.documents.jsondoc import JsonObject, JsonValue, dumps
from addon_operator.kube.client import KubeClient
from addon_operator.kube.transport import HttpTransport
from addon_operator.settings import CPU_COUNT
from benchmarks.operator_process import OperatorFiles, OperatorProcess
from benchmarks.report import Figure, document, table

# Stands once in each object, and in each result of `_FILTER`: a hook can count what it got without a process for that.
_MARK: Final = "|"
_FILTER: Final = "{name: .metadata.name, mark: .data.mark}"

_CLIENTS: Final = 8
_MANY: Final = 20_000
_FEW: Final = 2_000
_HOOKS: Final = 20
_BINDINGS: Final = 200
_TEXT_BYTES: Final = 1_000
_BURST: Final = 1_000
_BURSTS: Final = 5
_STARTS: Final = 3
_GAP_S: Final = 0.05
_QUIET_S: Final = 2.0
_REST_S: Final = 5.0


@dataclasses.dataclass(frozen=True, slots=True)
class Laboratory:
    """What all measurements share.

    Attributes:
        creates: how many objects are made one after another for the latency of events.
        run: keeps namespaces of several benchmark runs in one cluster apart.
    """

    client: KubeClient
    kubeconfig: Path
    helm: Path
    directory: Path
    creates: int
    run: str

    def namespace(self, name: str) -> str:
        """Gives a namespace its name."""
        return f"{name}-{self.run}"


class Run(NamedTuple):
    """One run of a hook: when its first line ran, in seconds of the machine's clock, and the marks it was given."""

    at: float
    marks: int


class HookRuns:
    """What hooks say through a named pipe; they never wait for it, and nobody looks for it again and again."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._rest = b""
        self._runs: asyncio.Queue[Run] = asyncio.Queue()

    @classmethod
    @contextlib.asynccontextmanager
    async def listen(cls, pipe: Path) -> AsyncIterator[HookRuns]:
        """Makes the pipe and listens to it."""
        os.mkfifo(pipe)
        # For writing, too: a hook that opens the pipe must find a reader, and the last one to close it is not its end.
        fd = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
        runs, loop = cls(fd), asyncio.get_running_loop()
        loop.add_reader(fd, runs.read)
        try:
            yield runs
        finally:
            loop.remove_reader(fd)
            os.close(fd)

    def read(self) -> None:
        """Takes in what is there."""
        *lines, self._rest = (self._rest + os.read(self._fd, 65536)).split(b"\n")
        for line in lines:
            at, marks = line.split()
            # Bash writes the clock in the style of its locale.
            self._runs.put_nowait(Run(float(at.replace(b",", b".")), int(marks)))

    async def next(self) -> Run:
        """Waits for a run that was not answered before."""
        return await self._runs.get()

    async def until(self, marks: int) -> tuple[Run, int]:
        """Waits for as many marks over all runs; answers the run that completed them and how many there were."""
        seen = number = 0
        while True:
            run = await self.next()
            seen, number = seen + run.marks, number + 1
            if seen >= marks:
                return run, number


@dataclasses.dataclass(frozen=True, slots=True)
class Stage:
    """A set of hooks for one operator, and what they say."""

    files: OperatorFiles
    runs: HookRuns


@contextlib.asynccontextmanager
async def open_stage(laboratory: Laboratory, name: str, hooks: Sequence[Sequence[JsonObject]]) -> AsyncIterator[Stage]:
    """Writes hooks, each with its `kubernetes` bindings, and opens a namespace for their operator."""
    directory = laboratory.directory / name
    global_hooks, modules, pipe = directory / "global-hooks", directory / "modules", directory / "runs"
    for made in (global_hooks, modules):
        made.mkdir(parents=True)
    for number, bindings in enumerate(hooks):
        _write_hook(global_hooks / f"hook-{number:02}.sh", bindings, pipe)
    namespace = laboratory.namespace(f"operator-{name}")
    await _create(laboratory.client, "/api/v1/namespaces", [{"metadata": {"name": namespace}}])
    files = OperatorFiles(
        laboratory.kubeconfig, namespace, modules, global_hooks, laboratory.helm, directory / "operator"
    )
    async with HookRuns.listen(pipe) as runs:
        yield Stage(files, runs)


def _write_hook(path: Path, bindings: Sequence[JsonObject], pipe: Path) -> None:
    config = json.dumps({"configVersion": "v1", "kubernetes": list(bindings)})
    path.write_text(
        "#!/usr/bin/env bash\n"
        "now=$EPOCHREALTIME\n"
        f"[[ ${{1:-}} != --config ]] || {{ printf '%s' {shlex.quote(config)}; exit; }}\n"
        f"mapfile -d '{_MARK}' parts <\"$BINDING_CONTEXT_PATH\"\n"
        f'echo "$now $((${{#parts[@]}} - 1))" >{shlex.quote(str(pipe))}\n',
        encoding="utf-8",
    )
    path.chmod(0o755)


def _binding(namespace: str, **more: JsonValue) -> JsonObject:
    chosen: JsonObject = {"nameSelector": {"matchNames": [namespace]}}
    return {"name": "configs", "apiVersion": "v1", "kind": "ConfigMap", "namespace": chosen, **more}


def _config_map(name: str, seed: int) -> JsonObject:
    """Makes a ConfigMap of 1 kB that shares no text with another one."""
    text = random.Random(seed).randbytes(_TEXT_BYTES // 2).hex()
    return {"metadata": {"name": name}, "data": {"mark": _MARK, "text": text}}


async def _create(client: KubeClient, path: str, documents: Iterable[JsonObject]) -> float:
    """Creates objects one after another; answers when the last answer came."""
    answered = 0.0
    for body in map(dumps, documents):
        await client.api.request("POST", path, body=body)
        answered = time.time()
    return answered


async def _create_at_once(client: KubeClient, path: str, documents: Iterable[JsonObject]) -> float:
    """Creates objects through several connections as fast as it goes; answers when the last answer came."""
    shared = iter(documents)
    return max(await asyncio.gather(*(_create(client, path, shared) for _ in range(_CLIENTS))))


async def _populate(laboratory: Laboratory, name: str, count: int) -> str:
    """Makes a namespace with ConfigMaps of 1 kB; answers its name."""
    namespace = laboratory.namespace(name)
    await _create(laboratory.client, "/api/v1/namespaces", [{"metadata": {"name": namespace}}])
    begin = time.perf_counter()
    documents = (_config_map(f"config-{number:05}", number) for number in range(count))
    await _create_at_once(laboratory.client, f"/api/v1/namespaces/{namespace}/configmaps", documents)
    click.echo(f"made {count} ConfigMaps in {time.perf_counter() - begin:.1f} s", err=True)
    return namespace


class Delay(NamedTuple):
    """From a create to the first line of the hook: since the answer to it, and since it was sent; milliseconds."""

    answered_ms: float
    sent_ms: float


async def _events(laboratory: Laboratory, _: Set[str]) -> list[Figure]:
    answered_ms, sent_ms = zip(*await _event_delays(laboratory), strict=True)
    percentiles = statistics.quantiles(answered_ms, n=100)
    note = f"{len(answered_ms)} creates one after another, {min(answered_ms):.1f} to {max(answered_ms):.1f} ms"
    note += f"; p50 from the request on {statistics.median(sent_ms):.1f} ms"
    return [
        Figure("event-p50", "answer to create, to first line of hook, p50", percentiles[49], "ms", 12, note),
        Figure("event-p99", "answer to create, to first line of hook, p99", percentiles[98], "ms", 40, note),
    ]


async def _event_delays(laboratory: Laboratory) -> list[Delay]:
    namespace = await _populate(laboratory, "events", 0)
    path, delays = f"/api/v1/namespaces/{namespace}/configmaps", []
    async with _listening(laboratory, "events", namespace) as (operator, runs):
        for number in range(laboratory.creates):
            sent = time.time()
            answered = await _create(laboratory.client, path, [_config_map(f"config-{number:05}", number)])
            run, _ = await operator.outcome(runs.until(1))
            delays.append(Delay((run.at - answered) * 1000, (run.at - sent) * 1000))
            # By then the run is over, and the operator done with it.
            await asyncio.sleep(_GAP_S)
    return delays


class Burst(NamedTuple):
    """One burst: from its last answer to the run that completed it, runs it took, creates in a second."""

    delay_ms: float
    runs: int
    rate: float


async def _bursts(laboratory: Laboratory, _: Set[str]) -> list[Figure]:
    namespace = await _populate(laboratory, "burst", 0)
    path, bursts = f"/api/v1/namespaces/{namespace}/configmaps", []
    async with _listening(laboratory, "burst", namespace) as (operator, runs):
        for number in range(_BURSTS):
            documents = [_config_map(f"config-{number}-{each:04}", each) for each in range(_BURST)]
            begin = time.time()
            answered = await _create_at_once(laboratory.client, path, documents)
            last, count = await operator.outcome(runs.until(_BURST))
            bursts.append(Burst((last.at - answered) * 1000, count, _BURST / (answered - begin)))
            await asyncio.sleep(_QUIET_S)
    return [_burst_figure(bursts)]


def _burst_figure(bursts: Sequence[Burst]) -> Figure:
    delays_ms, runs, rates = zip(*bursts, strict=True)
    note = f"median of {len(bursts)}, {min(delays_ms):.1f} to {max(delays_ms):.1f} ms"
    note += f"; {statistics.median(runs):g} runs of the hook, {statistics.median(rates):.0f} creates a second"
    text = f"last answer of {_BURST} creates at once, to all seen"
    return Figure("burst", text, statistics.median(delays_ms), "ms", 30, note)


@contextlib.asynccontextmanager
async def _listening(
    laboratory: Laboratory, name: str, namespace: str
) -> AsyncIterator[tuple[OperatorProcess, HookRuns]]:
    """Starts an operator whose only hook is told about ConfigMaps, and waits until it is quiet."""
    async with (
        open_stage(laboratory, name, [[_binding(namespace)]]) as stage,
        OperatorProcess.start(stage.files) as operator,
    ):
        await operator.outcome(stage.runs.next())
        await operator.ready()
        await asyncio.sleep(_QUIET_S)
        yield operator, stage.runs


class Start(NamedTuple):
    """One start of an operator: seconds to the hook's Synchronization, MiB at rest and at most."""

    duration_s: float
    rest_mib: float
    most_mib: float


async def _synchronizations(laboratory: Laboratory, wanted: Set[str]) -> list[Figure]:
    namespace, figures = await _populate(laboratory, "many", _MANY), []
    if not wanted.isdisjoint(("filtered-start", "filtered-memory")):
        binding = _binding(namespace, jqFilter=_FILTER, keepFullObjectsInMemory=False)
        starts = await _starts(laboratory, "filtered", binding, marks=_MANY)
        figures += _start_figures("filtered", "filter results", starts, (2.5, 120))
    if not wanted.isdisjoint(("full-start", "full-memory")):
        binding = _binding(namespace, jqFilter=_FILTER)
        starts = await _starts(laboratory, "full", binding, marks=2 * _MANY)
        figures += _start_figures("full", "full objects", starts, (3, 180))
    return figures


async def _starts(laboratory: Laboratory, name: str, binding: JsonObject, *, marks: int) -> list[Start]:
    async with open_stage(laboratory, name, [[binding]]) as stage:
        return [await _start(stage, marks) for _ in range(_STARTS)]


async def _start(stage: Stage, marks: int) -> Start:
    begin = time.time()
    async with OperatorProcess.start(stage.files) as operator:
        run = await operator.outcome(stage.runs.next())
        if run.marks != marks:
            raise click.ClickException(f"the Synchronization holds {run.marks} marks instead of {marks}")
        await operator.ready()
        await asyncio.sleep(_REST_S)
        return Start(run.at - begin, *operator.resident_mib())


def _start_figures(name: str, text: str, starts: Sequence[Start], targets: tuple[float, float]) -> list[Figure]:
    durations_s, rests_mib, peaks_mib = zip(*starts, strict=True)
    time_note = f"median of {len(starts)}, {min(durations_s):.2f} to {max(durations_s):.2f} s"
    memory_note = f"highest of {len(starts)}; {max(peaks_mib):.0f} MiB at its peak"
    median_s, objects = statistics.median(durations_s), f"{_MANY} {text}"
    return [
        Figure(f"{name}-start", f"start to Synchronization, {objects}", median_s, "s", targets[0], time_note),
        Figure(f"{name}-memory", f"resident memory, {objects}", max(rests_mib), "MiB", targets[1], memory_note),
    ]


class Cost(NamedTuple):
    """What an operator at rest takes: watches of ConfigMaps, MiB now and at most, seconds until it was ready."""

    watches: int
    rest_mib: float
    most_mib: float
    ready_s: float


async def _sharing(laboratory: Laboratory, wanted: Set[str]) -> list[Figure]:
    namespace, figures = await _populate(laboratory, "few", _FEW), []
    none = await _cost(laboratory, "none", [])
    one = await _cost(laboratory, "one", [[_silent(namespace, 0)]])
    if not wanted.isdisjoint(("shared-watches", "shared-memory")):
        many = await _cost(laboratory, "same", _many_bindings(namespace, ""))
        note = f"{many.watches} in all, {one.watches} with 1 binding, {none.watches} with none"
        text = f"watches for {_BINDINGS} bindings"
        figures.append(Figure("shared-watches", text, many.watches - none.watches, "watches", 1, note))
        copy_mib = await _listed_mib(laboratory.client, namespace)
        figures.append(_shared_memory("shared-memory", "", many, one, round(copy_mib, 1)))
    if "shared-filters" in wanted:
        many = await _cost(laboratory, "filters", _many_bindings(namespace, '.metadata.name + "{}"'))
        figure = _shared_memory("shared-filters", ", each with a filter of its own", many, one, None)
        note = f"{many.watches - none.watches} watches; {figure.note}"
        figures.append(dataclasses.replace(figure, note=note))
    return figures


def _many_bindings(namespace: str, jq_filter: str) -> list[list[JsonObject]]:
    """Makes bindings for several hooks; `{}` in the filter becomes the number of the binding."""
    more = [{"jqFilter": jq_filter.replace("{}", str(number))} if jq_filter else {} for number in range(_BINDINGS)]
    bindings = [_silent(namespace, number, **fields) for number, fields in enumerate(more)]
    return [bindings[at : at + _BINDINGS // _HOOKS] for at in range(0, _BINDINGS, _BINDINGS // _HOOKS)]


def _silent(namespace: str, number: int, **more: JsonValue) -> JsonObject:
    """Makes a binding that keeps its snapshot and runs nothing at the start."""
    return _binding(namespace, name=f"configs-{number}", executeHookOnSynchronization=False, **more)


async def _cost(laboratory: Laboratory, name: str, hooks: Sequence[Sequence[JsonObject]]) -> Cost:
    begin = time.perf_counter()
    async with (
        open_stage(laboratory, name, hooks) as stage,
        OperatorProcess.start(stage.files) as operator,
    ):
        await operator.ready()
        ready_s = time.perf_counter() - begin
        await asyncio.sleep(_REST_S)
        return Cost(await _watches(laboratory.client), *operator.resident_mib(), ready_s)


def _shared_memory(name: str, text: str, many: Cost, one: Cost, target_mib: float | None) -> Figure:
    note = f"{many.rest_mib:.0f} and {one.rest_mib:.0f} MiB, {many.most_mib:.0f} and {one.most_mib:.0f} at their peaks"
    note += f"; ready after {many.ready_s:.1f} and {one.ready_s:.1f} s"
    text = f"memory of {_BINDINGS} bindings to {_FEW} objects above that of 1{text}"
    return Figure(name, text, many.rest_mib - one.rest_mib, "MiB", target_mib, note)


async def _watches(client: KubeClient) -> int:
    """Asks the API server how many watches of ConfigMaps it serves, to whomever."""
    text = (await client.api.request("GET", "/metrics", accept="text/plain")).decode()
    found = re.findall(r"^apiserver_longrunning_requests\{([^}]*)\} ([0-9.e+]+)$", text, re.MULTILINE)
    wanted = ('resource="configmaps"', 'verb="WATCH"')
    return sum(int(float(count)) for labels, count in found if all(label in labels.split(",") for label in wanted))


async def _listed_mib(client: KubeClient, namespace: str) -> float:
    """Asks how large the ConfigMaps of a namespace are as JSON."""
    return len(await client.api.request("GET", f"/api/v1/namespaces/{namespace}/configmaps")) / 2**20


_Measure: TypeAlias = Callable[[Laboratory, Set[str]], Awaitable[list[Figure]]]
_MEASURES: Final[Mapping[tuple[str, ...], _Measure]] = {
    ("event-p50", "event-p99"): _events,
    ("burst",): _bursts,
    ("filtered-start", "filtered-memory", "full-start", "full-memory"): _synchronizations,
    ("shared-watches", "shared-memory", "shared-filters"): _sharing,
}
NAMES: Final = tuple(name for names in _MEASURES for name in names)


async def _measure(laboratory: Laboratory, wanted: Set[str]) -> list[Figure]:
    """Takes the wanted figures; what they need to happen before happens too."""
    figures = []
    for names, take in _MEASURES.items():
        if chosen := wanted & set(names):
            for figure in await take(laboratory, chosen):
                if figure.name in chosen:
                    click.echo(f"{figure.name}: {figure.value:.2f} {figure.unit} ({figure.note})", err=True)
                    figures.append(figure)
    return figures


async def _run(kubeconfig: Path, directory: Path, creates: int, wanted: Set[str]) -> list[Figure]:
    transport = await HttpTransport.connect(config_file=kubeconfig, context=None, server=None, qps=0, burst=0)
    laboratory = Laboratory(
        KubeClient(transport), kubeconfig, require("helm"), directory, creates, run=secrets.token_hex(3)
    )
    try:
        return await _measure(laboratory, wanted)
    finally:
        await transport.close()


async def _in_own_cluster(directory: Path, creates: int, wanted: Set[str]) -> list[Figure]:
    async with DevCluster.start(directory / "cluster", components=API_ONLY) as cluster:
        return await _run(cluster.kubeconfig, directory, creates, wanted)


@click.command()
@click.option("--creates", default=250, show_default=True, help="Objects made one after another.")
@click.option("--only", multiple=True, type=click.Choice(NAMES), help="Take this figure only; may be repeated.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write the figures to this file too.")
@click.option("--kubeconfig", type=click.Path(exists=True, path_type=Path), help="Use this cluster, not a fresh one.")
def main(*, creates: int, only: tuple[str, ...], json_file: Path | None, kubeconfig: Path | None) -> None:
    """Measure what hooks with kubernetes bindings take, in a cluster of etcd and API server only; prints a table."""
    wanted = frozenset(only or NAMES)
    with tempfile.TemporaryDirectory(prefix="addon-operator-benchmark-") as name:
        directory = Path(name)
        if kubeconfig is None:
            figures = asyncio.run(_in_own_cluster(directory, creates, wanted))
        else:
            figures = asyncio.run(_run(kubeconfig, directory, creates, wanted))
    click.echo(f"{CPU_COUNT} CPUs; the targets are those for 2 CPUs\n")
    click.echo(table(figures))
    if json_file is not None:
        json_file.write_bytes(dumps(document(figures, creates=creates, cpus=CPU_COUNT)) + b"\n")


if __name__ == "__main__":
    main()
