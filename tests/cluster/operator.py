"""Drives a real operator process against a real control plane, as users do: environment, files, ConfigMap, CLI."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from addon_operator.devcluster import DevCluster
from addon_operator.devcluster.errors import DevClusterError
from addon_operator.documents.jsondoc import JsonObject, JsonValue, lookup
from tests.cluster.forks import ForkedProcess
from tests.cluster.objects import Objects

T = TypeVar("T")
WITHIN_S = 60.0
_PORT = 9650


def eventually(check: Callable[[], T], *, within_s: float = WITHIN_S, what: str = "") -> T:
    """Repeats a check until it is true (or at least not false, None, empty); its last error is the failure."""
    deadline = time.monotonic() + within_s
    while True:
        trouble: Exception | None = None
        try:
            if answer := check():
                return answer
        except (AssertionError, DevClusterError, OSError, LookupError, ValueError) as error:
            trouble = error
        if time.monotonic() > deadline:
            raise AssertionError(f"not in {within_s:g} s: {what or check}: {trouble}") from trouble
        time.sleep(0.05)


def write(root: Path, files: Mapping[str, str]) -> None:
    """Writes files; those that begin with #! become executable."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        if text.startswith("#!"):
            path.chmod(0o755)


def config_map_chart(name: str, data: str, *, more: str = "") -> dict[str, str]:
    """A module directory's files: a chart with one ConfigMap `NAME` whose data are these template lines."""
    lines = "\n".join(f"  {line}" for line in data.splitlines())
    template = f"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\ndata:\n{lines}\n{more}"
    return {"Chart.yaml": f"apiVersion: v2\nname: {name}\nversion: 0.0.1\n", "templates/config.yaml": template}


def config_map(
    name: str, *, labels: Mapping[str, str] | None = None, data: Mapping[str, str] | None = None
) -> JsonObject:
    """A ConfigMap for `Operator.create`."""
    metadata: JsonObject = {"name": name, "labels": dict(labels or {})}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": dict(data or {})}


def bindings(**keys: JsonValue) -> str:
    """What `--config` prints for these keys, as `noting_hook` wants it."""
    return "\n".join(f"{key}: {json.dumps(value)}" for key, value in keys.items())


def noting_hook(name: str, config: str, body: str = "", *, version: str = "configVersion: v1") -> str:
    """A bash hook that appends what it was given to `$OUT/seen` (see `Operator.seen`), then does `body`.

    Args:
        name: what it calls itself there.
        config: what `--config` prints behind the version; without single quotes.
        body: bash; `$binding` and `$type` say why it runs.
        version: first line of the configuration; empty for v0.
    """
    return f"""#!/bin/bash
set -e
if [ "$1" = --config ]; then printf '%s\\n' '{version}' '{config}'; exit; fi
files=$(stat -c '%n %a %s' "$BINDING_CONTEXT_PATH" "$VALUES_PATH" "$CONFIG_VALUES_PATH" "$METRICS_PATH" \\
  "$VALUES_JSON_PATCH_PATH" "$CONFIG_VALUES_JSON_PATCH_PATH" "$KUBERNETES_PATCH_PATH" "${{VALUES_PATH%/*}}")
flock "$OUT/lock" jq -cn --arg hook '{name}' --arg files "$files" --slurpfile context "$BINDING_CONTEXT_PATH" \\
  --slurpfile values "$VALUES_PATH" --slurpfile config "$CONFIG_VALUES_PATH" '{{$hook, $files,
  binding: $context[0][0].binding, context: $context[0], values: $values[0], config: $config[0]}}' >>"$OUT/seen"
IFS=$'\\t' read -r binding type < <(jq -r '.[0] | [.binding, .type] | @tsv' "$BINDING_CONTEXT_PATH")
{body}
"""


def hold(name: str) -> str:
    """Bash that notes that it has come here, in `$OUT/at-NAME`, and waits until `$OUT/go-NAME` exists."""
    return f'touch "$OUT/at-{name}"; until [ -e "$OUT/go-{name}" ]; do sleep 0.05; done'


