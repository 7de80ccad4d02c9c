"""Which CRDs of modules are applied, in whose version, and when again: an API server in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from addon_operator.errors import InputError, KubeError
from addon_operator.helm.chart import ChartReader
from addon_operator.kube.client import KubeClient
from addon_operator.kube.refs import CUSTOM_RESOURCE_DEFINITIONS
from addon_operator.modules.crd_rollout import CrdRollout
from addon_operator.modules.crds import CrdInstaller
from addon_operator.modules.loader import ModuleLoader
from addon_operator.modules.plan import Verdict
from addon_operator.modules.registry import ModuleRegistry
from tests.fakes import clock
from tests.fakes.api_server import FakeApiServer

T = TypeVar("T")


def crd(kind: str, description: str = "") -> str:
    plural = f"{kind.lower()}s"
    return (
        "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n"
        f"metadata: {{name: {plural}.x.io}}\nspec:\n  group: x.io\n  scope: Cluster\n"
        f"  names: {{plural: {plural}, kind: {kind}}}\n  versions:\n"
        f"  - {{name: v1, served: true, storage: true, schema: {{openAPIV3Schema: {{type: object, "
        f"description: '{description}'}}}}}}\n"
    )


class Site:
    """Modules `a` and `b`, both enabled, and a cluster without CRDs of theirs."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.api = FakeApiServer()
        self.registry = ModuleRegistry()
        self.kinds: list[str] = []
        self.write("a", crd("Thing"))
        self.write("b", crd("Widget"))
        (root / "values.yaml").write_text("aEnabled: true\nbEnabled: true\n")
        loader = ModuleLoader(modules_dirs=[root], global_hooks_dir=root / "none", default_order=1, strict_values=False)
        self.registry.replace_modules(loader.scan().modules)
        self.enable("a", "b")
        installer = CrdInstaller(
            KubeClient(self.api), charts=ChartReader(), labels={}, filter_prefixes=(), on_installed=self._learn
        )
        self.rollout = CrdRollout(self.registry, installer)

    async def _learn(self, kinds: object) -> None:
        assert isinstance(kinds, tuple)
        self.kinds += kinds

    def enable(self, *names: str) -> None:
        verdicts = {module.name: Verdict((), None, module.name in names) for module in self.registry.modules}
        self.registry.replace_verdicts(verdicts, config_map="")

    def write(self, module: str, text: str) -> None:
        (self.root / module / "crds").mkdir(parents=True, exist_ok=True)
        (self.root / module / "crds/crd.yaml").write_text(text)

    def names(self) -> list[str]:
        found = (CUSTOM_RESOURCE_DEFINITIONS.group, CUSTOM_RESOURCE_DEFINITIONS.plural)
        return [key[1] for kind, key, _ in self.api.objects.store.everything() if kind == found]


def play(root: Path, steps: Callable[[Site], Awaitable[T]]) -> T:
    async def main() -> T:
        return await steps(Site(root))

    return clock.run(main())


def test_what_was_applied_is_not_pending_until_its_file_changes(tmp_path: Path) -> None:
    async def steps(site: Site) -> list[tuple[str, ...]]:
        seen = [site.rollout.pending(["a", "b"])]
        await site.rollout.ensure(["a"])
        seen.append(site.rollout.pending(["a", "b"]))
        site.write("a", crd("Thing", "changed"))
        return [*seen, site.rollout.pending(["a", "b"])]

    assert play(tmp_path, steps) == [("a", "b"), ("b",), ("a", "b")]


def test_new_kinds_are_reported_once(tmp_path: Path) -> None:
    async def steps(site: Site) -> tuple[list[str], list[str]]:
        for _ in range(2):
            await site.rollout.ensure(["a", "b"])
        return sorted(site.kinds), sorted(site.names())

    assert play(tmp_path, steps) == (["x.io/v1/Thing", "x.io/v1/Widget"], ["things.x.io", "widgets.x.io"])


def test_modules_that_are_disabled_have_nothing_applied(tmp_path: Path) -> None:
    async def steps(site: Site) -> list[str]:
        site.enable("b")
        await site.rollout.ensure(["a", "b"])
        return site.names()

    assert play(tmp_path, steps) == ["widgets.x.io"]


def test_a_broken_file_is_the_error_of_its_module_only(tmp_path: Path) -> None:
    async def steps(site: Site) -> tuple[list[str], bool, str | None]:
        site.write("a", "kind: ConfigMap\n")
        await site.rollout.ensure(["a", "b"])
        with pytest.raises(InputError):
            await site.rollout.apply("a")
        return site.names(), "ConfigMap" in str(site.registry.state("a").error), site.registry.state("b").error

    assert play(tmp_path, steps) == (["widgets.x.io"], True, None)


def test_of_one_name_the_module_that_runs_first_decides(tmp_path: Path) -> None:
    async def steps(site: Site) -> bool:
        site.write("b", crd("Thing", "another"))
        await site.rollout.ensure(["a", "b"])
        return "which comes first, has another one" in str(site.registry.state("b").error)

    assert play(tmp_path, steps)


def test_an_outage_is_the_error_of_all(tmp_path: Path) -> None:
    async def steps(site: Site) -> tuple[str, ...]:
        site.api.go_away()
        with pytest.raises(KubeError):
            await site.rollout.ensure(["a", "b"])
        site.api.come_back()
        await asyncio.sleep(60)
        await site.rollout.ensure(["a", "b"])
        return site.rollout.pending(["a", "b"])

    assert play(tmp_path, steps) == ()
