"""One cycle of churn: everything that happens to an operator in its life, and in the end all is as it was before.

Cycles are alike but for their order (and details), which the seed chooses; so the moments after cycles can be compared.
What comes in a cycle has another name each time: what is remembered by name for ever shows.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import shutil
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Final

from addon_operator.documents.jsondoc import JsonObject, JsonValue
from addon_operator.server.pages import ROUTES
from tests.cluster.operator import Operator, config_map, config_map_chart, eventually, noting_hook
from tests.robustness import workload
from tests.robustness.config_churn import ConfigChurn

OBJECTS: Final = 40
CONNECTIONS: Final = 30
SCRAPES: Final = 10

# Metrics, snapshots, failures that are allowed, objects: what a hook does that reacts.
_NOISY: Final = """#!/bin/bash
if [ "$1" = --config ]; then cat <<'CONFIG'
configVersion: v1
kubernetes:
- name: noise
  kind: ConfigMap
  queue: noise
  allowFailure: true
  jqFilter: .data
  includeSnapshotsFrom: [noise]
  namespace: {nameSelector: {matchNames: [NAMESPACE]}}
  labelSelector: {matchLabels: {noisy: "yes"}}
CONFIG
exit; fi
count=$(jq '[.[-1].snapshots.noise[]?] | length' "$BINDING_CONTEXT_PATH")
echo "{\\"name\\": \\"noise\\", \\"set\\": $count, \\"labels\\": {\\"last\\": \\"$((count % 10))\\"}}" >"$METRICS_PATH"
if jq -e '[.. | .fail? // empty] | any' "$BINDING_CONTEXT_PATH" >/dev/null; then echo no >&2; exit 1; fi
"""


def install(made: Operator) -> None:
    """Writes the reference workload, and a module that reacts to many objects."""
    made.files(workload.files(made.namespace, helm=made.cluster.environment()["HELM_BIN_PATH"]))
    made.files({"modules/120-noisy/hooks/noise.sh": _NOISY.replace("NAMESPACE", made.namespace)})
    values = made.root / "modules/values.yaml"
    values.write_text(values.read_text() + "noisyEnabled: true\n")


class Soak:
    """Churns one operator.

    Attributes:
        cycles: how many were made.
        steps: what a cycle consists of, by name.
    """

    def __init__(self, made: Operator, churn: ConfigChurn, seed: int) -> None:
        self._made = made
        self._churn = churn
        self._seed = seed
        self._collection = f"/api/v1/namespaces/{made.namespace}/configmaps"
        self.cycles = 0
        self.steps: dict[str, Callable[[Random], None]] = {
            "objects": self._objects,
            "reviews": self._reviews,
            "sections": self._sections,
            "modules off and on": self._modules,
            "a bad ConfigMap": self._bad_config,
            "a directory comes and goes, an object is lost": self._directory,
            "scrapes": self._scrapes,
            "debug pages": self._debug_pages,
            "commands": self._commands,
            "connections": self._connections,
        }

    def cycle(self) -> list[str]:
        """Makes one cycle; returns its steps. In the end the queues are empty."""
        self.cycles += 1
        random = Random(f"{self._seed} {self.cycles}")
        order = list(self.steps)
        random.shuffle(order)
        for name in order:
            self.steps[name](random)
        self._churn.put(workload.START)
        self._churn.settle()
        return order

    def _send(self, method: str, path: str, body: JsonObject | None = None) -> None:
        status, answer = self._churn.api.request(method, path, body)
        assert status < 300, (method, path, status, answer)

    def _objects(self, random: Random) -> None:
        """Objects that hooks watch come, change and go."""
        names = [f"noise-{self.cycles}-{number}" for number in range(OBJECTS)]
        for name in names:
            labels = {"noisy": "yes", **({"watched": "yes"} if random.random() < 0.2 else {})}
            fail = {"fail": "yes"} if random.random() < 0.05 else {}
            self._send("POST", self._collection, config_map(name, labels=labels, data={"n": "1", **fail}))
        for name in names:
            labels = {"noisy": "yes"}
            self._send("PUT", f"{self._collection}/{name}", config_map(name, labels=labels, data={"n": "2" * 50}))
        for name in names:
            self._send("DELETE", f"{self._collection}/{name}")

    def _reviews(self, _random: Random) -> None:
        """The API server asks the admission webhook."""
        for number in range(10):
            name = f"reviewed-{self.cycles}-{number}"
            self._send("POST", self._collection, config_map(name, labels={"checked": "yes"}))
            self._send("DELETE", f"{self._collection}/{name}")

    def _sections(self, random: Random) -> None:
        """Sections change, one after the other and before the last has settled."""
        for number in range(4):
            key = random.choice(("keeper", "discover", "things", "checked", "helmhooks"))
            self._churn.put({**workload.START, key: f"text: t{number}\nsize: {random.randint(1, 9)}\n"})
            self._churn.get_on(random.randrange(6))

    def _modules(self, random: Random) -> None:
        """Modules are switched off and on."""
        off = random.sample(("things", "keeper", "watch", "helmhooks", "leaving", "noisy"), 3)
        self._churn.put({**workload.START, **{f"{key}Enabled": "false" for key in off}, "laterEnabled": "true"})
        self._churn.settle()
        self._churn.put({**workload.START, "global": "text: first\nscript: 'no'\n"})
        self._churn.get_on(10)
        self._churn.put(workload.START)
        self._churn.settle()

    def _bad_config(self, random: Random) -> None:
        """States that are refused."""
        bad: tuple[Mapping[str, str], ...] = ({"keeper": "size: big"}, {"keeper": "[unclosed"}, {"Bad-Key": ""})
        before = self._made.metric("config_values_errors_total")
        for data in bad:
            self._churn.put({**workload.START, **data})
        eventually(lambda: self._made.metric("config_values_errors_total") > before)
        self._churn.put(workload.START)

    def _directory(self, _random: Random) -> None:
        """A module directory comes, with hooks, loses an object, gets it back, and goes again.

        Objects of releases that stay are answered ever more slowly if somebody takes them in each cycle.
        """
        name = f"coming{self.cycles}"
        hook = noting_hook("coming", "beforeHelm: 1\nafterDeleteHelm: 1")
        self._made.module(f"130-{name}", {**config_map_chart(name, "a: b"), "hooks/h.sh": hook})
        self._churn.put({**workload.START, f"{name}Enabled": "true"})
        eventually(lambda: self._made.modules()[name]["state"] == "ready", what="the module that came")
        self._churn.settle()
        self._send("DELETE", f"{self._collection}/{name}")
        eventually(lambda: self._churn.api.get(f"{self._collection}/{name}"), what="its object")
        shutil.rmtree(self._made.root / f"modules/130-{name}")
        self._churn.put({**workload.START, "global": "text: gone\n"})
        eventually(lambda: name not in self._made.modules(), what="the end of the module that came")
        (self._made.root / "seen").unlink(missing_ok=True)

    def _scrapes(self, _random: Random) -> None:
        for _ in range(SCRAPES):
            for path in ("/metrics", "/healthz", "/readyz", "/status/converge", "/nowhere"):
                assert self._made.http(path)[0], path

    def _debug_pages(self, _random: Random) -> None:
        """Every page in every format."""
        for route in ROUTES:
            for form in route.formats:
                self._page(f"{route.path.replace('{module}', 'discover')}.{form}")
        self._page("/module/nobody/values.json")
        self._page("/module/discover/values.yaml?origin=true")

    def _page(self, path: str) -> None:
        with contextlib.closing(http.client.HTTPConnection("debug")) as connection:
            connection.sock = self._debug_socket()
            connection.request("GET", path)
            connection.getresponse().read()

    def _debug_socket(self) -> socket.socket:
        made = socket.socket(socket.AF_UNIX)
        made.settimeout(30)
        made.connect(self._made.environment["DEBUG_UNIX_SOCKET"])
        return made

    def _commands(self, _random: Random) -> None:
        for command in (("module", "list"), ("module", "values", "discover", "--origin")):
            assert self._made.cli(*command).returncode == 0

    def _connections(self, random: Random) -> None:
        """Connections that say nothing, or half of something, or end in the middle."""
        halves = (
            b"",
            b"GET /metr",
            b"GET /metrics HTTP/1.1\r\nHost: a\r\n",
            b"\x16\x03\x01nonsense",
            b"POST / HTTP/1.1\r\n",
        )
        with contextlib.ExitStack() as stack:
            for _ in range(CONNECTIONS):
                for made in self._connected():
                    stack.callback(made.close)
                    made.sendall(random.choice(halves))
            assert self._made.http("/healthz")[0] == 200
        for made in self._connected():
            # A reset instead of an orderly end.
            made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            made.close()
        for port in self._webhook_ports():
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            with socket.create_connection(("127.0.0.1", port)) as plain, context.wrap_socket(plain) as wrapped:
                wrapped.sendall(b"POST /hooks/nothing HTTP/1.1\r\nContent-Length: 10\r\n\r\n")

    def _connected(self) -> Iterator[socket.socket]:
        yield socket.create_connection(self._made.endpoint)
        yield self._debug_socket()
        for port in self._webhook_ports():
            yield socket.create_connection(("127.0.0.1", port))

    def _webhook_ports(self) -> set[int]:
        listed = self._churn.api.get("/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations")
        text = json.dumps([item for item in _items(listed) if self._made.namespace in json.dumps(item)])
        return {int(part.split("/")[0]) for part in text.split("https://127.0.0.1:")[1:]}


def _items(listed: JsonObject | None) -> list[JsonValue]:
    items = (listed or {}).get("items")
    return items if isinstance(items, list) else []
