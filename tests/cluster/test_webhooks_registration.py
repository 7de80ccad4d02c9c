"""Webhooks against a real API server, which calls them on loopback."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
import datetime
import itertools
import secrets
import ssl
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from addon_operator.devcluster import DevCluster
from addon_operator.documents import jsondoc
from addon_operator.documents.jsondoc import JsonObject, JsonValue
from addon_operator.errors import HookConfigError, HookFailed, KubeError
from addon_operator.hooks.call import HookId
from addon_operator.hooks.config.model import AdmissionKind, AdmissionRule, Conversion
from addon_operator.kube.client import KubeClient
from addon_operator.kube.refs import CONFIG_MAPS, CUSTOM_RESOURCE_DEFINITIONS, SECRETS, Resource, metadata_of
from addon_operator.kube.transport import RequestStat
from addon_operator.settings import WebhookServer
from addon_operator.webhooks.certificates import Authority, KeyPair
from addon_operator.webhooks.configurations import OPERATOR, RESOURCES
from addon_operator.webhooks.endpoint import WebhookSettings
from addon_operator.webhooks.host import WebhookHost
from addon_operator.webhooks.listener import tls_listeners
from addon_operator.webhooks.review import AdmissionAnswer
from tests.connection import connected
from tests.fakes.background import running
from tests.fakes.reviewer import ScriptedReviewer, admission, conversion

HOOK, OTHER = HookId(None, "one.sh"), HookId("alpha", "hooks/two.sh")
LOOPBACK = WebhookServer(port=0, address="127.0.0.1", service="svc")
NO = AdmissionAnswer(allowed=False, message="not today")


class Operator:
    """One host with its hooks, in a namespace of its own."""

    def __init__(self, client: KubeClient, namespace: str, *, config_map: str = "cm") -> None:
        self.client = client
        self.namespace = namespace
        self.reviewer = ScriptedReviewer()
        self.settings = WebhookSettings(
            namespace=namespace,
            config_map=config_map,
            validating_name=namespace,
            mutating_name=namespace,
            host="127.0.0.1",
            admission=LOOPBACK,
            conversion=LOOPBACK,
        )
        self.host = self.make()

    def make(self) -> WebhookHost:
        admission, conversion = tls_listeners(self.settings)
        return WebhookHost(
            self.client, admission=admission, conversion=conversion, reviewer=self.reviewer, settings=self.settings
        )

    async def validate(self, *, hook: HookId = HOOK, failure_policy: str = "Fail") -> None:
        binding = admission("v.example.com", namespace=self.namespace, failure_policy=failure_policy)
        await self.host.serve(hook, [binding], [])

    async def create(self, **query: str) -> JsonObject:
        body: JsonObject = {"metadata": {"generateName": "x-"}}
        path = CONFIG_MAPS.path(self.namespace)
        return document(await self.client.api.request("POST", path, query=query, body=jsondoc.dumps(body)))

    async def refused(self) -> KubeError:
        """Creates until that is refused: the API server hears of webhooks a moment later."""
        while True:
            try:
                await self.create(dryRun="All")
            except KubeError as error:
                return error

    async def configuration(self, kind: AdmissionKind = "kubernetesValidating") -> JsonObject | None:
        return await get(self.client, RESOURCES[kind].path(name=f"{self.namespace}-hooks"))


def document(data: bytes) -> JsonObject:
    value = jsondoc.loads(data)
    assert isinstance(value, dict)
    return value


async def get(client: KubeClient, path: str) -> JsonObject | None:
    try:
        return document(await client.api.request("GET", path))
    except KubeError as error:
        if error.status != 404:
            raise
        return None


@pytest.fixture
def stats() -> list[RequestStat]:
    return []


@pytest.fixture
async def client(cluster: DevCluster, stats: list[RequestStat]) -> AsyncIterator[KubeClient]:
    async with connected(cluster.kubeconfig, on_request=stats.append) as client:
        yield client


@contextlib.asynccontextmanager
async def serving(host: WebhookHost) -> AsyncIterator[None]:
    await host.start()
    try:
        async with running(host):
            yield
    finally:
        await host.withdraw([HOOK, OTHER])
        await host.stop()


@pytest.fixture
async def operator(client: KubeClient, cluster: DevCluster) -> AsyncIterator[Operator]:
    made = Operator(client, cluster.namespace())
    async with serving(made.host):
        yield made


# --- admission ---


async def test_a_hook_refuses(operator: Operator) -> None:
    await operator.validate()
    operator.reviewer.answers = {"v.example.com": NO}
    error = await operator.refused()
    assert error.status == 403
    assert 'admission webhook "v.example.com" denied the request: not ...' in str(error)
    operator.reviewer.answers = {"v.example.com": HookFailed("exit code 3")}
    assert "denied the request: Hook failed: exit code 3" in str(await operator.refused())
    hook, name, request = operator.reviewer.requests[-1]
    assert (hook, name, request["operation"], request["namespace"]) == (
        HOOK,
        "v.example.com",
        "CREATE",
        operator.namespace,
    )


async def test_warnings_and_patches_arrive(operator: Operator, cluster: DevCluster) -> None:
    binding = admission("m.example.com", kind="kubernetesMutating", namespace=operator.namespace)
    patch: list[JsonValue] = [{"op": "add", "path": "/metadata/labels", "value": {"patched": "yes"}}]
    answer = AdmissionAnswer(allowed=True, warnings=("mind the gap",), patch=jsondoc.dumps(patch))
    operator.reviewer.answers = {"m.example.com": answer}
    await operator.host.serve(HOOK, [binding], [])
    for number in itertools.count():
        said, warned = await kubectl(
            cluster, "create", "configmap", f"x{number}", "-n", operator.namespace, "-o", "jsonpath={.metadata.labels}"
        )
        if warned:
            break
    assert said == '{"patched":"yes"}'
    assert warned == "Warning: mind the gap\n"


async def kubectl(cluster: DevCluster, *words: str) -> tuple[str, str]:
    """Runs kubectl beside this loop, which has to answer meanwhile; gives its output and its warnings."""
    environment = cluster.environment()
    process = await asyncio.create_subprocess_exec(
        "kubectl",
        *words,
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    said, warned = await process.communicate()
    assert process.returncode == 0, warned
    return said.decode(), warned.decode()


@pytest.mark.parametrize("failure_policy", ["Fail", "Ignore"])
async def test_the_failure_policy_is_for_an_operator_that_is_not_there(operator: Operator, failure_policy: str) -> None:
    operator.reviewer.answers = {"v.example.com": NO}
    await operator.validate(failure_policy=failure_policy)
    await operator.refused()
    await operator.host.stop()
    if failure_policy == "Ignore":
        await operator.create()
    else:
        error = await operator.refused()
        assert (error.status, "failed calling webhook" in str(error)) == (500, True)
    await operator.host.withdraw([HOOK])


async def test_what_is_withdrawn_blocks_nobody(operator: Operator) -> None:
    operator.reviewer.answers = dict.fromkeys(["v.example.com", "w.example.com"], NO)
    await operator.validate()
    other = admission("w.example.com", namespace=operator.namespace)
    await operator.host.serve(OTHER, [other], [])
    await operator.refused()
    await operator.host.withdraw([HOOK])
    assert "w.example.com" in str(await operator.refused())
    await operator.host.withdraw([OTHER])
    await operator.create()
    assert await operator.configuration() is None


async def test_a_conflict_changes_nothing(operator: Operator) -> None:
    await operator.validate()
    before = await operator.configuration()
    with pytest.raises(HookConfigError, match=r"v\.example\.com is taken by global hook one\.sh"):
        await operator.validate(hook=OTHER)
    assert before == await operator.configuration()
    operator.reviewer.answers = {"v.example.com": NO}
    await operator.refused()
    assert {hook for hook, _, _ in operator.reviewer.requests} == {HOOK}


async def test_what_the_api_server_refuses_of_one_hook_is_not_in_the_way_of_others(operator: Operator) -> None:
    bad = dataclasses.replace(admission("b.example.com"), match_conditions=(("never", "object..x"),))
    with pytest.raises(
        KubeError, match=r"global hook one\.sh: its webhooks cannot be .*matchConditions\[0\]"
    ) as caught:
        await operator.host.serve(HOOK, [bad], [])
    assert caught.value.status == 422
    operator.reviewer.answers = {"v.example.com": NO}
    await operator.validate(hook=OTHER)
    await operator.refused()
    assert len(await clients(operator)) == 1


async def test_nothing_is_sent_without_need(operator: Operator, stats: list[RequestStat]) -> None:
    await operator.host.serve(HOOK, [], [])
    await operator.host.withdraw([HOOK, OTHER])
    await operator.host.renew(datetime.datetime.now(datetime.UTC))
    assert stats == []
    await operator.validate()
    written = writes(stats)
    await operator.validate()
    assert writes(stats) == written == ["POST"]


def writes(stats: list[RequestStat]) -> list[str]:
    return [stat.verb for stat in stats if stat.verb in {"POST", "PUT"}]


async def test_what_others_change_is_put_back_by_one_write(operator: Operator, stats: list[RequestStat]) -> None:
    await operator.validate()
    made = await operator.configuration()
    path = RESOURCES["kubernetesValidating"].path(name=f"{operator.namespace}-hooks")
    await operator.client.api.request("DELETE", path)
    again = await until(operator, uid_other_than=made)
    assert again["webhooks"] == (made or {})["webhooks"]
    change: list[JsonValue] = [{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Ignore"}]
    content_type = "application/json-patch+json"
    await operator.client.api.request("PATCH", path, body=jsondoc.dumps(change), content_type=content_type)
    while (found := await operator.configuration()) is None or found["webhooks"] != again["webhooks"]:
        pass
    # The object shows a write before its answer is here.
    while len(writes(stats)) < 3:
        await asyncio.sleep(0.01)
    # Seen and answered, the write before would have led to more by now.
    assert writes(stats) == ["POST", "POST", "PUT"]
    assert (metadata_of(again)["generation"], metadata_of(found)["generation"]) == (1, 3)
    await operator.host.withdraw([HOOK])
    assert await operator.configuration() is None


async def until(operator: Operator, *, uid_other_than: JsonObject | None) -> JsonObject:
    """Waits for another object of the same name."""
    assert uid_other_than is not None
    before = metadata_of(uid_other_than)["uid"]
    while (found := await operator.configuration()) is None or metadata_of(found)["uid"] == before:
        pass
    return found


async def test_a_hook_that_denies_everything_does_not_lock_the_operator_out(
    operator: Operator, cluster: DevCluster
) -> None:
    elsewhere = cluster.namespace()
    everything = AdmissionRule(("*",), ("*",), ("*",), ("CREATE", "UPDATE", "DELETE"), "*")
    label: JsonObject = {"probe": operator.namespace}
    # Mutating ones are asked before a generated name is known.
    admitted = admission("m.example.com", kind="kubernetesMutating")
    binding = dataclasses.replace(admitted, rules=(everything,), label_selector={"matchLabels": label})
    operator.reviewer.answers = {"m.example.com": NO}
    await operator.host.serve(HOOK, [binding], [])

    async def tried(resource: Resource, namespace: str, name: JsonObject) -> bool:
        """Creates one, and answers whether that was allowed."""
        body: JsonObject = {"metadata": {**name, "labels": label}}
        path, query = resource.path(namespace), {"dryRun": "All"}
        try:
            await operator.client.api.request("POST", path, query=query, body=jsondoc.dumps(body))
        except KubeError as error:
            return error.status != 403
        return True

    here, named = operator.namespace, "sh.helm.release.v1.alpha.v1"
    while await tried(CONFIG_MAPS, here, {"name": "x"}):
        pass
    asked = len(operator.reviewer.requests)
    assert await tried(CONFIG_MAPS, here, {"name": "cm"})
    assert await tried(SECRETS, here, {"name": named})
    assert len(operator.reviewer.requests) == asked
    concerned = [
        (CONFIG_MAPS, here, named),
        (CONFIG_MAPS, elsewhere, "cm"),
        (SECRETS, here, "cm"),
        (SECRETS, elsewhere, named),
        (Resource("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", False), None, "cm"),
    ]
    for resource, namespace, name in concerned:
        assert not await tried(resource, namespace or "", {"name": name})
    assert not await tried(SECRETS, here, {"generateName": "x"})
    # A refusal of anything else, such as an expression that fails, has not asked.
    assert [
        (jsondoc.lookup(request, "/resource/resource"), request.get("namespace"), request.get("name"))
        for _, _, request in operator.reviewer.requests[asked:-1]
    ] == [(resource.plural, namespace, name) for resource, namespace, name in concerned]
    assert len(operator.reviewer.requests) == asked + len(concerned) + 1


async def test_two_operators_do_not_write_into_each_other(operator: Operator) -> None:
    second = Operator(operator.client, operator.namespace, config_map="other")
    await operator.validate()
    before = await operator.configuration()
    async with serving(second.host):
        with pytest.raises(KubeError, match=rf"belongs to operator {operator.namespace}\.cm: its label"):
            await second.validate()
        await second.host.clear_stale(conversions=True)
        await second.host.withdraw([HOOK])
    assert before == await operator.configuration()


async def test_what_a_former_process_left_is_taken_over_or_cleared(operator: Operator) -> None:
    operator.reviewer.answers = {"v.example.com": NO}
    mutating = admission("m.example.com", kind="kubernetesMutating", namespace=operator.namespace)
    await operator.host.serve(HOOK, [mutating], [])
    await operator.validate(hook=OTHER)
    await operator.host.stop()
    operator.host = operator.make()
    async with serving(operator.host):
        await operator.validate(hook=OTHER)
        await operator.host.clear_stale()
        assert await operator.configuration("kubernetesMutating") is None
        while "denied the request: not" not in str(await operator.refused()):
            pass  # what it has heard of may still be the former process
    assert await operator.configuration() is None


async def test_certificates_are_renewed_without_a_refused_request(operator: Operator) -> None:
    operator.reviewer.answers = {"v.example.com": NO}
    await operator.validate()
    await operator.refused()
    operator.reviewer.answers = {}
    [before] = await certificates(operator)

    async def create() -> None:
        for _ in range(10):
            await operator.create()

    async with asyncio.TaskGroup() as group:
        for _ in range(4):
            group.create_task(create())
        await operator.host.renew(datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=89))
    assert await certificates(operator) != [before]
    await restart_connections(operator)


async def restart_connections(operator: Operator) -> None:
    """Makes the API server connect anew, by more requests at once than it has connections."""
    operator.reviewer.stuck = {"v.example.com"}
    asked = len(operator.reviewer.requests)
    async with asyncio.TaskGroup() as group:
        for _ in range(12):
            group.create_task(operator.create())
        await operator.reviewer.until_asked(asked + 12)
        operator.reviewer.let_end.set()


async def test_a_given_certificate_of_another_authority_is_registered(operator: Operator, tmp_path: Path) -> None:
    pairs = [Authority().issue(["127.0.0.1"], validity_s=3600) for _ in range(2)]
    operator.settings = dataclasses.replace(operator.settings, admission=given(tmp_path, pairs[0]))
    operator.host = operator.make()
    async with serving(operator.host):
        await operator.validate()
        assert await authorities(operator) == [pairs[0].authority]
        given(tmp_path, pairs[1])
        await operator.host.renew(datetime.datetime.now(datetime.UTC))
        assert await authorities(operator) == [pairs[1].authority]
        operator.reviewer.answers = {"v.example.com": NO}
        while "denied the request: not" not in str(await operator.refused()):
            pass  # until it has heard of the other authority


def given(directory: Path, pair: KeyPair) -> WebhookServer:
    files = {"tls.crt": pair.chain, "tls.key": pair.key, "ca.crt": pair.authority}
    for name, content in files.items():
        (directory / name).write_bytes(content)
    cert, key, ca = (directory / name for name in files)
    return dataclasses.replace(LOOPBACK, cert=cert, key=key, ca=ca)


async def clients(operator: Operator) -> list[JsonObject]:
    found = await operator.configuration()
    assert found is not None
    assert jsondoc.lookup(found, "/metadata/labels") == {
        "app.kubernetes.io/managed-by": "addon-operator",
        OPERATOR: f"{operator.namespace}.cm",
    }
    webhooks = found["webhooks"]
    assert isinstance(webhooks, list)
    configs = [jsondoc.lookup(webhook, "/clientConfig") for webhook in webhooks]
    return [config for config in configs if isinstance(config, dict)]


async def authorities(operator: Operator) -> list[bytes]:
    return [base64.b64decode(str(config["caBundle"])) for config in await clients(operator)]


async def certificates(operator: Operator) -> list[bytes]:
    """Connects to every registered address, trusting what is registered."""
    found = []
    for config in await clients(operator):
        context = ssl.create_default_context(cadata=base64.b64decode(str(config["caBundle"])).decode())
        host, _, port = str(config["url"]).removeprefix("https://").partition("/")[0].partition(":")
        _, writer = await asyncio.open_connection(host, int(port), ssl=context)
        found.append(writer.get_extra_info("ssl_object").getpeercert(binary_form=True))
        writer.transport.abort()
    return found


# --- conversion ---

GROUP = "webhooks.test.example.com"
VERSIONS = ("v1", "v2", "v3")


class Things:
    """A kind of three versions, which is stored in the first; created when asked for."""

    def __init__(self, client: KubeClient, plural: str) -> None:
        self.client = client
        self.name = f"{plural}.{GROUP}"
        self.plural = plural

    def steps(self) -> Conversion:
        return conversion(self.name, ("v1", "v2"), (f"{GROUP}/v2", f"{GROUP}/v3"), ("v3", "v2"), ("v2", "v1"))

    def resource(self, version: str) -> Resource:
        return Resource(GROUP, version, self.plural.capitalize(), self.plural, True)

    async def define(self) -> None:
        spec_schema: JsonObject = {"type": "object", "properties": {"way": {"type": "string"}}}
        schema: JsonObject = {"type": "object", "properties": {"spec": spec_schema}}
        versions: list[JsonValue] = [
            {"name": name, "served": True, "storage": name == "v1", "schema": {"openAPIV3Schema": schema}}
            for name in VERSIONS
        ]
        names: JsonObject = {"plural": self.plural, "kind": self.plural.capitalize()}
        body: JsonObject = {
            "metadata": {"name": self.name},
            "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": versions},
        }
        await self.client.api.request("POST", CUSTOM_RESOURCE_DEFINITIONS.path(), body=jsondoc.dumps(body))

    async def create(self, namespace: str) -> None:
        """Creates one as soon as the definition is served."""
        resource = self.resource("v1")
        body: JsonObject = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"name": "one", "labels": {"a": "1"}},
            "spec": {},
        }
        while await self.answer("POST", resource.path(namespace), body) is None:
            pass

    async def read(self, namespace: str, version: str, way: str) -> JsonObject:
        """Reads it until it came this way: the API server hears of conversions a moment later."""
        path = self.resource(version).path(namespace, "one")
        while True:
            found = await self.answer("GET", path)
            if found is not None and found["spec"] == ({"way": way} if way else {}):
                return found

    async def answer(self, method: str, path: str, body: Mapping[str, JsonValue] | None = None) -> JsonObject | None:
        try:
            data = jsondoc.dumps(dict(body)) if body is not None else None
            return document(await self.client.api.request(method, path, body=data))
        except KubeError as error:
            if error.status not in {404, 500, 503}:
                raise
            return None

    async def definition(self) -> JsonObject:
        found = await get(self.client, CUSTOM_RESOURCE_DEFINITIONS.path(name=self.name))
        assert found is not None
        return found

    async def patch(self, patch: JsonObject) -> None:
        path = CUSTOM_RESOURCE_DEFINITIONS.path(name=self.name)
        content_type = "application/merge-patch+json"
        await self.client.api.request("PATCH", path, body=jsondoc.dumps(patch), content_type=content_type)

    async def drop(self) -> None:
        with contextlib.suppress(KubeError):
            await self.client.api.request("DELETE", CUSTOM_RESOURCE_DEFINITIONS.path(name=self.name))


@pytest.fixture
async def things(client: KubeClient) -> AsyncIterator[Things]:
    made = Things(client, f"t{secrets.token_hex(4)}s")
    yield made
    await made.drop()


async def test_objects_are_converted_step_by_step_until_the_hook_goes(things: Things, operator: Operator) -> None:
    await things.define()
    await operator.host.serve(HOOK, [], [things.steps()])
    await things.create(operator.namespace)
    found = await things.read(operator.namespace, "v3", ">v2>v3")
    assert jsondoc.lookup(found, "/metadata/labels") == {"a": "1"}
    # Whoever else watches the objects has them converted, too.
    steps = {(step.from_version, step.to_version) for step in operator.reviewer.steps}
    assert steps >= {("v1", "v2"), (f"{GROUP}/v2", f"{GROUP}/v3")}
    operator.reviewer.conversion = HookFailed("exit code 3")
    with pytest.raises(KubeError, match=r"conversion webhook .* failed: Hook failed: exit code 3"):
        await things.client.api.request("GET", things.resource("v3").path(operator.namespace, "one"))
    await operator.host.withdraw([HOOK])
    definition = await things.definition()
    assert jsondoc.lookup(definition, "/spec/conversion") == {"strategy": "None"}
    assert metadata_of(definition).get("labels") is None
    await things.read(operator.namespace, "v2", "")


async def test_a_definition_that_comes_later_is_converted_and_stays_so(things: Things, operator: Operator) -> None:
    await operator.host.serve(HOOK, [], [things.steps()])
    await things.define()
    await things.create(operator.namespace)
    await things.read(operator.namespace, "v2", ">v2")
    await things.patch({"spec": {"conversion": {"strategy": "None", "webhook": None}}})
    await things.read(operator.namespace, "v2", ">v2")
    while jsondoc.lookup(await things.definition(), "/spec/conversion/strategy") != "Webhook":
        pass


async def test_conversions_of_a_former_process_are_cleared_only_on_demand(things: Things, operator: Operator) -> None:
    await things.define()
    await operator.host.serve(HOOK, [], [things.steps()])
    await operator.host.stop()
    following = operator.make()
    async with serving(following):
        await following.clear_stale()
        assert jsondoc.lookup(await things.definition(), "/spec/conversion/strategy") == "Webhook"
        await following.clear_stale(conversions=True)
        assert jsondoc.lookup(await things.definition(), "/spec/conversion/strategy") == "None"


async def test_a_conversion_of_another_operator_is_not_taken(things: Things, operator: Operator) -> None:
    await things.define()
    await operator.host.serve(HOOK, [], [things.steps()])
    second = Operator(operator.client, operator.namespace, config_map="other")
    async with serving(second.host):
        with pytest.raises(KubeError, match=rf"the conversion of {things.name} belongs to operator .*\.cm"):
            await second.host.serve(HOOK, [], [things.steps()])
        await second.host.clear_stale(conversions=True)
    assert jsondoc.lookup(await things.definition(), "/spec/conversion/strategy") == "Webhook"
