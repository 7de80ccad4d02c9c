"""Values of objects stay out of what is said about refused ones: with the real API server and the real helm."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from addon_operator.devcluster import DevCluster
from addon_operator.documents import jsondoc
from addon_operator.errors import KubeError
from addon_operator.kube.client import KubeClient
from tests.cluster.operator import bindings, eventually, noting_hook, operator
from tests.connection import connected

Values = Callable[[str], Any]
POD, SERVICE, DEPLOYMENT, CONFIG_MAP, SECRET = "pods", "services", "deployments", "configmaps", "secrets"
KINDS = {
    POD: ("v1", "Pod", "/api/v1"),
    SERVICE: ("v1", "Service", "/api/v1"),
    DEPLOYMENT: ("apps/v1", "Deployment", "/apis/apps/v1"),
    CONFIG_MAP: ("v1", "ConfigMap", "/api/v1"),
    SECRET: ("v1", "Secret", "/api/v1"),
    "cronjobs": ("batch/v1", "CronJob", "/apis/batch/v1"),
    "networkpolicies": ("networking.k8s.io/v1", "NetworkPolicy", "/apis/networking.k8s.io/v1"),
    "persistentvolumeclaims": ("v1", "PersistentVolumeClaim", "/api/v1"),
}


def _pod(**more: Any) -> dict[str, Any]:
    return {"containers": [{"name": "c", "image": "i"}], **more}


def _container(**more: Any) -> dict[str, Any]:
    return {"containers": [{"name": "c", "image": "i", **more}]}


def _deployment(label: str, **pod: Any) -> dict[str, Any]:
    template = {"metadata": {"labels": {"a": label}}, "spec": _pod(**pod)}
    return {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": template}


# Kind, where a value stands that cannot be there, what is told of it.
REFUSED: dict[str, tuple[str, Values, str]] = {
    "an address": (
        SERVICE,
        lambda v: {"clusterIP": v, "ports": [{"port": 80}]},
        "spec.clusterIPs[0]: Invalid value: must",
    ),
    "a choice": (
        SERVICE,
        lambda v: {"type": v, "ports": [{"port": 80}]},
        'spec.type: Unsupported value: supported values: "ClusterIP", "ExternalName", "LoadBalancer", "NodePort"',
    ),
    "a duplicate": (
        SERVICE,
        lambda v: {"ports": [{"name": v, "port": 80}, {"name": v, "port": 81}]},
        "spec.ports[1].name: Duplicate value",
    ),
    "a type": (
        SERVICE,
        lambda v: {"ports": [{"port": v}]},
        "cannot unmarshal string into Go struct field ServicePort.spec.ports.port of type int32",
    ),
    "a reference": (
        POD,
        lambda v: _container(volumeMounts=[{"name": v, "mountPath": "/a"}]),
        "spec.containers[0].volumeMounts[0].name: Not found",
    ),
    "a quantity": (
        POD,
        lambda v: _container(resources={"limits": {"cpu": v}}),
        "quantities must match the regular expression",
    ),
    "a number": (POD, lambda v: _pod(terminationGracePeriodSeconds=v), "PodSpec.spec.terminationGracePeriodSeconds"),
    "a port name": (
        POD,
        lambda v: _container(ports=[{"containerPort": 80, "name": v}]),
        "spec.containers[0].ports[0].name: Invalid value: must be no more than 15 characters",
    ),
    "an account": (POD, lambda v: _pod(serviceAccountName=v), "error looking up service account"),
    "a priority": (POD, lambda v: _pod(priorityClassName=v), "no PriorityClass with name ... was found"),
    "labels": (
        DEPLOYMENT,
        _deployment,
        "spec.template.metadata.labels: Invalid value: `selector` does not match template `labels`",
    ),
    "a variable": (
        DEPLOYMENT,
        lambda v: _deployment("b", containers=[{"name": "c", "image": "i", "env": [{"name": "A", "value": {"a": v}}]}]),
        "EnvVar.spec.template.spec.containers.env.value of type string",
    ),
    "a schedule": (
        "cronjobs",
        lambda v: {
            "schedule": v,
            "timeZone": v,
            "jobTemplate": {"spec": {"template": {"spec": _pod(restartPolicy="Never")}}},
        },
        "spec.timeZone: Invalid value: unknown time zone ...",
    ),
    "a network": (
        "networkpolicies",
        lambda v: {"podSelector": {}, "ingress": [{"from": [{"ipBlock": {"cidr": v, "except": [v]}}]}]},
        "spec.ingress[0].from[0].ipBlock.cidr: Invalid value: must be a valid CIDR value",
    ),
    "an access mode": (
        "persistentvolumeclaims",
        lambda v: {"accessModes": [v], "resources": {"requests": {"storage": "1Gi"}}},
        "spec.accessModes: Unsupported value: supported values:",
    ),
}


@pytest.fixture
async def client(cluster: DevCluster) -> AsyncIterator[KubeClient]:
    async with connected(cluster.kubeconfig) as client:
        yield client


def _value() -> str:
    return f"v{uuid.uuid4().hex}"


async def _refusal(
    client: KubeClient, method: str, path: str, body: Any, content_type: str = "application/json"
) -> str:
    with pytest.raises(KubeError) as caught:
        await client.api.request(method, path, body=jsondoc.dumps(body), content_type=content_type)
    return str(caught.value)


@pytest.mark.parametrize(("plural", "spec", "told"), REFUSED.values(), ids=REFUSED)
async def test_a_refused_object_is_told_by_its_fields(
    client: KubeClient, cluster: DevCluster, plural: str, spec: Values, told: str
) -> None:
    value = _value()
    version, kind, root = KINDS[plural]
    body = {"apiVersion": version, "kind": kind, "metadata": {"name": "a"}, "spec": spec(value)}
    error = await _refusal(client, "POST", f"{root}/namespaces/{cluster.namespace()}/{plural}", body)
    assert told in error
    assert value not in error


PATCHES: dict[str, tuple[str, Values, str]] = {
    "merge, a type": (
        "merge-patch+json",
        lambda v: {"data": {"a": [v]}},
        "Go struct field ConfigMap.data of type string",
    ),
    "merge, a time": ("merge-patch+json", lambda v: {"metadata": {"creationTimestamp": v}}, "patch: Invalid value"),
    "merge, immutable": (
        "merge-patch+json",
        lambda v: {"metadata": {"uid": v}},
        "metadata.uid: Invalid value: field is",
    ),
    "JSON, a type": (
        "json-patch+json",
        lambda v: [{"op": "add", "path": "/data/a", "value": {"x": v}}],
        "Go struct field ConfigMap.data of type string",
    ),
    "strategic, a type": ("strategic-merge-patch+json", lambda v: {"data": v}, "cannot restore map from string"),
    "strategic, a directive": ("strategic-merge-patch+json", lambda v: {"data": {"$patch": v}}, "unknown patch type"),
}


@pytest.mark.parametrize(("content_type", "patch", "told"), PATCHES.values(), ids=PATCHES)
async def test_a_refused_patch_is_told_without_the_object(
    client: KubeClient, cluster: DevCluster, content_type: str, patch: Values, told: str
) -> None:
    there, value = _value(), _value()
    path = f"/api/v1/namespaces/{cluster.namespace()}/configmaps"
    made: Any = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"there": there}}
    await client.api.request("POST", path, body=jsondoc.dumps(made))
    error = await _refusal(client, "PATCH", f"{path}/a", patch(value), f"application/{content_type}")
    assert told in error
    assert value not in error
    assert there not in error


def test_what_hooks_and_charts_send_appears_in_no_message(cluster: DevCluster, tmp_path: Path) -> None:
    value = _value()
    with operator(cluster, tmp_path, {"LOG_LEVEL": "debug"}) as made:
        service = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "made", "namespace": made.namespace},
            "spec": {"type": value, "ports": [{"port": 80}]},
        }
        patch = json.dumps({"operation": "CreateOrUpdate", "object": service})
        body = f"echo '{patch}' >\"$KUBERNETES_PATCH_PATH\""
        made.module(
            "010-hooked",
            {"values.yaml": "hookedEnabled: true\n", "hooks/h.sh": noting_hook("h", bindings(beforeHelm=1), body)},
        )
        chart = (
            "apiVersion: v1\nkind: Service\nmetadata: {name: charted}\n"
            'spec: {type: LoadBalancer, clusterIP: "{{ .Values.charted.ip }}", ports: [{port: 80}]}\n'
        )
        made.module(
            "020-charted",
            {
                "Chart.yaml": "apiVersion: v2\nname: charted\nversion: 0.1.0\n",
                "templates/service.yaml": chart,
                "values.yaml": f"chartedEnabled: true\ncharted: {{ip: {value}}}\n",
            },
        )
        made.start()

        def error(module: str) -> str:
            return str(made.modules().get(module, {}).get("lastError") or "")

        eventually(lambda: "spec.type: Unsupported value: supported values:" in error("hooked"), what="hooked fails")
        shown = made.cli("module", "explain", "hooked").stdout
        assert "spec.type: Unsupported value" in shown
        made.files({"modules/010-hooked/hooks/h.sh": noting_hook("h", bindings(beforeHelm=1))})
        eventually(lambda: "spec.clusterIPs[0]: Invalid value: must be" in error("charted"), what="charted fails")
        shown += made.cli("module", "explain", "charted").stdout + made.cli("queue", "list").stdout
        shown += made.kubectl("get", "events", "-o", "json") + made.text()
        assert value not in shown