def adding(values: Mapping[str, JsonValue], *, to: str = "VALUES") -> str:
    """Bash that asks for values to be added: JSON pointer -> value, in memory or to `CONFIG_VALUES`."""
    operations = [{"op": "add", "path": path, "value": value} for path, value in values.items()]
    return f"echo '{json.dumps(operations)}' >\"${to}_JSON_PATCH_PATH\""


def _in_short(context: JsonObject) -> str:
    items = context.get("objects", [context] if "object" in context else [])
    assert isinstance(items, list)
    words = [context["binding"], context.get("watchEvent") or context.get("type"), *map(object_name, items)]
    return " ".join(str(word) for word in words if word)


def object_name(item: JsonValue) -> str:
    """The name of the object in an item of a snapshot, or in an event; of an item without one its filter result."""
    assert isinstance(item, dict)
    return str(lookup(item, "/object/metadata/name")) if "object" in item else json.dumps(item.get("filterResult"))


class Operator:
    """An operator over one directory of modules and global hooks, in a namespace of its own.

    Attributes:
        root: holds `modules/` and `global-hooks/`.
        objects: those of its namespace.
        helm_calls: file with one line for each helm process that was started.
        endpoint: where it listens. The address is its own: a free port of 127.0.0.1 may be that of somebody's
            connection by the time the operator listens.
    """

    def __init__(self, cluster: DevCluster, root: Path, *, environment: Mapping[str, str] | None = None) -> None:
        self.cluster = cluster
        self.root = root
        self.namespace = (environment or {}).get("ADDON_OPERATOR_NAMESPACE") or cluster.namespace("op")
        self.objects = Objects(cluster, self.namespace)
        self.log = root / "operator.log"
        self.helm_calls = root / "helm-calls"
        self.endpoint = (
            f"127.{secrets.randbelow(254) + 1}.{secrets.randbelow(256)}.{secrets.randbelow(254) + 1}",
            _PORT,
        )
        self.process: ForkedProcess | subprocess.Popen[bytes] | None = None
        (root / "modules").mkdir(exist_ok=True)
        base = cluster.environment()
        self._wrap_helm(base.get("HELM_BIN_PATH", "helm"))
        self.environment = {
            **os.environ,
            **base,
            "ADDON_OPERATOR_NAMESPACE": self.namespace,
            "MODULES_DIR": str(root / "modules"),
            "GLOBAL_HOOKS_DIR": str(root / "global-hooks"),
            "ADDON_OPERATOR_TMP_DIR": str(root / "tmp"),
            "ADDON_OPERATOR_LISTEN_ADDRESS": self.endpoint[0],
            "ADDON_OPERATOR_LISTEN_PORT": str(self.endpoint[1]),
            "DEBUG_UNIX_SOCKET": str(root / "s"),
            "WEBHOOK_HOST": "127.0.0.1",
            "VALIDATING_WEBHOOK_LISTEN_PORT": "0",
            "CONVERSION_WEBHOOK_LISTEN_PORT": "0",
            "VALIDATING_WEBHOOK_CONFIGURATION_NAME": self.namespace,
            "MUTATING_WEBHOOK_CONFIGURATION_NAME": self.namespace,
            "HELM_BIN_PATH": str(root / "helm"),
            "TASK_RETRY_FIRST": "300ms",
            "TASK_RETRY_MOST": "1s",
            "OUT": str(root),
            **(environment or {}),
        }

    def _wrap_helm(self, real: str) -> None:
        script = f'#!/bin/sh\necho "$@" >>{self.helm_calls}\n[ -z "$SLOW_HELM" ] || sleep 0\nexec {real} "$@"\n'
        write(self.root, {"helm": script})
        self.helm_calls.touch()

    def files(self, files: Mapping[str, str]) -> None:
        """Writes files below the root."""
        write(self.root, files)

    def module(self, directory: str, files: Mapping[str, str]) -> None:
        """Writes a module directory."""
        write(self.root / "modules" / directory, files)

    def start(self, *arguments: str) -> None:
        """Starts the process; its log grows in `self.log`."""
        self.process = ForkedProcess(
            ["start", *arguments], environment=self.environment, directory=self.root, log=self.log
        )

    def start_ready(self) -> None:
        """Starts the process and waits for the end of the first converge."""
        self.start()
        self.wait_ready()

    def wait_ready(self) -> None:
        """Waits until /readyz says yes; fails at once if the process ends."""

        def ready() -> bool:
            assert self.process is not None
            if self.process.poll() is not None:
                raise RuntimeError(f"the operator ended with {self.process.returncode}:\n{self.text()}")
            return self.http("/readyz")[0] == 200

        eventually(ready, what="readyz")

    def wait_idle(self) -> None:
        """Waits until no queue has a task."""

        def idle() -> bool:
            document = self.ask("/queue/list.json")
            assert isinstance(document, dict)
            return not document["active"]

        eventually(idle, what="idle queues")

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Ends the process with a signal and answers its exit status."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(timeout=WITHIN_S)

    def http(self, path: str) -> tuple[int, str]:
        """Asks the HTTP server; 0 and an empty text if it does not answer."""
        try:
            with urllib.request.urlopen("http://{}:{}".format(*self.endpoint) + path, timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def ask(self, path: str) -> JsonValue:
        """Asks the debug socket for a JSON page, as the debug commands do, but without their process."""
        with contextlib.closing(http.client.HTTPConnection("debug")) as connection:
            connection.sock = socket.socket(socket.AF_UNIX)
            connection.sock.settimeout(30)
            connection.sock.connect(self.environment["DEBUG_UNIX_SOCKET"])
            connection.request("GET", path)
            value: JsonValue = json.loads(connection.getresponse().read())
            return value

    def queues(self) -> dict[str, list[str]]:
        """The task texts of all queues that have any, by name."""
        document = self.ask("/queue/list.json")
        assert isinstance(document, dict)
        active = document["active"]
        assert isinstance(active, list)
        return {
            str(queue["name"]): [str(task["description"]) for task in queue["tasks"] if isinstance(task, dict)]
            for queue in active
            if isinstance(queue, dict) and isinstance(queue["tasks"], list)
        }

    def queue(self) -> str:
        """The task texts of the main queue, one a line, behind its status."""
        document = self.ask("/queue/main.json")
        assert isinstance(document, dict)
        tasks = document["tasks"]
        assert isinstance(tasks, list)
        texts = [str(task["description"]) for task in tasks if isinstance(task, dict)]
        return "\n".join([str(document["status"]), *texts])

    def processes(self) -> dict[int, str]:
        """The processes that this operator has started, itself included, and that still run: pid -> command."""
        found = {}
        if self.process is not None and self.process.poll() is None:
            found[self.process.pid] = "addon-operator start"
        for directory in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if f"OUT={self.root}".encode() in (directory / "environ").read_bytes().split(b"\0"):
                    found[int(directory.name)] = (directory / "cmdline").read_text().replace("\0", " ")
        return found

    def cli(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs a debug command."""
        argv = [sys.executable, "-m", "addon_operator", *arguments]
        return subprocess.run(argv, env=self.environment, capture_output=True, text=True, check=False, timeout=30)

    def debug(self, *arguments: str) -> JsonValue:
        """Runs a debug command that prints JSON."""
        done = self.cli(*arguments)
        assert done.returncode == 0, done.stderr
        value: JsonValue = json.loads(done.stdout)
        return value

    def modules(self) -> dict[str, JsonObject]:
        """The module list by name."""
        document = self.ask("/module/list.json")
        assert isinstance(document, dict)
        listed = document["modules"]
        assert isinstance(listed, list)
        return {str(item["name"]): item for item in listed if isinstance(item, dict)}

    def configure(self, data: Mapping[str, str | None]) -> None:
        """Changes keys of the operator's ConfigMap (None takes one away), creating it if it is missing."""
        if self.objects.get("configmap", "addon-operator") is None:
            self.objects.create(config_map("addon-operator"))
        self.objects.patch("configmap", "addon-operator", {"data": dict(data)})

    def config_data(self) -> dict[str, str]:
        """The data of the operator's ConfigMap."""
        return self.deployed("addon-operator")

    def kubectl(self, *arguments: str) -> str:
        """Runs kubectl in the operator's namespace."""
        return self.cluster.kubectl("-n", self.namespace, *arguments)

    def watching(self, name: str, app: str, **fields: JsonValue) -> JsonObject:
        """A `kubernetes` binding to ConfigMaps in the operator's namespace that have the label `app`."""
        namespace: JsonObject = {"nameSelector": {"matchNames": [self.namespace]}}
        labels: JsonObject = {"matchLabels": {"app": app}}
        return {"name": name, "kind": "ConfigMap", "namespace": namespace, "labelSelector": labels, **fields}

    def create(self, *documents: JsonObject) -> None:
        """Creates objects in the operator's namespace, one after the other."""
        for document in documents:
            self.objects.create(document)

    def replace(self, *documents: JsonObject) -> None:
        """Replaces objects in the operator's namespace, one after the other."""
        for document in documents:
            self.objects.replace(document)

    def deployed(self, name: str) -> dict[str, str]:
        """The data of a ConfigMap that a chart made."""
        document = self.objects.get("configmap", name)
        assert document is not None, f"no ConfigMap {name}"
        data = document.get("data") or {}
        assert isinstance(data, dict)
        return {key: str(value) for key, value in data.items()}

    def delete(self, *names: str) -> None:
        """Deletes ConfigMaps of the operator's namespace."""
        for name in names:
            self.objects.delete("configmap", name)

    def revisions(self, release: str) -> dict[int, str]:
        """Revision -> status of a release, as helm stores it."""
        stored = self.objects.list("secret", labels=f"owner=helm,name={release}")
        return {
            int(str(lookup(item, "/metadata/labels/version"))): str(lookup(item, "/metadata/labels/status"))
            for item in stored
        }

    def events(self) -> set[tuple[str, str]]:
        """Type and reason of the Events in the operator's namespace."""
        return {(str(event["type"]), str(event["reason"])) for event in self.objects.list("event")}

    def helm_processes(self, word: str = "") -> int:
        """How many helm processes were started (whose command has this word)."""
        return sum(word in line for line in self.helm_calls.read_text().splitlines())

    def lines(self, name: str) -> list[str]:
        """Whole lines that hooks wrote to `$OUT/NAME`."""
        path = self.root / name
        return path.read_text().rpartition("\n")[0].splitlines() if path.exists() else []

    def touch(self, *names: str) -> None:
        """Makes files that hooks wait for."""
        for name in names:
            (self.root / name).touch()

    def seen(self) -> list[JsonObject]:
        """What noting hooks were given, one document for each run: hook, binding, context, values, config, files."""
        return [json.loads(line) for line in self.lines("seen")]

    def runs(self) -> list[str]:
        """The runs of noting hooks in order, each as `HOOK BINDING`."""
        return [f"{run['hook']} {run['binding']}" for run in self.seen()]

    def runs_of(self, hook: str) -> list[list[JsonObject]]:
        """The binding contexts that a noting hook was given, run by run."""
        runs = [run["context"] for run in self.seen() if run["hook"] == hook]
        return [[one for one in run if isinstance(one, dict)] for run in runs if isinstance(run, list)]

    def contexts(self, hook: str) -> list[JsonObject]:
        """All binding contexts that a noting hook was given, over all its runs."""
        return [context for run in self.runs_of(hook) for context in run]

    def told(self, hook: str) -> list[str]:
        """What a noting hook was told, in short: `BINDING`, `BINDING TYPE`, with the names of the objects behind it."""
        return [_in_short(context) for context in self.contexts(hook)]

    def metric(self, series: str) -> float:
        """The value of a built-in series, as `module_run_errors_total{module="a"}`; 0 if there is none."""
        lines = [line for line in self.http("/metrics")[1].splitlines() if line.startswith(f"addon_operator_{series} ")]
        return float(lines[0].rsplit(" ", 1)[1]) if lines else 0.0

    def text(self) -> str:
        """The log so far."""
        return self.log.read_text() if self.log.exists() else ""

    def in_log(self, text: str) -> bool:
        """Whether the log holds a text."""
        return text in self.text()


@contextlib.contextmanager
def operator(cluster: DevCluster, root: Path, environment: Mapping[str, str] | None = None) -> Iterator[Operator]:
    """An operator that is surely ended, with all that it started; a failing test shows its log."""
    made = Operator(cluster, root, environment=environment)
    try:
        yield made
    finally:
        if made.process is not None:
            made.process.kill()
            made.process.wait(timeout=WITHIN_S)
        for pid in made.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        made.objects.close()
        sys.stdout.write(made.text())
