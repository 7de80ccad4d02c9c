"""What an operator touches outside its own code.

Each edge is a Protocol that is declared where it is used: the API server in `kube/client.py`, helm in `helm/deploy.py`,
the processes of hooks in `hooks/engine.py`, what listens for webhooks in `webhooks/host.py`. Time is not among them:
everything waits by the clock of the event loop, which tests replace as a whole (`tests/fakes/clock.py`). Only schedules
ask what time of day it is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Coroutine, Mapping
from datetime import datetime
from typing import TypeAlias

from addon_operator.helm.deploy import Helm
from addon_operator.hooks.engine import HookTransport
from addon_operator.kube import jq
from addon_operator.kube.client import ApiServer
from addon_operator.process.private_directory import PrivateDirectory
from addon_operator.webhooks.endpoint import WebhookSettings
from addon_operator.webhooks.host import WebhookListener

OnHelmOperation: TypeAlias = Callable[[str, str, float], None]
WebhookListeners: TypeAlias = Callable[[WebhookSettings], tuple[WebhookListener, WebhookListener]]
FindHelm: TypeAlias = Callable[[OnHelmOperation], Coroutine[object, object, Helm]]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Edges:
    """What an operator touches.

    Attributes:
        api_server: the cluster.
        find_helm: finds helm; it reports module, operation and duration in seconds of each operation to what it is
            given.
        hook_transport: where hooks run.
        webhook_listeners: returns what listens for admission reviews and for conversion reviews.
        run_jq: runs the filters of hooks.
        environment: that hooks get; settings that they may ask for are added to it.
        tmp_dir: for the files of hook runs.
        now: the time of day, aware.
    """

    api_server: ApiServer
    find_helm: FindHelm
    hook_transport: HookTransport
    webhook_listeners: WebhookListeners
    run_jq: jq.Run
    environment: Mapping[str, str]
    tmp_dir: PrivateDirectory
    now: Callable[[], datetime]
