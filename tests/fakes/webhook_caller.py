"""The part of an API server that asks webhooks: reads what is registered, and sends reviews there."""

from __future__ import annotations

import base64

from addon_operator.documents import jsondoc
from addon_operator.documents.jsondoc import JsonObject, JsonValue
from addon_operator.hooks.config.model import AdmissionKind
from addon_operator.kube.refs import CUSTOM_RESOURCE_DEFINITIONS
from addon_operator.webhooks.configurations import RESOURCES
from tests.fakes.api_server import FakeApiServer
from tests.fakes.webhook_listener import FakeWebhookListener


class WebhookCaller:
    """Asks the webhooks that are registered in a `FakeApiServer`."""

    def __init__(self, api: FakeApiServer, *, admission: FakeWebhookListener, conversion: FakeWebhookListener) -> None:
        self._api = api
        self._admission, self._conversion = admission, conversion

    def webhooks(self, kind: AdmissionKind = "kubernetesValidating") -> dict[str, JsonObject]:
        """Returns the webhooks that are registered, by name, whoever registered them."""
        resource = RESOURCES[kind]
        found: dict[str, JsonObject] = {}
        for configuration in self._api.objects.store.all((resource.group, resource.plural)):
            webhooks = configuration["webhooks"]
            assert isinstance(webhooks, list)
            found |= {str(webhook["name"]): webhook for webhook in webhooks if isinstance(webhook, dict)}
        return found

    def conversion(self, crd_name: str) -> JsonObject | None:
        """Returns the client configuration of the conversion of a definition; None if nothing converts."""
        definition = self._api.find(CUSTOM_RESOURCE_DEFINITIONS, "", crd_name)
        assert definition is not None
        try:
            client = jsondoc.lookup(definition, "/spec/conversion/webhook/clientConfig")
        except KeyError:
            return None
        assert isinstance(client, dict)
        return client

    async def admit(self, name: str, *, kind: AdmissionKind = "kubernetesValidating") -> JsonObject:
        """Sends an admission review to a registered webhook; returns its response."""
        client = self.webhooks(kind)[name]["clientConfig"]
        assert isinstance(client, dict)
        request: JsonObject = {"uid": "u", "operation": "CREATE"}
        review: JsonObject = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
        return await _post(self._admission, client, review)

    async def convert(self, crd_name: str, objects: list[JsonObject], *, api_version: str) -> list[JsonValue]:
        """Has the registered webhook of a definition convert objects."""
        client = self.conversion(crd_name)
        assert client is not None
        request: JsonObject = {"uid": "u", "desiredAPIVersion": api_version, "objects": [*objects]}
        review: JsonObject = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": request}
        response = await _post(self._conversion, client, review)
        converted = response["convertedObjects"]
        assert isinstance(converted, list)
        return converted


async def _post(listener: FakeWebhookListener, client: JsonObject, review: JsonObject) -> JsonObject:
    authority = base64.b64decode(str(client["caBundle"]))
    path = str(jsondoc.lookup(client, "/service/path"))
    reply = await listener.post(path, jsondoc.dumps(review), authority=authority)
    assert reply.status == 200, reply
    answer = jsondoc.loads(reply.body)
    assert isinstance(answer, dict)
    response = answer["response"]
    assert isinstance(response, dict)
    return response
