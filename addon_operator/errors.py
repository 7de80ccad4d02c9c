"""The exception tree of the whole project.

    AddonOperatorError
    ├── InputError            somebody's input is wrong: only a change of it can help
    │   ├── SettingsError     a flag or an environment variable
    │   ├── HookConfigError   the output of `hook --config`, or the hook file itself
    │   ├── SchemaError       openapi/config-values.yaml, openapi/values.yaml
    │   ├── ConfigMapError    the operator's ConfigMap
    │   ├── ModuleError       a module directory: name, values.yaml, chart
    │   ├── YamlError         a YAML document (documents/yamldoc.py)
    │   ├── PatchError        a JSON patch of values (values/patches.py)
    │   ├── ObjectPatchError  KUBERNETES_PATCH_PATH of a hook (kube/patch_ops.py)
    │   └── MetricsError      METRICS_PATH of a hook (metrics/operations.py)
    ├── ValuesRejected        values that break a schema or a patch that cannot be applied
    ├── StaleProposal         values that were changed by somebody else in between (values/store.py)
    ├── HookError             one run of a hook
    │   ├── HookFailed        non-zero exit code
    │   │   └── HookTimedOut  killed at its deadline
    │   ├── BadReply          a result file that cannot be used
    │   └── HookUnreachable   the hook could not be started or reached
    ├── HelmError             helm ended with an error
    ├── KubeError             the API server refused, or could not be reached (status 0)
    ├── LeaseLost             another operator works in this namespace now
    ├── DevClusterError       the local control plane (devcluster/errors.py)
    └── InvariantBroken       a bug in the operator

Every message names the file, hook, module and field at fault. Library exceptions do not leave the package that
calls the library. Messages never contain values, Secrets or patches.
"""

from __future__ import annotations

from collections.abc import Sequence


class AddonOperatorError(Exception):
    """Anything that this project reports as an error.

    Attributes:
        retry_after_s: for how many seconds the other side asks not to be asked again; None if it does not.
    """

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class InputError(AddonOperatorError):
    """Somebody's input is wrong."""


class SettingsError(InputError):
    """A flag or an environment variable is wrong."""


class HookConfigError(InputError):
    """A hook file, or what it prints on `--config`, is wrong."""


class SchemaError(InputError):
    """An OpenAPI schema file is wrong."""


class ConfigMapError(InputError):
    """The operator's ConfigMap is wrong."""


class ModuleError(InputError):
    """A module directory is wrong."""


class ValuesRejected(AddonOperatorError):
    """Values break their schema, or a patch cannot be applied.

    Attributes:
        violations: one line for each violation, each starting with a dotted path.
    """

    def __init__(self, message: str, violations: Sequence[str] = ()) -> None:
        super().__init__("\n".join([message, *(f"  - {line}" for line in violations)]))
        self.violations = tuple(violations)


class HookError(AddonOperatorError):
    """One run of a hook went wrong."""

    @property
    def brief(self) -> str:
        """The message without the output of the hook, for people who may not see it."""
        return str(self)


class HookFailed(HookError):
    """The hook ended with a non-zero exit code or by a signal.

    Attributes:
        object_patch: what it left in `KUBERNETES_PATCH_PATH`, part of which may be meant for this case.
    """

    def __init__(self, message: str, *, stderr: str = "", object_patch: bytes = b"") -> None:
        super().__init__(message + stderr)
        self._message = message
        self.object_patch = object_patch

    @property
    def brief(self) -> str:
        """The message without the output of the hook."""
        return self._message


class HookTimedOut(HookFailed):
    """The hook was killed at its deadline."""


class BadReply(HookError):
    """The hook left a result that cannot be used."""


class HookUnreachable(HookError):
    """The hook could not be started or reached."""


class HelmError(AddonOperatorError):
    """Helm ended with an error."""


class KubeError(AddonOperatorError):
    """The API server refused a request or could not be reached.

    Attributes:
        status: the HTTP status; 0 if there was no answer.
        reason: the machine-readable reason of the API server, such as `NotFound`, or the transport's.
    """

    def __init__(self, message: str, *, status: int, reason: str, retry_after_s: float | None = None) -> None:
        super().__init__(message, retry_after_s=retry_after_s)
        self.status = status
        self.reason = reason

    @property
    def not_found(self) -> bool:
        """Whether the API server itself says that the object does not exist.

        A 404 without its `Status` says nothing about the object: it may come from a proxy in front of it, or from an
        API server that is about to start.
        """
        return self.status == 404 and self.reason == "NotFound"

    @property
    def conflict(self) -> bool:
        """Whether somebody else has written the object in between, so that reading it again helps."""
        return self.status == 409 and self.reason in {"Conflict", "AlreadyExists"}

    def with_message(self, message: str) -> KubeError:
        """Returns the same refusal in other words, such as behind the name of who asked."""
        return KubeError(message, status=self.status, reason=self.reason, retry_after_s=self.retry_after_s)


class LeaseLost(AddonOperatorError):
    """Another operator holds the Lease that this one held."""


class InvariantBroken(AddonOperatorError):
    """A bug in the operator."""
