"""A webhook listener over TLS, with a certificate that is renewed.

It begins to listen when it is first needed, and takes a new certificate without a pause.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import ssl
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from addon_operator.errors import InvariantBroken, SettingsError
from addon_operator.logs import get_logger
from addon_operator.settings import WebhookServer
from addon_operator.webhooks.dispatcher import FindRoute
from addon_operator.webhooks.endpoint import WebhookSettings
from addon_operator.webhooks.server import ReviewServer, limits

if TYPE_CHECKING:  # 75 ms and some MiB that only operators with webhooks pay for
    from addon_operator.webhooks.certificates import Authority, KeyPair

_log = get_logger("webhooks")

_LOOK_AGAIN_S: Final = 60.0
_SLEEP_LEAST_S: Final = 0.1
_SLEEP_MOST_S: Final = 3600.0
_MIB: Final = 2**20
# An object and its former state, at most 3 MiB each for the API server; all objects of a list.
_LARGEST_ADMISSION: Final = 16 * _MIB
_LARGEST_CONVERSION: Final = 256 * _MIB


@dataclasses.dataclass(slots=True)
class _Running:
    """A server that listens, and the certificate that it shows."""

    server: ReviewServer
    context: ssl.SSLContext
    pair: KeyPair


class TlsListener:
    """One server.

    Args:
        settings: where it listens, and the certificate if it has one from a file.
        names: what a certificate of our own must be good for.
        validity_s: how long.
        authority: returns who signs it.
        largest: bytes of a review.
        at_once: reviews that run side by side.
    """

    def __init__(
        self,
        settings: WebhookServer,
        *,
        names: Sequence[str],
        validity_s: float,
        authority: Callable[[], Authority],
        largest: int,
        at_once: int,
    ) -> None:
        self.port = 0
        self._settings = settings
        self._names = tuple(names)
        self._validity_s = validity_s
        self._authority = authority
        self._largest, self._at_once = largest, at_once
        self._running: _Running | None = None

    @property
    def authority(self) -> bytes:
        """What verifies the certificate in use, PEM; empty for public roots.

        Raises:
            InvariantBroken: it does not listen.
        """
        if self._running is None:
            raise InvariantBroken("a webhook server that does not listen has no certificate")
        return self._running.pair.authority

    async def start(self, find_route: FindRoute) -> None:
        """Begins to listen; does nothing if it does.

        Raises:
            SettingsError: the address or the certificate from its files cannot be used.
        """
        from addon_operator.webhooks.certificates import make_context  # noqa: PLC0415 -- see above

        if self._running is None:
            pair = self._make_pair()
            context = make_context(pair, self._settings.client_ca)
            address, port = self._settings.address, self._settings.port
            server = ReviewServer(find_route, at_once=self._at_once, limits=limits(self._largest))
            self.port = await server.start(address=address, port=port, context=context)
            self._running = _Running(server, context, pair)
            _log.info("webhook server listens", address=address, port=self.port)

    async def stop(self) -> None:
        """Ends it; does nothing if it does not listen."""
        running, self._running = self._running, None
        if running is not None:
            await running.server.stop()

    def check(self) -> None:
        """Checks the certificate from files, if it has one.

        Raises:
            SettingsError: it cannot be used.
        """
        if self._settings.cert is not None:
            from addon_operator.webhooks.certificates import make_context  # noqa: PLC0415 -- see above

            make_context(self._make_pair(), self._settings.client_ca)

    def renewal_due_in_s(self, now: datetime.datetime) -> float:
        """Returns when to call `renew` next: seconds from now."""
        if self._settings.cert is not None:
            return _LOOK_AGAIN_S
        due_s = self._validity_s / 3
        if self._running is not None and self._running.pair.renew_at is not None:
            due_s = (self._running.pair.renew_at - now).total_seconds()
        # Not in one piece: the clock may jump.
        return min(max(due_s, _SLEEP_LEAST_S), _SLEEP_MOST_S)

    def renew(self, now: datetime.datetime) -> None:
        """Takes another certificate if this one is old, or if its file has changed; open connections stay.

        If the new one cannot be used, the log says so, and the old one stays.
        """
        if self._running is None:
            return
        renew_at = self._running.pair.renew_at
        if renew_at is not None and now < renew_at:
            return
        try:
            self._replace(self._running)
        except SettingsError as error:
            _log.error("a webhook certificate cannot be renewed, the old one stays in use", error=error)

    def _replace(self, running: _Running) -> None:
        from addon_operator.webhooks.certificates import install  # noqa: PLC0415 -- see above

        pair = self._make_pair()
        if pair != running.pair:
            install(running.context, pair)
            running.pair = pair
            _log.info("webhook certificate renewed", port=self.port)

    def _make_pair(self) -> KeyPair:
        from addon_operator.webhooks.certificates import read  # noqa: PLC0415 -- see above

        cert, key = self._settings.cert, self._settings.key
        if cert is None:
            return self._authority().issue(self._names, validity_s=self._validity_s)
        if key is None:
            raise SettingsError(f"webhooks: {cert} is given without its key")
        return read(cert, key, self._settings.ca)


def tls_listeners(settings: WebhookSettings) -> tuple[TlsListener, TlsListener]:
    """Returns the listeners for admission and for conversion; nothing listens yet. One authority signs for both."""

    @functools.cache
    def authority() -> Authority:
        from addon_operator.webhooks.certificates import Authority  # noqa: PLC0415 -- see above

        return Authority()

    admission, conversion = (
        TlsListener(
            server,
            names=settings.names(server),
            validity_s=settings.validity_s,
            authority=authority,
            largest=largest,
            at_once=settings.at_once,
        )
        for server, largest in (
            (settings.admission, _LARGEST_ADMISSION),
            (settings.conversion, _LARGEST_CONVERSION),
        )
    )
    return admission, conversion
