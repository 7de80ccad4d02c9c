"""Certificates of the webhook servers: generated here, or read from files.

Keys that are made here stay in memory: a new process makes new ones and registers them (docs/decisions). The authority
lives as long as the process, so that a renewed certificate is trusted by whoever trusts the one before.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import ssl
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from addon_operator.errors import SettingsError

# The API server's clock may be behind.
_BACKDATED: Final = datetime.timedelta(hours=1)
_AUTHORITY_VALIDITY: Final = datetime.timedelta(days=3650)
_RENEWED_AFTER: Final = 2 / 3


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate with its key.

    Attributes:
        chain: PEM, leaf first.
        key: PEM, not encrypted.
        authority: what verifies the chain, PEM; empty for public roots.
        renew_at: when the next one should take its place; None for one that others renew.
    """

    chain: bytes
    key: bytes = field(repr=False)
    authority: bytes
    renew_at: datetime.datetime | None


class Authority:
    """Signs the certificates of one process."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "addon-operator webhooks")])
        public, now = self._key.public_key(), _now()
        # Only leaves of this authority are trusted, so that its key cannot make other authorities.
        self._certificate = (
            _builder(self._name, self._name, public, until=now + _AUTHORITY_VALIDITY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .sign(self._key, hashes.SHA256())
        )

    def issue(self, names: Sequence[str], *, validity_s: float) -> KeyPair:
        """Makes a serving certificate.

        Args:
            names: DNS names and addresses.
            validity_s: from now on.
        """
        key, now = ec.generate_private_key(ec.SECP256R1()), _now()
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "addon-operator")])
        public = key.public_key()
        certificate = (
            _builder(subject, self._name, public, until=now + datetime.timedelta(seconds=validity_s))
            .add_extension(x509.SubjectAlternativeName([_general(name) for name in names]), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return KeyPair(
            chain=certificate.public_bytes(serialization.Encoding.PEM),
            key=key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            ),
            authority=self._certificate.public_bytes(serialization.Encoding.PEM),
            renew_at=now + datetime.timedelta(seconds=validity_s * _RENEWED_AFTER),
        )


def read(cert: Path, key: Path, ca: Path | None) -> KeyPair:
    """Reads a certificate from its files.

    Raises:
        SettingsError: a file cannot be read.
    """
    return KeyPair(_content(cert), _content(key), _content(ca) if ca is not None else b"", None)


def make_context(pair: KeyPair, client_ca: Iterable[Path]) -> ssl.SSLContext:
    """Makes what a server needs for TLS; with `client_ca` clients must show a certificate.

    Raises:
        SettingsError: a certificate or key cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    for path in client_ca:
        try:
            context.load_verify_locations(cafile=path)
        except OSError as error:
            raise SettingsError(f"webhooks: client CA {path}: {error.strerror or error}") from error
        context.verify_mode = ssl.CERT_REQUIRED
    install(context, pair)
    return context


def install(context: ssl.SSLContext, pair: KeyPair) -> None:
    """Uses a certificate for all connections to come; those that are open stay.

    Raises:
        SettingsError: certificate and key cannot be used, or do not belong together.
    """
    # Half a pair would stay in a context that refused the other half.
    _load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), pair)
    _load(context, pair)


def _load(context: ssl.SSLContext, pair: KeyPair) -> None:
    # The library reads files only; this one is never on a disk.
    file = os.memfd_create("webhook-certificate", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(file), "wb") as content:
            content.write(pair.key.rstrip() + b"\n" + pair.chain)
        context.load_cert_chain(f"/proc/self/fd/{file}")
    except (ssl.SSLError, ValueError) as error:
        raise SettingsError("webhooks: the server certificate and its key cannot be used together") from error
    finally:
        os.close(file)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise SettingsError(f"webhooks: {path}: {error.strerror or error}") from error


def _builder(
    subject: x509.Name, issuer: x509.Name, public: ec.EllipticCurvePublicKey, *, until: datetime.datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(_now() - _BACKDATED)
        .not_valid_after(until)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return _dns_name(name)


def _dns_name(name: str) -> x509.DNSName:
    try:
        return x509.DNSName(name)
    except ValueError as error:
        raise SettingsError(f"webhooks: {name!r} is neither a DNS name nor an address") from error


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
