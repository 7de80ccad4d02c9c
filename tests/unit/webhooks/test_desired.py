"""What should be registered for which bindings, and in which objects."""

from __future__ import annotations

import pytest

from addon_operator.documents import jsondoc
from addon_operator.hooks.call import HookId
from addon_operator.hooks.config.model import Admission, Conversion
from addon_operator.settings import WebhookServer
from addon_operator.webhooks import desired
from addon_operator.webhooks.endpoint import Address, WebhookSettings
from addon_operator.webhooks.table import Bindings, tabulate
from tests.fakes.reviewer import admission, conversion

SERVER = WebhookServer(port=9680, address="127.0.0.1", service="svc")
SETTINGS = WebhookSettings(
    namespace="ns",
    config_map="cm",
    validating_name="checks",
    mutating_name="changes",
    admission=SERVER,
    conversion=SERVER,
)
ADDRESS = Address(namespace="ns", service_name="svc", host=None, port=9680, authority=b"")
ONE, TWO = HookId(None, "one.sh"), HookId("alpha", "hooks/two.sh")
VALIDATING, MUTATING = admission("v"), admission("m", kind="kubernetesMutating")
THINGS = conversion("things.x.io", ("v1", "v2"))


@pytest.mark.parametrize(
    ("admissions", "conversions", "expected"),
    [
        pytest.param([], [], [], id="nothing"),
        pytest.param([VALIDATING], [], ["ValidatingWebhookConfiguration/checks-hooks"], id="validating"),
        pytest.param([MUTATING], [], ["MutatingWebhookConfiguration/changes-hooks"], id="mutating"),
        pytest.param([], [THINGS], ["CustomResourceDefinition/things.x.io"], id="conversion"),
        pytest.param(
            [VALIDATING, MUTATING],
            [THINGS],
            [
                "MutatingWebhookConfiguration/changes-hooks",
                "ValidatingWebhookConfiguration/checks-hooks",
                "CustomResourceDefinition/things.x.io",
            ],
            id="all",
        ),
    ],
)
def test_each_target_has_a_document(
    admissions: list[Admission], conversions: list[Conversion], expected: list[str]
) -> None:
    table = tabulate({ONE: Bindings(tuple(admissions), tuple(conversions))})
    found = desired.registrations(table, SETTINGS, admission=ADDRESS, conversion=ADDRESS)
    assert [str(target) for target in found] == expected
    assert desired.targets(admissions, conversions, SETTINGS) == set(found)


def test_a_configuration_has_the_webhooks_of_all_hooks() -> None:
    served = {TWO: Bindings((admission("b"),), ()), ONE: Bindings((admission("a"), MUTATING), ())}
    found = desired.registrations(tabulate(served), SETTINGS, admission=ADDRESS, conversion=None)
    document = found[desired.configuration_target("kubernetesValidating", SETTINGS)]
    assert jsondoc.lookup(document, "/metadata/name") == "checks-hooks"
    webhooks = document["webhooks"]
    assert isinstance(webhooks, list)
    assert [jsondoc.lookup(webhook, "/name") for webhook in webhooks] == ["a", "b"]
