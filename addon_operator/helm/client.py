"""The helm program: one method for each of its commands that is needed.

It only runs helm and returns the outcome; what has to be run is decided in `release.py` and `deploy.py`.
Source: contract.md 2.12.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from addon_operator.documents import jsondoc
from addon_operator.documents.jsondoc import JsonObject
from addon_operator.errors import HelmError
from addon_operator.helm import manifest, release_size
from addon_operator.helm.binary import HelmBinary, helm_environment, make_home
from addon_operator.helm.chart import chart_files, prepare_chart
from addon_operator.helm.labels import add_labels
from addon_operator.helm.manifest import Document
from addon_operator.helm.relay import relayed
from addon_operator.helm.release import FINGERPRINT_LABEL, REVISION_LABEL
from addon_operator.helm.release_record import hooks_of
from addon_operator.helm.stderr import explain, is_too_large
from addon_operator.kube.credentials import Credentials
from addon_operator.kube.discovery import Discovery
from addon_operator.kube.refs import ObjectKey
from addon_operator.logs import get_logger
from addon_operator.process import child
from addon_operator.process.private_directory import PrivateDirectory
from addon_operator.values.layers import EnabledBy

_MAY_BE_LARGE: Final = 500_000
_LARGEST_OUTPUT: Final = 128 * 2**20
# Above helm's own deadline, so that it can report what it waited for.
_LATER_S: Final = 30.0
_WORTH_A_LINE_S: Final = 2.0

_log = get_logger("helm")


@dataclasses.dataclass(frozen=True, slots=True)
class ChartRequest:
    """What shall be deployed.

    Attributes:
        name: of the module and its release.
        module_dir: the module's directory.
        values: what helm gets, `global` and the module's section.
        enabled_by: what enables the module; noted on the release.
    """

    name: str
    module_dir: Path
    values: JsonObject
    enabled_by: EnabledBy = dataclasses.field(default_factory=EnabledBy)


@dataclasses.dataclass(frozen=True, slots=True)
class UpgradeResult:
    """What a successful `helm upgrade` has done.

    Attributes:
        revision: that it made.
        rendered: digest of the rendering.
        checksum: MD5 of the manifest.
        objects: what the release consists of, without Helm hooks and what goes away by itself.
    """

    revision: int
    rendered: str
    checksum: str
    objects: tuple[ObjectKey, ...]


class _Unchanged(Exception):
    """The manifest is the one that is deployed already."""


class HelmClient:
    """Runs helm against one cluster and namespace. Cancellation ends a running helm at once (`deploy.py` waits)."""

    def __init__(
        self,
        *,
        kube: Credentials,
        binary: HelmBinary,
        namespace: str,
        tmp_dir: PrivateDirectory,
        cache_dir: PrivateDirectory,
        environment: Mapping[str, str],
        timeout_s: float,
        history_max: int,
        extra_labels: Iterable[tuple[str, str]] = (),
        keep_files: bool = False,
        on_operation: Callable[[str, str, float], None] = lambda _module, _operation, _duration_s: None,
    ) -> None:
        """Prepares; runs nothing.

        Args:
            kube: where the cluster is, and who we are.
            binary: the program.
            namespace: of all releases.
            tmp_dir: for the files of runs.
            cache_dir: for what helm keeps between them.
            environment: of the operator.
            timeout_s: HELM_TIMEOUT.
            history_max: HELM_HISTORY_MAX.
            extra_labels: put on every object.
            keep_files: keeps the files of runs.
            on_operation: receives module, operation (`template`, `upgrade`, `uninstall`) and duration in seconds.
        """
        self._kube, self._binary, self._namespace = kube, binary, namespace
        self._runs, self._home = tmp_dir, cache_dir
        self._environment = helm_environment(environment, kube.child_environment(), cache_dir.path)
        self._timeout_s, self._history_max = timeout_s, history_max
        self._labels = dict(extra_labels)
        self._keep_files = keep_files
        self._on_operation = on_operation

    @property
    def version(self) -> str:
        """The version of helm."""
        return self._binary.version

    @property
    def extra_labels(self) -> tuple[tuple[str, str], ...]:
        """The labels that are put on every object."""
        return tuple(self._labels.items())

    async def upgrade(
        self, request: ChartRequest, fingerprint: str, *, revision: int, unless: str | None = None
    ) -> UpgradeResult | None:
        """Installs or upgrades the release, taking over objects that exist already.

        Args:
            request: what.
            fingerprint: of the request; becomes a label of the release.
            revision: that it makes; becomes a label as well.
            unless: a digest; if the chart renders to it, helm is stopped before it changes anything, and the answer is
                None. Only for charts without Helm hooks, which helm does not show while it renders.

        Raises:
            HelmError: helm failed; the message names the module and what helm says.
            ModuleError: the chart cannot be read.
        """
        seen: list[Sequence[Document]] = []

        def edit(data: bytes) -> bytes:
            parts = manifest.documents(data.decode("utf-8", "replace"))
            seen.append(parts)
            if unless is not None and manifest.rendered_digest(parts) == unless:
                raise _Unchanged
            return (add_labels(parts, self._labels) or manifest.NOTHING).encode()

        with self._run_directory(request.name) as directory:
            chart = prepare_chart(request.module_dir, request.name, directory)
            labels = f"{FINGERPRINT_LABEL}={fingerprint},{REVISION_LABEL}={revision}"
            argv = self._upgrade(request, chart, directory, "--labels", labels)
            try:
                async with relayed(directory, edit) as flags:
                    ended, output = await self._run("upgrade", request.name, [*argv, *flags])
            except _Unchanged:
                return None
            parts = seen[0] if seen else ()
            if ended.code and is_too_large(ended.stderr_tail):
                reason = await asyncio.to_thread(_explain_excess, chart, parts)
                raise HelmError(f"module {request.name}: {reason}")
        self._check("upgrade", request.name, ended)
        await self._watch_size(request.name, parts, output)
        return _result(request.name, parts, output)

    async def template(self, request: ChartRequest, *, kube_version: str, apis: Discovery, exact: bool) -> str:
        """Renders the chart as an upgrade of the existing release would; returns its digest, Helm hooks included.

        Args:
            request: what.
            kube_version: of the cluster.
            apis: of the cluster.
            exact: asks the cluster itself, which takes twice as long: for charts that look into it, and since helm
                adds APIs of its own to those that it is told.

        Raises:
            HelmError: the chart does not render; names the module and what helm says.
            ModuleError: the chart cannot be read.
        """
        with self._run_directory(request.name) as directory:
            chart = prepare_chart(request.module_dir, request.name, directory)
            if exact:
                argv = self._upgrade(request, chart, directory, "--dry-run=server")
            else:
                versions = ",".join(apis.api_versions())
                argv = self._command("template", request.name, chart, *self._input(request, directory))
                argv += ["--is-upgrade", "--kube-version", kube_version, "--api-versions", versions]
            ended, output = await self._run("template", request.name, argv)
        self._check("template", request.name, ended)
        if not exact:
            return manifest.rendered_digest(manifest.documents(output.decode("utf-8", "replace")))
        release = _release(request.name, output)
        return manifest.rendered_digest(manifest.documents(str(release.get("manifest") or "")), hooks_of(release))

    async def uninstall(self, name: str, *, keep_record: bool = False) -> None:
        """Removes a release and its objects, in whatever status it is; one that does not exist is fine.

        Args:
            name: of the release.
            keep_record: keeps its records, with the status `uninstalled`.

        Raises:
            HelmError: helm failed.
        """
        argv = self._command("uninstall", name, "--ignore-not-found", "--timeout", f"{self._timeout_s:g}s")
        argv += ["--keep-history"] if keep_record else []
        ended, _ = await self._run("uninstall", name, argv)
        self._check("uninstall", name, ended)

    def _command(self, *words: str | Path) -> list[str]:
        flags = ["--namespace", self._namespace, *self._kube.helm_flags()]
        return [str(self._binary.path), *map(str, words), *flags]

    def _upgrade(self, request: ChartRequest, chart: Path, directory: Path, *flags: str) -> list[str]:
        return self._command(
            "upgrade",
            request.name,
            chart,
            "--install",
            *self._input(request, directory),
            # Without it helm takes the values of the last revision when it is given none.
            "--reset-values",
            "--history-max",
            str(self._history_max),
            "--timeout",
            f"{self._timeout_s:g}s",
            "--disable-openapi-validation",
            "--take-ownership",
            "--output",
            "json",
            *flags,
        )

    def _input(self, request: ChartRequest, directory: Path) -> list[str]:
        path = directory / "values.json"
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(jsondoc.dumps(request.values))
        return ["--values", str(path), "--skip-crds"]

    @contextlib.contextmanager
    def _run_directory(self, name: str) -> Iterator[Path]:
        try:
            directory = self._runs.make_unique(f"{name}-")
        except OSError as error:
            raise _unusable(name, error) from error
        try:
            yield directory
        except OSError as error:
            raise _unusable(name, error) from error
        finally:
            if not self._keep_files:
                shutil.rmtree(directory, ignore_errors=True)

    async def _run(self, operation: str, name: str, argv: Sequence[str]) -> tuple[child.Exit, bytes]:
        try:
            make_home(self._home)
        except OSError as error:
            raise _unusable(name, error) from error
        progress = asyncio.get_running_loop().call_later(
            _WORTH_A_LINE_S, lambda: _log.info("helm is still running", module=name, operation=operation)
        )
        try:
            ended, output = await child.capture(
                argv, env=self._environment, timeout_s=self._timeout_s + _LATER_S, max_bytes=_LARGEST_OUTPUT
            )
        except OSError as error:
            raise HelmError(f"module {name}: helm {operation}: {error.strerror}") from error
        finally:
            progress.cancel()
        self._on_operation(name, operation, ended.duration_s)
        return ended, output

    def _check(self, operation: str, name: str, ended: child.Exit) -> None:
        if ended.code == 0:
            return
        late = f" did not end within {self._timeout_s + _LATER_S:g} s" if ended.timed_out else ""
        because = explain(ended.stderr_tail)
        if not ended.stderr_tail and ended.code < 0:
            because = f"ended by signal {-ended.code}"
        raise HelmError(f"module {name}: helm {operation}{late}: {because}")

    async def _watch_size(self, name: str, parts: Sequence[Document], output: bytes) -> None:
        size = await asyncio.to_thread(release_size.stored_size, [output]) if len(output) > _MAY_BE_LARGE else 0
        if reason := release_size.warning(size, parts):
            _log.warning("the release is almost too large to be stored", module=name, reason=reason)


def _explain_excess(chart: Path, parts: Sequence[Document]) -> str:
    return release_size.explain_excess(parts, [base64.b64encode(path.read_bytes()) for path in chart_files(chart)])


def _unusable(name: str, error: OSError) -> HelmError:
    return HelmError(f"module {name}: files for helm: {error.filename}: {error.strerror}")


def _result(name: str, parts: Sequence[Document], output: bytes) -> UpgradeResult:
    release = _release(name, output)
    revision, text = release.get("version"), release.get("manifest")
    if not isinstance(revision, int):
        raise HelmError(f"module {name}: helm upgrade: no revision in its output")
    return UpgradeResult(
        revision=revision,
        rendered=manifest.rendered_digest(parts, hooks_of(release)),
        checksum=manifest.checksum(str(text or "")),
        objects=tuple(item.key for item in manifest.objects(parts) if item.lasting),
    )


def _release(name: str, output: bytes) -> JsonObject:
    try:
        release = jsondoc.loads(output)
    except ValueError as error:
        raise HelmError(f"module {name}: helm upgrade: its output is not JSON") from error
    return release if isinstance(release, dict) else {}
