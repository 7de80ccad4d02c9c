"""Hooks whose files hold their configuration, and whose runs do what a test says, or nothing."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import defaultdict

from addon_operator.documents import jsondoc, yamldoc
from addon_operator.documents.jsondoc import JsonObject, JsonValue
from addon_operator.hooks.call import ENABLED_SCRIPT
from addon_operator.kube.refs import metadata_of
from tests.fakes.hook_transport import HookFunction, HookRun, print_file


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """What one run of a hook does; it takes `lasts_s`.

    Attributes:
        values: operations of its values patch.
        config: operations of its config patch.
        lasts_s: how long it takes.
        fails: it ends with an error.
        breaks: the operator itself has a bug.
    """

    values: tuple[JsonObject, ...] = ()
    config: tuple[JsonObject, ...] = ()
    lasts_s: float = 0.0
    fails: bool = False
    breaks: bool = False


class ScriptedHooks:
    """What `FakeHookTransport` calls; hooks are named `global/name` or `module/name`.

    Attributes:
        runs: hook and the contexts that it was shown, as `binding`, `binding: type` or `binding: event object`.
        contexts: hook -> the contexts of each of its runs, whole.
        history: hook and contexts as `HOOK CONTEXTS`; a bench has helm's operations in it, too.
        answers: hook -> what its next runs do.
        scripts: hook, or `module/enabled` -> what all of its runs do instead.
        failing: hooks that fail in each run.
        kinds: name of a `kubernetes` binding -> its kind, of all hooks that were asked for their configuration.
    """

    def __init__(self) -> None:
        self.runs: list[tuple[str, str]] = []
        self.contexts = defaultdict[str, list[list[JsonObject]]](list)
        self.history: list[str] = []
        self.answers: dict[str, list[Answer]] = {}
        self.scripts: dict[str, HookFunction] = {}
        self.failing: set[str] = set()
        self.kinds: dict[str, str] = {}

    async def configure(self, run: HookRun) -> int:
        """Prints the file."""
        try:
            config = yamldoc.load(run.path.read_text(), str(run.path)).value
        except yamldoc.YamlError:
            config = {}
        bindings = config.get("kubernetes") if isinstance(config, dict) else None
        for binding in bindings if isinstance(bindings, list) else ():
            assert isinstance(binding, dict)
            self.kinds[str(binding["name"])] = str(binding["kind"])
        return await print_file(run)

    async def run(self, run: HookRun) -> int:
        """Does what the script or the next answer says; an `enabled` script without one says what is in its file."""
        name = f"{run.hook.module or 'global'}/{run.hook.name.removeprefix('hooks/')}"
        script = self.scripts.get(name)
        if run.hook.name == ENABLED_SCRIPT:
            if script is not None:
                return await script(run)
            run.write("MODULE_ENABLED_RESULT", run.path.read_bytes())
            return 0
        contexts = run.contexts()
        title = ", ".join(map(_title, contexts))
        self.runs.append((name, title))
        self.contexts[name].append(contexts)
        self.history.append(f"{name} {title}")
        if script is not None:
            return await script(run)
        answer = self.answers.get(name, []).pop(0) if self.answers.get(name) else Answer()
        await asyncio.sleep(answer.lasts_s)
        if answer.breaks:
            raise RuntimeError("a bug")
        if answer.fails or name in self.failing:
            return 1
        patches = {"VALUES_JSON_PATCH_PATH": answer.values, "CONFIG_VALUES_JSON_PATCH_PATH": answer.config}
        for variable, operations in patches.items():
            if operations:
                listed: list[JsonValue] = [*operations]
                run.write(variable, jsondoc.dumps(listed))
        if any("review" in context for context in contexts):
            run.write("ADMISSION_RESPONSE_PATH", b'{"allowed": true}')
        return 0


def _title(shown: JsonObject) -> str:
    document, event = shown.get("object"), shown.get("watchEvent")
    name = f" {metadata_of(document)['name']}" if isinstance(document, dict) else ""
    return f"{shown['binding']}" + (f": {event}{name}" if event else f": {shown['type']}" if "type" in shown else "")
