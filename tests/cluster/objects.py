"""Reads and writes objects without a kubectl process for each, which takes a second of a busy machine."""

from __future__ import annotations

import http
import json
import urllib.parse
from typing import Final

from addon_operator.devcluster import DevCluster
from addon_operator.devcluster.api import Api
from addon_operator.devcluster.errors import DevClusterError
from addon_operator.devcluster.files import token
from addon_operator.documents.jsondoc import JsonObject, JsonValue
from addon_operator.kube.refs import metadata_of

_PATHS: Final = {
    "job": "/apis/batch/v1/namespaces/{}/jobs",
    "lease": "/apis/coordination.k8s.io/v1/namespaces/{}/leases",
    "clusterrole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "customresourcedefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
}


def administrator(cluster: DevCluster) -> Api:
    """A connection to the API server; who made it closes it, or leaves that to the end of the process."""
    port = int(cluster.server.rpartition(":")[2])
    authority = cluster.directory / "certs" / "apiserver.crt"
    return Api(port=port, bearer=token(cluster.directory), authority=authority)


class Objects:
    """The objects of one namespace, and those without one. Kinds are in the words of kubectl: `configmap`, `job`.

    Each method raises DevClusterError if the API server refuses or does not answer.
    """

    def __init__(self, cluster: DevCluster, namespace: str) -> None:
        self._api = administrator(cluster)
        self._namespace = namespace

    def close(self) -> None:
        """Ends the connection; the next request opens another one."""
        self._api.close()

    def get(self, kind: str, name: str) -> JsonObject | None:
        """One object, without its managed fields; None if there is none."""
        document = self._ask("GET", self._path(kind, name))
        if document is not None:
            metadata_of(document).pop("managedFields", None)
        return document

    def list(self, kind: str, *, labels: str = "") -> list[JsonObject]:
        """All objects of a kind (with these labels, as `a=b,c=d`)."""
        query = f"?{urllib.parse.urlencode({'labelSelector': labels})}" if labels else ""
        items = (self._ask("GET", self._path(kind) + query) or {}).get("items")
        assert isinstance(items, list)
        return [item for item in items if isinstance(item, dict)]

    def create(self, document: JsonObject) -> None:
        """Creates an object."""
        self._ask("POST", self._path(_kind(document)), document)

    def replace(self, document: JsonObject) -> None:
        """Replaces an object, which has to exist."""
        kind, name = _kind(document), str(metadata_of(document)["name"])
        if self._ask("PUT", self._path(kind, name), document) is None:
            raise DevClusterError(f"{kind} {name} does not exist")

    def patch(self, kind: str, name: str, patch: JsonValue) -> None:
        """Changes an object, which has to exist: a mapping is a merge patch, a list a JSON patch."""
        form = "json-patch" if isinstance(patch, list) else "merge-patch"
        if self._ask("PATCH", self._path(kind, name), patch, f"application/{form}+json") is None:
            raise DevClusterError(f"{kind} {name} does not exist")

    def delete(self, kind: str, name: str) -> bool:
        """Deletes an object; returns whether it existed."""
        return self._ask("DELETE", self._path(kind, name)) is not None

    def _path(self, kind: str, name: str = "") -> str:
        path = _PATHS.get(kind, f"/api/v1/namespaces/{{}}/{kind}s").format(self._namespace)
        return f"{path}/{name}" if name else path

    def _ask(
        self, method: str, path: str, body: JsonValue = None, content_type: str = "application/json"
    ) -> JsonObject | None:
        status, answer = self._api.request(method, path, body, content_type=content_type)
        if status == http.HTTPStatus.NOT_FOUND:
            return None
        if status not in {http.HTTPStatus.OK, http.HTTPStatus.CREATED, http.HTTPStatus.ACCEPTED}:
            raise DevClusterError(f"{method} {path}: status {status}: {answer.decode('utf-8', 'replace')[:500]}")
        document: JsonObject = json.loads(answer)
        return document


def _kind(document: JsonObject) -> str:
    return str(document["kind"]).lower()
