"""The requests that list and watch one resource. Source: client-go's ListWatch and ListPager, Kubernetes API concepts.

A connection can go silent without breaking, and an idle watch is silent for minutes: bookmarks only come after
something has changed. So every watch ends within a minute, by the server, and goes on where it was. That is one
request without a body on a connection that is open already; ending watches that are silent would break it each time.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Iterator, Mapping
from typing import Final

from addon_operator.documents.jsondoc import JsonObject
from addon_operator.kube.client import METADATA_ONLY, METADATA_ONLY_LIST, KubeClient
from addon_operator.kube.informers.wire import INITIAL_EVENTS, PAGE_SIZE, decode_page
from addon_operator.kube.refs import Resource

SILENCE_GRACE: Final = 1.08
"""How much longer than the server was asked to let a watch last it may take to end it."""
_JSON: Final = "application/json"
_PAGE_WITHIN_S: Final = 60.0
# The list at the beginning of a watch may take longer.
_LISTED_WITHIN_S: Final = 300.0
_RESUMED_WITHIN_S: Final = 5.0
_ANSWERED_WITHIN_S: Final = 30.0


class ListWatch:
    """What one reflector asks the API server for.

    Attributes:
        where: the resource and its namespace, for messages.
    """

    def __init__(
        self,
        client: KubeClient,
        resource: Resource,
        namespace: str | None,
        *,
        label_selector: str,
        field_selector: str,
        metadata_only: bool,
    ) -> None:
        """Asks for nothing yet.

        Args:
            client: the API server.
            resource: of which objects.
            namespace: None for all.
            label_selector: as in the API.
            field_selector: as in the API.
            metadata_only: the server sends no more of the objects than that.
        """
        self.where = f"{resource.plural} in {namespace}" if namespace else resource.plural
        self._client = client
        self._path = resource.path(namespace)
        selectors = {"labelSelector": label_selector, "fieldSelector": field_selector}
        self._query = {name: text for name, text in selectors.items() if text}
        self._accept_list, self._accept = (METADATA_ONLY_LIST, METADATA_ONLY) if metadata_only else (_JSON, _JSON)

    async def pages(self, *, limited: bool) -> AsyncGenerator[tuple[Iterator[JsonObject], JsonObject], None]:
        """Returns the objects of each page, and its metadata; the next one is under way while one is handed out.

        Wrap it in `contextlib.aclosing` when leaving early.

        Args:
            limited: False asks for everything in one page.

        Raises:
            KubeError: refused, no answer, or not JSON. 410: the pages took longer than the server keeps its state.
        """
        page = self._request_page({"limit": str(PAGE_SIZE)} if limited else {})
        try:
            more = True
            while more:
                items, metadata = decode_page(await page)
                token = str(metadata.get("continue") or "")
                if more := bool(token):
                    page = self._request_page({"limit": str(PAGE_SIZE), "continue": token})
                    # The server works on it while this page is handed out.
                    await asyncio.sleep(0)
                yield items, metadata
        finally:
            page.cancel()
            await asyncio.gather(page, return_exceptions=True)

    def watch(self, version: str | None, *, lasts_s: float, answers_late: bool) -> AsyncGenerator[bytes, None]:
        """Opens a watch and gives its events, as lines of JSON; wrap it in `contextlib.aclosing` when leaving early.

        Args:
            version: where to go on; None begins with the list (KEP-3157).
            lasts_s: after how many seconds the server ends it.
            answers_late: whether the server may take its time, since it has to list or had trouble before.

        Raises:
            KubeError: refused, or no answer.
        """
        return self._client.api.stream(
            self._path,
            query={
                **self._query,
                **(INITIAL_EVENTS if version is None else {"resourceVersion": version}),
                "watch": "1",
                "allowWatchBookmarks": "true",
                "timeoutSeconds": str(max(int(lasts_s), 1)),
            },
            accept=self._accept,
            idle_timeout_s=lasts_s * SILENCE_GRACE,
            answer_within_s=_ANSWERED_WITHIN_S if version is None or answers_late else _RESUMED_WITHIN_S,
        )

    def _request_page(self, query: Mapping[str, str]) -> asyncio.Task[bytes]:
        answer = self._client.api.request(
            "GET", self._path, query={**self._query, **query}, accept=self._accept_list, timeout_s=_PAGE_WITHIN_S
        )
        return asyncio.create_task(answer, name=f"next page of {self.where}")


def watch_durations(at_most_s: float, *, lists: bool) -> tuple[float, float]:
    """Returns for how long to follow a watch, and for how long to ask the server to let it last.

    Args:
        at_most_s: the longest watch; the shortest is a bit shorter, so that not all end at once.
        lists: whether it begins with the list, which may take longer.
    """
    lasts_s = at_most_s * random.uniform(0.85, 1.0)  # noqa: S311 -- spreads load, guards nothing
    return lasts_s, max(_LISTED_WITHIN_S, lasts_s) if lists else lasts_s
