"""Gives a running operator one state of the ConfigMap after the other, each before the last has settled."""

from __future__ import annotations

import http
import time
from collections.abc import Iterable, Mapping
from typing import Final

from addon_operator.configmap.document import ConfigDocument, parse
from addon_operator.documents.jsondoc import JsonObject, JsonValue
from addon_operator.values.layers import GLOBAL, section_key
from tests.cluster.objects import administrator
from tests.cluster.operator import Operator, eventually
from tests.robustness.states import State

CONFIG_MAP: Final = "addon-operator"
_LOOK_S: Final = 0.02
_QUIET_LOOKS: Final = 3
_STUCK_S: Final = 120.0


class ConfigChurn:
    """Edits the ConfigMap of one operator, at the pace of its work.

    Attributes:
        api: the connection to the API server.
    """

    def __init__(self, made: Operator, *, known: Iterable[str]) -> None:
        """Prepares it.

        Args:
            made: the operator; it may not run yet.
            known: section keys of its modules.
        """
        self._made = made
        self._known = frozenset(known)
        self.api = administrator(made.cluster)
        self._path = f"/api/v1/namespaces/{made.namespace}/configmaps"
        self._read = 0
        self._steps = 0

    def close(self) -> None:
        """Ends the connection to the API server."""
        self.api.close()

    def start(self) -> None:
        """Starts the operator; returns as soon as it answers, in the midst of its first converge."""
        self._made.start()
        eventually(lambda: isinstance(self._made.ask("/queue/list.json"), dict), what="the debug socket")

    def put(self, data: Mapping[str, str], *, anew: bool = False) -> None:
        """Makes this the data of the ConfigMap, whatever was there; `anew` deletes it before."""
        body: JsonObject = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": CONFIG_MAP}, "data": {**data}}
        if anew:
            self.api.request("DELETE", f"{self._path}/{CONFIG_MAP}")
        status, answer = self.api.request("PUT", f"{self._path}/{CONFIG_MAP}", body)
        if status == http.HTTPStatus.NOT_FOUND:
            status, answer = self.api.request("POST", self._path, body)
        assert status in {http.HTTPStatus.OK, http.HTTPStatus.CREATED}, answer

    def follow(self, states: Iterable[State]) -> None:
        """Applies states one after the other; the next one as soon as the operator has got on as far as it says."""
        for state in states:
            self.put(state.data, anew=state.anew)
            self.get_on(state.progress)

    def get_on(self, steps: int) -> None:
        """Waits until the operator has taken so many steps, or has none to take."""
        goal, quiet, deadline = self.steps() + steps, 0, time.monotonic() + _STUCK_S
        while self.steps() < goal and quiet < _QUIET_LOOKS:
            assert time.monotonic() < deadline, f"no progress: {self._made.queue()}"
            time.sleep(_LOOK_S)
            quiet = 0 if self._made.queues() else quiet + 1

    def steps(self) -> int:
        """How many tasks were done and helm processes begun since the start."""
        with self._made.log.open("rb") as log:
            log.seek(self._read)
            new = log.read()
        whole = new[: new.rfind(b"\n") + 1]
        self._read += len(whole)
        self._steps += whole.count(b"task done")
        return self._steps + self._made.helm_processes()

    def settle(self) -> None:
        """Waits until what the ConfigMap says is in force, and nothing is left to do about it."""
        self._made.wait_ready()
        eventually(self._settled, within_s=_STUCK_S, what="the ConfigMap in force and idle queues")

    def _settled(self) -> bool:
        for _ in range(_QUIET_LOOKS):
            assert not self._made.queues(), self._made.queue()
            assert self._in_force()
            time.sleep(_LOOK_S)
        return True

    def _in_force(self) -> bool:
        said = self.document()
        wanted = {key: said.sections.get(key, {}) for key in self._known}
        assert {key: self._config(key) for key in wanted} == wanted
        for name in self._made.modules():
            flags = _flags(self._made.ask(f"/module/{name}/explain.json"))
            assert flags == said.flags.get(section_key(name)), name
        return True

    def document(self) -> ConfigDocument:
        """What the ConfigMap says at this moment."""
        return parse(self.data(), where="ConfigMap", known=self._known)

    def data(self) -> dict[str, str]:
        """The data of the ConfigMap at this moment."""
        found = self.api.get(f"{self._path}/{CONFIG_MAP}") or {}
        data = found.get("data") or {}
        assert isinstance(data, dict)
        return {key: str(text) for key, text in data.items()}

    def _config(self, key: str) -> JsonValue:
        if key == GLOBAL:
            return self._made.ask("/global/config.json")
        names = {section_key(name): name for name in self._made.modules()}
        page = self._made.ask(f"/module/{names[key]}/config.json")
        assert isinstance(page, dict)
        return page[key]


def _flags(page: JsonValue) -> bool | None:
    """What the ConfigMap says about a module, as the operator explains it."""
    assert isinstance(page, dict)
    flags = page["flags"]
    assert isinstance(flags, list)
    said = [flag["value"] for flag in flags if isinstance(flag, dict) and flag["source"] == "ConfigMap"]
    assert len(said) < 2
    return bool(said[0]) if said else None
