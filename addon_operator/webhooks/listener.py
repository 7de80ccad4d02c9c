"""One of the two servers with its certificate.

It begins to listen when it is first needed, and takes a new certificate without a pause.
"""

from __future__ import annotations

import datetime
import ssl
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from addon_operator.errors import InvariantBroken, SettingsError
from addon_operator.logs import get_logger
from addon_operator.settings import WebhookServer
from addon_operator.webhooks.server import ReviewServer

if TYPE_CHECKING:  # 75 ms and some MiB that only operators with webhooks pay for
    from addon_operator.webhooks.certificates import Authority, KeyPair

_log = get_logger("webhooks")

_LOOK_AGAIN_S: Final = 60.0
_SLEEP_LEAST_S: Final = 0.1
_SLEEP_MOST_S: Final = 3600.0


class Listener:
    """One server.

    Args:
        chosen: where it listens, and the certificate if one is given.
        server: what answers.
        names: what a certificate of our own must be good for.
        validity_s: how long.
        authority: signs it.
    """

    def __init__(
        self,
        chosen: WebhookServer,
        server: ReviewServer,
        *,
        names: Sequence[str],
        validity_s: float,
        authority: Callable[[], Authority],
    ) -> None:
        self.chosen = chosen
        self.port = 0
        self._server = server
        self._names = tuple(names)
        self._validity_s = validity_s
        self._authority = authority
        self._pair: KeyPair | None = None
        self._context: ssl.SSLContext | None = None

    @property
    def authority(self) -> bytes:
        """Answers what verifies the certificate in use, PEM; empty for public roots.

        Raises:
            InvariantBroken: it does not listen.
        """
        if self._pair is None:
            raise InvariantBroken("a webhook server that does not listen has no certificate")
        return self._pair.authority

    async def start(self) -> None:
        """Begins to listen; does nothing if it does.

        Raises:
            SettingsError: the address or the given certificate cannot be used.
        """
        from addon_operator.webhooks.certificates import make_context  # noqa: PLC0415 -- see above

        if self._context is None:
            pair = self._make_pair()
            context = make_context(pair, self.chosen.client_ca)
            address, port = self.chosen.address, self.chosen.port
            self.port = await self._server.start(address=address, port=port, context=context)
            self._pair, self._context = pair, context
            _log.info("webhook server listens", reason=f"{address}:{self.port}")

    async def stop(self) -> None:
        """Ends it; does nothing if it does not listen."""
        await self._server.stop()
        self._pair = self._context = None

    def check(self) -> None:
        """Checks the given certificate, if there is one.

        Raises:
            SettingsError: it cannot be used.
        """
        if self.chosen.cert is not None:
            from addon_operator.webhooks.certificates import make_context  # noqa: PLC0415 -- see above

            make_context(self._make_pair(), self.chosen.client_ca)

    def wait_s(self, now: datetime.datetime) -> float:
        """Answers when to call `renew` next: seconds from now."""
        if self.chosen.cert is not None:
            return _LOOK_AGAIN_S
        due_s = self._validity_s / 3
        if self._pair is not None and self._pair.renew_at is not None:
            due_s = (self._pair.renew_at - now).total_seconds()
        # Not in one piece: the clock may jump.
        return min(max(due_s, _SLEEP_LEAST_S), _SLEEP_MOST_S)

    def renew(self, now: datetime.datetime) -> None:
        """Takes another certificate if this one is old, or if its file has changed; open connections stay.

        If the new one cannot be used, the log says so, and the old one stays.
        """
        if self._pair is None or self._context is None:
            return
        if self._pair.renew_at is not None and now < self._pair.renew_at:
            return
        try:
            self._replace(self._context, self._pair)
        except SettingsError as error:
            _log.error("a webhook certificate cannot be renewed", error=error)

    def _replace(self, context: ssl.SSLContext, before: KeyPair) -> None:
        from addon_operator.webhooks.certificates import install  # noqa: PLC0415 -- see above

        pair = self._make_pair()
        if pair != before:
            install(context, pair)
            self._pair = pair
            _log.info("webhook certificate renewed", reason=f"port {self.port}")

    def _make_pair(self) -> KeyPair:
        from addon_operator.webhooks.certificates import read  # noqa: PLC0415 -- see above

        cert, key = self.chosen.cert, self.chosen.key
        if cert is None:
            return self._authority().issue(self._names, validity_s=self._validity_s)
        if key is None:
            raise SettingsError(f"webhooks: {cert} is given without its key")
        return read(cert, key, self.chosen.ca)
