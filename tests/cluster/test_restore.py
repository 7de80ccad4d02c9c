"""etcd is restored from a backup behind a running operator: what was done since is undone, and it goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from addon_operator.devcluster import DevCluster
from addon_operator.devcluster.commands import API_ONLY
from addon_operator.documents import jsondoc
from addon_operator.documents.jsondoc import lookup
from addon_operator.kube.informers.reflector import Reflector
from addon_operator.kube.refs import CONFIG_MAPS
from tests.cluster.operator import (
    WITHIN_S,
    Operator,
    bindings,
    config_map,
    config_map_chart,
    eventually,
    noting_hook,
    object_name,
    operator,
)
from tests.cluster.test_reflector import Recorder, create, watching
from tests.connection import connected

LABELS = {"app": "things"}
SAID = "the API server has gone back to an older state"
DATA = 'text: {{ .Values.one.text | quote }}\nseen: {{ .Values.one.seen | default "-" | quote }}'
# It remembers in memory what it saw last, whatever becomes of that.
REMEMBERS = """
name=$(jq -r '.[0] | select(.watchEvent == "Added") | .object.metadata.name' "$BINDING_CONTEXT_PATH")
[ -z "$name" ] || echo '[{"op": "add", "path": "/one/seen", "value": "'$name'"}]' >"$VALUES_JSON_PATCH_PATH"
"""


def snapshot(made: Operator) -> list[str]:
    """The objects that the hook would see now."""
    items = lookup(made.ask("/module/one/snapshots.json"), "/hooks~1watch.sh/things")
    assert isinstance(items, list)
    return [object_name(item) for item in items]


async def touch(made: Operator, times: int) -> None:
    """Lets resource versions grow."""
    async with connected(made.cluster.kubeconfig) as client:
        path = CONFIG_MAPS.path(made.namespace, "kept")
        for at in range(times):
            body = jsondoc.dumps({"data": {"at": str(at)}})
            await client.api.request("PATCH", path, body=body, content_type="application/merge-patch+json")


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevCluster]:
    """A cluster whose controllers need not survive what is done to it: it has none."""
    with DevCluster(tmp_path_factory.mktemp("own"), components=API_ONLY) as running:
        yield running


def test_edits_take_effect_and_nothing_is_remembered_that_is_gone_after_a_restore_of_etcd(
    own: DevCluster, tmp_path: Path
) -> None:
    cluster, root, backup = own, tmp_path / "operator", tmp_path / "backup"
    root.mkdir()
    with operator(cluster, root) as made:
        config = bindings(kubernetes=[made.watching("things", "things")])
        made.module(
            "010-one",
            {
                **config_map_chart("one", DATA),
                "values.yaml": "one: {text: file}\noneEnabled: true\n",
                "hooks/watch.sh": noting_hook("watch", config, REMEMBERS),
            },
        )
        made.create(config_map("kept", labels=LABELS), config_map("deleted", labels=LABELS))
        made.configure({"one": "text: before"})
        made.start_ready()
        eventually(lambda: made.deployed("one")["text"] == "before")
        cluster.back_up(backup)
        # Versions that the restored server does not reach again; those that it passes before anybody looks.
        for times, changes in enumerate([300, 0], 1):
            change(made, changes)
            assert made.text().count(SAID) == times - 1
            cluster.restore(backup)
            eventually(lambda: snapshot(made) == ["deleted", "kept"], what="the snapshot of the restored objects")
            # The release of before the restore had not seen it; the hook remembers.
            eventually(lambda: made.deployed("one") == {"text": "before", "seen": "deleted"})
            made.configure({"one": "text: edited"})
            eventually(lambda: made.deployed("one")["text"] == "edited", what="an edit after the restore")
            made.wait_idle()
            assert made.text().count(SAID) == times
            assert made.modules()["one"]["revision"] == max(made.revisions("one"))


def change(made: Operator, more: int) -> None:
    """Does what the restore will undo."""
    made.configure({"one": "text: after"})
    made.create(config_map("lost", labels=LABELS))
    made.delete("deleted")
    eventually(lambda: made.deployed("one") == {"text": "after", "seen": "lost"})
    eventually(lambda: snapshot(made) == ["kept", "lost"])
    asyncio.run(touch(made, more))
    made.wait_idle()


async def test_restore_behind_the_back_of_a_running_api_server_is_said(
    own: DevCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    namespace, backup = await asyncio.to_thread(own.namespace), tmp_path / "backup"
    async with connected(own.kubeconfig) as client:
        reflector = Reflector(
            client,
            CONFIG_MAPS,
            namespace=namespace,
            field_selector="metadata.name=one",
            handler=Recorder(),
            resumes=False,
            watch_timeout_s=2,
        )
        try:
            await create(client, namespace, "one")
            await asyncio.to_thread(own.back_up, backup)
            body = jsondoc.dumps({"data": {"text": "after"}})
            path = CONFIG_MAPS.path(namespace, "one")
            await client.api.request("PATCH", path, body=body, content_type="application/merge-patch+json")
            said = ""
            async with watching(reflector):
                await asyncio.to_thread(own.restore, backup, behind_the_apiserver=True)
                async with asyncio.timeout(WITHIN_S):
                    while "lists what it remembers" not in said:
                        await asyncio.sleep(0.05)
                        said += capsys.readouterr().out
        finally:
            # For the other test, one that knows what etcd holds.
            await asyncio.to_thread(own.stop_apiserver)
            await asyncio.to_thread(own.start_apiserver)
    assert SAID not in said
