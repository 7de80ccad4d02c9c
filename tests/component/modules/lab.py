"""A module `lab`, or the global hooks, with a hook that does what a test wants; what became of the values then."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path

from addon_operator.documents import jsondoc
from addon_operator.documents.jsondoc import JsonObject, JsonValue
from addon_operator.server.inspector import ModuleView
from tests.fakes.bench import Bench, play, write_template
from tests.fakes.helm import ALL_VALUES
from tests.fakes.hook_transport import HookRun

Patch = JsonValue | bytes


class Lab:
    """The hook, and an operator around it; each edit of the ConfigMap makes it run once.

    Attributes:
        bench: the operator.
        seen: all values, and what of them is from the ConfigMap, as its runs found them.
    """

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.seen: list[tuple[JsonObject, JsonObject]] = []
        self.ticks = 0
        self._patches: dict[str, bytes] = {}

    async def hook(self, run: HookRun) -> int:
        """Notes the values that it is given, and hands over the patches that are laid ready."""
        self.seen.append((run.values(), run.config_values()))
        for variable, patch in self._patches.items():
            run.write(variable, patch)
        return 0

    def lay(self, values: Patch = b"", config: Patch = b"") -> None:
        """Lays patches ready, in the place of those that are: documents, or files as they are."""
        patches = {"VALUES_JSON_PATCH_PATH": values, "CONFIG_VALUES_JSON_PATCH_PATH": config}
        self._patches = {
            variable: patch if isinstance(patch, bytes) else jsondoc.dumps(patch) for variable, patch in patches.items()
        }

    def tick(self) -> None:
        """Somebody edits the module's section."""
        self.ticks += 1
        self.bench.edit(lab=f"tick: {self.ticks}\n")

    async def run(self, values: Patch = b"", config: Patch = b"") -> None:
        """Runs the module once with these patches."""
        runs = len(self.seen)
        self.lay(values, config)
        self.tick()
        await self.bench.rest()
        assert len(self.seen) == runs + 1
        self.lay()

    async def refused(self, values: Patch, config: Patch = b"") -> str:
        """Runs the module with patches that must fail; returns why, and lets it come right again."""
        before, kept = self.section, self.patches
        assert isinstance(before, dict)
        self.lay(values, config)
        self.tick()
        await self.bench.tick()
        error, expected = self.view.last_error, (kept, {**before, "tick": self.ticks})
        assert (self.patches, self.section) == expected
        self.lay()
        await self.bench.rest()
        assert (self.patches, self.section) == expected
        assert self.view.last_error is None
        return str(error)

    @property
    def view(self) -> ModuleView:
        """The module, as it is listed."""
        (view,) = self.bench.operator.inspector.modules()
        return view

    @property
    def section(self) -> JsonValue:
        """The effective values of the module."""
        return self.bench.operator.inspector.module_values("lab", with_global=False)["lab"]

    @property
    def patches(self) -> list[JsonObject]:
        """The operations that are kept."""
        return list(self.bench.operator.inspector.module_patches("lab"))


def play_lab(
    root: Path,
    steps: Callable[[Lab], Coroutine[object, object, None]],
    *,
    hooks: Mapping[str, str],
    files: Mapping[str, str],
    charts: tuple[str, ...] = ("lab",),
    starts_with: tuple[Patch, Patch] = (b"", b""),
    prepare: Callable[[Bench], None] = lambda _bench: None,
) -> None:
    """Starts an operator with a lab, and does some steps.

    Args:
        root: an empty directory.
        steps: what happens then.
        hooks: name -> configuration; `lab.sh` is that of the lab.
        files: what there is besides, below the root.
        charts: modules whose chart writes down all values that helm gave it.
        starts_with: what its hook hands over from the beginning.
        prepare: changes what the operator finds at its start.
    """
    labs: list[Lab] = []

    def settle(bench: Bench) -> None:
        lab = Lab(bench)
        labs.append(lab)
        lab.lay(*starts_with)
        bench.hooks.scripts.update({name: lab.hook for name in hooks if name.endswith("/lab.sh")})
        for name, text in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        for module in charts:
            write_template(root, module, values=ALL_VALUES)
        prepare(bench)

    async def with_lab(bench: Bench) -> None:
        await steps(labs[0])

    play(root, hooks, with_lab, prepare=settle)


def release_records(bench: Bench) -> list[JsonObject]:
    """The Secrets in which helm keeps releases, of all revisions."""
    return bench.api.objects.store.all(("", "secrets"))


def charted(bench: Bench, module: str = "lab") -> JsonObject:
    """What a chart saw as `.Values`."""
    data = bench.deployed(module)
    assert data is not None
    values: JsonObject = json.loads(str(data["values"]))
    return values
