"""The samples as the operator reads them: schemas, static values, what hooks add, what charts get."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from addon_operator.documents.jsondoc import dumps
from addon_operator.errors import ValuesRejected
from addon_operator.modules.loader import ModuleLoader, Scan
from addon_operator.values.patches import parse
from addon_operator.values.store import ValuesStore
from tests.component.samples.conftest import GLOBAL_HOOKS, MODULES
from tests.fakes.modules import write_modules

DISCOVERY = {"kubernetesVersion": "v1.36.3", "nodeCount": 1, "defaultDomain": "example.com"}
# What hooks find out, by section; the other modules need nothing.
COMPUTED = {
    "global": [{"op": "add", "path": "/global/discovery", "value": DISCOVERY}],
    "ingressGateway": [{"op": "add", "path": "/ingressGateway/internal/replicas", "value": 2}],
}
CA = [{"op": "add", "path": "/internalCa/ca", "value": {"cert": "c", "key": "k"}}]


def scan(modules: Path, global_hooks: Path) -> Scan:
    loader = ModuleLoader(modules_dirs=[modules], global_hooks_dir=global_hooks, default_order=1, strict_values=True)
    return loader.scan()


def store_of(found: Scan) -> ValuesStore:
    store = ValuesStore(found.global_section)
    store.replace_modules({module.key: module.section for module in found.modules})
    assert store.check_static(["global", *(module.key for module in found.modules)]) == ()
    return store


def propose(store: ValuesStore, key: str, values: object = (), config: object = ()) -> None:
    store.commit(
        store.propose_hook(
            key,
            values_ops=parse(dumps(values), "test"),  # type: ignore[arg-type]
            config_ops=parse(dumps(config), "test"),  # type: ignore[arg-type]
            hook="hooks/test.sh",
            at=datetime.now(UTC),
        )
    )


def test_samples_are_read_without_a_complaint() -> None:
    found = scan(MODULES, GLOBAL_HOOKS)
    assert found.warnings == ()
    assert [module.name for module in found.modules] == [
        "local-storage",
        "team-spaces",
        "internal-ca",
        "service-catalog",
        "ingress-gateway",
        "dashboard",
        "registry",
        "traffic-generator",
        "inventory",
    ]
    assert [module.name for module in found.modules if not module.has_release] == ["inventory"]
    off = [module.name for module in found.modules if not module.flags or not module.flags[-1].value]
    assert off == ["local-storage", "traffic-generator"]


@pytest.mark.parametrize(
    "key", ["localStorage", "teamSpaces", "internalCa", "serviceCatalog", "ingressGateway", "dashboard", "registry"]
)
def test_values_are_complete_once_the_hooks_have_run(key: str) -> None:
    store = store_of(scan(MODULES, GLOBAL_HOOKS))
    with pytest.raises(ValuesRejected, match=r"global\.discovery"):
        store.check_helm(key)
    for owner, operations in COMPUTED.items():
        propose(store, owner, operations)
    propose(store, "internalCa", config=CA)
    store.check_helm(key)


def test_charts_wait_for_what_hooks_compute() -> None:
    store = store_of(scan(MODULES, GLOBAL_HOOKS))
    propose(store, "global", COMPUTED["global"])
    with pytest.raises(ValuesRejected, match=r"internalCa\.ca is required"):
        store.check_helm("internalCa")
    with pytest.raises(ValuesRejected, match=r"ingressGateway\.internal\.replicas is required"):
        store.check_helm("ingressGateway")


def test_a_global_hook_may_switch_local_storage_on() -> None:
    store = store_of(scan(MODULES, GLOBAL_HOOKS))
    propose(store, "global", [{"op": "add", "path": "/localStorageEnabled", "value": True}])
    assert store.enabled_patches == {"localStorage": True}


@pytest.mark.parametrize("equal_order", [True, False], ids=["equal orders", "own orders"])
def test_generated_modules_are_read(tmp_path: Path, equal_order: bool) -> None:
    generated = write_modules(tmp_path / "set", count=12, equal_order=equal_order)
    found = scan(generated.directory, generated.global_hooks)
    assert found.warnings == ()
    assert tuple(module.name for module in found.modules) == generated.names
    assert tuple(module.key for module in found.modules) == generated.keys
    assert len({module.order for module in found.modules}) == (1 if equal_order else 12)
    assert all(module.flags[-1].value for module in found.modules)
    store = store_of(found)
    store.check_helm(generated.keys[0])
