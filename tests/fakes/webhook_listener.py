"""A webhook listener without sockets: reviews are posted to it by a call, also in virtual time."""

from __future__ import annotations

import datetime
import ssl

from addon_operator.errors import InvariantBroken
from addon_operator.webhooks.dispatcher import FindRoute, Reply, ReviewDispatcher

PORT = 9680


class FakeWebhookListener:
    """Answers reviews as the real one does, by the same dispatcher.

    Attributes:
        port: 0 before it listens.
        next_authority: what verifies its certificate when it begins to listen, or after the next renewal.
    """

    def __init__(self, *, largest: int = 2**20, at_once: int = 16) -> None:
        """Does not listen.

        Args:
            largest: bytes of a review.
            at_once: reviews that run side by side.
        """
        self.port = 0
        self.next_authority = b"authority 1"
        self._largest, self._at_once = largest, at_once
        self._authority = b""
        self._reviews: ReviewDispatcher | None = None

    @property
    def authority(self) -> bytes:
        """What verifies its certificate."""
        if self._reviews is None:
            raise InvariantBroken("a webhook server that does not listen has no certificate")
        return self._authority

    def check(self) -> None:
        """Nothing is given from outside."""

    async def start(self, find_route: FindRoute) -> None:
        """Begins to answer."""
        if self._reviews is None:
            self._reviews = ReviewDispatcher(find_route, at_once=self._at_once)
            self.port, self._authority = PORT, self.next_authority

    async def stop(self) -> None:
        """Answers no longer."""
        reviews, self._reviews = self._reviews, None
        if reviews is not None:
            await reviews.stop()

    def renewal_due_in_s(self, now: datetime.datetime) -> float:
        """Once a minute, as with a certificate from a file."""
        return 60.0

    def renew(self, now: datetime.datetime) -> None:
        """Takes the next authority."""
        self._authority = self.next_authority

    async def post(self, path: str, body: bytes, *, authority: bytes) -> Reply:
        """Sends a review as the API server does.

        Args:
            path: from the registration.
            body: of the request.
            authority: what the client trusts.

        Raises:
            ConnectionRefusedError: it does not listen.
            SSLCertVerificationError: the authority is another one.
        """
        if self._reviews is None:
            raise ConnectionRefusedError("nobody listens")
        if authority != self._authority:
            raise ssl.SSLCertVerificationError("certificate signed by unknown authority")

        async def receive() -> bytes:
            if len(body) > self._largest:
                raise _TooLargeError
            return body

        try:
            return await self._reviews.answer(path, receive)
        except _TooLargeError:
            return Reply(413, b"")


class _TooLargeError(Exception):
    """A body that the server does not take."""
