"""What is registered, and which hook answers for what."""

from __future__ import annotations

import base64
import dataclasses

import pytest

from addon_operator.errors import HookConfigError
from addon_operator.hooks.call import HookId
from addon_operator.hooks.config.model import Admission, AdmissionRule, Conversion
from addon_operator.settings import WebhookServer
from addon_operator.webhooks import configurations
from addon_operator.webhooks.endpoint import Address, WebhookSettings
from addon_operator.webhooks.table import Bindings, tabulate

RULE = AdmissionRule(("apps",), ("v1",), ("deployments",), ("CREATE",), "Namespaced")
PLAIN = Admission(
    kind="kubernetesValidating",
    name="a.example.com",
    rules=(RULE,),
    failure_policy="Fail",
    side_effects="None",
    timeout_s=10,
    match_conditions=(),
    label_selector=None,
    namespace_labels=None,
    include_snapshots_from=(),
    group="",
)
SERVER = WebhookServer(port=9680, address="127.0.0.1", service="svc")
SETTINGS = WebhookSettings(
    namespace="ns",
    config_map="cm",
    validating_name="addon-operator",
    mutating_name="addon-operator",
    admission=SERVER,
    conversion=SERVER,
)
ONE, TWO = HookId(None, "one.sh"), HookId("alpha", "hooks/two.sh")


def address(host: str | None = None, *, service_port: int = 0, authority: bytes = b"CA") -> Address:
    settings = dataclasses.replace(SETTINGS, host=host)
    server = dataclasses.replace(SERVER, service_port=service_port)
    return settings.address(server, port=9680, authority=authority)


def test_a_plain_binding() -> None:
    assert configurations.webhook(PLAIN, address()) == {
        "name": "a.example.com",
        "clientConfig": {
            "service": {"namespace": "ns", "name": "svc", "path": "/hooks/a.example.com", "port": 9680},
            "caBundle": base64.b64encode(b"CA").decode(),
        },
        "rules": [
            {
                "apiGroups": ["apps"],
                "apiVersions": ["v1"],
                "resources": ["deployments"],
                "operations": ["CREATE"],
                "scope": "Namespaced",
            }
        ],
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "timeoutSeconds": 10,
        "admissionReviewVersions": ["v1"],
    }


def test_a_binding_with_everything() -> None:
    binding = dataclasses.replace(
        PLAIN,
        kind="kubernetesMutating",
        failure_policy="Ignore",
        side_effects="NoneOnDryRun",
        timeout_s=3,
        match_conditions=(("name", "true"),),
        label_selector={"matchLabels": {"a": "1"}},
        namespace_labels={"matchLabels": {"b": "2"}},
    )
    entry = configurations.webhook(binding, address("127.0.0.1", authority=b""))
    assert entry["clientConfig"] == {"url": "https://127.0.0.1:9680/hooks/a.example.com/mutate"}
    assert {key: entry[key] for key in entry if key not in {"name", "rules", "clientConfig"}} == {
        "failurePolicy": "Ignore",
        "sideEffects": "NoneOnDryRun",
        "timeoutSeconds": 3,
        "admissionReviewVersions": ["v1"],
        "matchConditions": [{"name": "name", "expression": "true"}],
        "objectSelector": {"matchLabels": {"a": "1"}},
        "namespaceSelector": {"matchLabels": {"b": "2"}},
    }


def test_the_port_of_the_service_may_be_another() -> None:
    assert address(service_port=443).client_config("/x") == {
        "service": {"namespace": "ns", "name": "svc", "path": "/x", "port": 443}
    }


def test_an_ipv6_host_is_bracketed() -> None:
    assert address("::1").client_config("/x") == {"url": "https://[::1]:9680/x"}


def test_the_conversion_of_a_definition() -> None:
    assert configurations.conversion("things.x.io", address("h", authority=b"")) == {
        "strategy": "Webhook",
        "webhook": {"clientConfig": {"url": "https://h:9680/things.x.io"}, "conversionReviewVersions": ["v1"]},
    }


def test_identities_fit_into_labels_and_differ() -> None:
    long = [dataclasses.replace(SETTINGS, namespace="n" * 63, config_map=f"cm{number}").identity for number in (1, 2)]
    assert SETTINGS.identity == "ns.cm"
    assert len(set(long)) == 2
    assert all(len(text) <= 63 for text in long)


# --- who answers ---


def conversion(*steps: tuple[str, str], crd: str = "things.x.io", name: str = "c") -> Conversion:
    return Conversion(name, crd, steps, (), "")


def test_entries_are_in_the_order_of_hooks() -> None:
    later = dataclasses.replace(PLAIN, name="b.example.com")
    table = tabulate({TWO: Bindings((PLAIN,), ()), ONE: Bindings((later,), ())})
    assert [(one.hook, one.binding) for one in table.admitters["kubernetesValidating"]] == [(ONE, later), (TWO, PLAIN)]


def test_one_name_may_be_validating_and_mutating() -> None:
    mutating = dataclasses.replace(PLAIN, kind="kubernetesMutating")
    table = tabulate({ONE: Bindings((PLAIN,), ()), TWO: Bindings((mutating,), ())})
    assert set(table.admitters) == {"kubernetesValidating", "kubernetesMutating"}
    assert configurations.admission_path(PLAIN) != configurations.admission_path(mutating)


def test_hooks_share_the_conversions_of_a_definition() -> None:
    table = tabulate(
        {
            ONE: Bindings((), (conversion(("v1", "v2")),)),
            TWO: Bindings((), (conversion(("x.io/v2", "x.io/v3")),)),
        }
    )
    steps = table.conversions["things.x.io"]
    assert {pair: (step.hook, step.from_version) for pair, step in steps.items()} == {
        ("v1", "v2"): (ONE, "v1"),
        ("v2", "v3"): (TWO, "x.io/v2"),
    }


@pytest.mark.parametrize(
    ("served", "words"),
    [
        pytest.param(
            {ONE: Bindings((PLAIN,), ()), TWO: Bindings((PLAIN,), ())},
            ["a.example.com is taken by global hook one.sh", "hook hooks/two.sh of module alpha"],
            id="one name, two hooks",
        ),
        pytest.param(
            {ONE: Bindings((PLAIN, PLAIN), ())}, ["a.example.com is taken by the hook itself"], id="one name, one hook"
        ),
        pytest.param(
            {
                ONE: Bindings((), (conversion(("v1", "v2"), name="first"),)),
                TWO: Bindings((), (conversion(("x.io/v1", "v2")),)),
            },
            ["hook hooks/two.sh of module alpha, binding c: v1 to v2 of things.x.io", "global hook one.sh", "first"],
            id="one step, two hooks",
        ),
        pytest.param(
            {ONE: Bindings((), (conversion(("v1", "v2"), ("v1", "v2")),))},
            ["conversions[1]: v1 to v2 is there twice"],
            id="one step twice",
        ),
        pytest.param(
            {ONE: Bindings((), (conversion(("v1", "other.io/v2")),))},
            ["conversions[0].toVersion: other.io/v2 is not of group x.io"],
            id="another group",
        ),
    ],
)
def test_conflicts_name_both_hooks(served: dict[HookId, Bindings], words: list[str]) -> None:
    with pytest.raises(HookConfigError) as caught:
        tabulate(served)
    assert [word for word in words if word not in str(caught.value)] == []
