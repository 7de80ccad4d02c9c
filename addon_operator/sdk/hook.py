"""The decorator that makes a hook of a function, and what the function is given."""

from __future__ import annotations

import functools
import json
import os
import re
import signal
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from addon_operator.sdk import bindings as declared
from addon_operator.sdk import contexts
from addon_operator.sdk.jsondata import JsonObject, JsonValue
from addon_operator.sdk.operations import AdmissionAnswer, ConversionAnswer, Kube, Metrics
from addon_operator.sdk.values import Values

_VALUES: Final = "VALUES_PATH"
_CONFIG_VALUES: Final = "CONFIG_VALUES_PATH"
_CONTEXTS: Final = "BINDING_CONTEXT_PATH"
_OBJECT_PATCH: Final = "KUBERNETES_PATCH_PATH"
_TERMINATED: Final = 128 + signal.SIGTERM


class Context:
    """What one run of a hook is about, and what it asks for. Files are read when they are needed first.

    Attributes:
        values: all values: `global` and the module's own.
        config_values: what the ConfigMap says; changes to them are kept there.
        metrics: metrics of the hook.
        kube: changes to objects.
        admission: the answer to a `Review`.
        conversion: the answer to a `ConversionReview`.
    """

    def __init__(self, read: Callable[[str], JsonValue], *, watched: Iterable[str] = ()) -> None:
        """Takes what reads a document by its variable, such as `VALUES_PATH`.

        Args:
            read: called at most once for each variable.
            watched: names of the hook's `Kubernetes` bindings.
        """
        self._read = functools.cache(read)
        self._watched = tuple(watched)
        self.values = Values(lambda: self._copy(_VALUES))
        self.config_values = Values(lambda: self._copy(_CONFIG_VALUES))
        self.metrics = Metrics()
        self.kube = Kube()
        self.admission = AdmissionAnswer()
        self.conversion = ConversionAnswer()

    @functools.cached_property
    def bindings(self) -> tuple[contexts.BindingContext, ...]:
        """What happened, in order; several things may come in one run."""
        return tuple(map(contexts.read_context, self._contexts))

    @functools.cached_property
    def snapshots(self) -> Mapping[str, tuple[contexts.Item, ...]]:
        """The objects that each `Kubernetes` binding remembers, by namespace and name.

        Only what this run was given: `["name"]` of another binding is a LookupError that says who has to ask for it.
        """
        found = contexts.Snapshots(self._watched, (happened.binding for happened in self.bindings))
        for document in self._contexts:
            found |= contexts.read_snapshots(document)
        return found

    @property
    def module(self) -> str | None:
        """The name of the hook's module, such as `l2-load-balancer`; None for a global hook."""
        document = self._read(_VALUES)
        keys = [key for key in document if key != "global"] if isinstance(document, dict) else []
        return re.sub("[A-Z]", lambda upper: f"-{upper[0].lower()}", keys[0]) if keys else None

    def results(self, *, failed: bool = False) -> dict[str, str]:
        """Returns what belongs into the result files, by variable; files without a change are left out.

        Args:
            failed: leaves out all but changes to objects, of which the operator makes those with `ignore_hook_error`.
        """
        answers = {"ADMISSION_RESPONSE_PATH": self.admission.answer, "CONVERSION_RESPONSE_PATH": self.conversion.answer}
        operations = {
            "VALUES_JSON_PATCH_PATH": self.values.patch(),
            "CONFIG_VALUES_JSON_PATCH_PATH": self.config_values.patch(),
            "METRICS_PATH": self.metrics.operations,
            _OBJECT_PATCH: self.kube.operations,
            **{variable: [answer] for variable, answer in answers.items() if answer},
        }
        written = {_OBJECT_PATCH} if failed else operations.keys()
        return {variable: "".join(map(_line, operations[variable])) for variable in written if operations[variable]}

    @functools.cached_property
    def _contexts(self) -> list[JsonValue]:
        document = self._read(_CONTEXTS)
        if not isinstance(document, list):
            raise TypeError(f"{_CONTEXTS} holds no list")
        return document

    def _copy(self, variable: str) -> JsonValue:
        """Returns a document whose maps can be changed without changing what `_read` keeps."""
        document = self._read(variable)
        return dict(document) if isinstance(document, dict) else document


class Hook:
    """A function with its bindings; `hook` makes one.

    Attributes:
        function: the function, for tests.
        bindings: what it is bound to.
    """

    def __init__(
        self,
        function: Callable[[Context], None],
        bindings: tuple[declared.Binding, ...],
        settings: declared.Settings | None,
    ) -> None:
        self.function = function
        self.bindings = bindings
        self._config = declared.configuration(bindings, settings)

    def __call__(self) -> None:
        """Does what the operator wants: with `--config` prints the configuration, else runs the function."""
        if sys.argv[1:] == ["--config"]:
            sys.stdout.write(json.dumps(self._config) + "\n")
        else:
            # At its deadline a hook is asked to end: what is to be done all the same has to be written then.
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(_TERMINATED))
            self.run(os.environ)

    def config(self) -> JsonObject:
        """Returns what `--config` prints."""
        return self._config

    def run(self, environment: Mapping[str, str]) -> None:
        """Runs the function once; writes what it asks for when it has returned.

        If it raises, only changes to objects are written: the operator makes those with `ignore_hook_error`.

        Args:
            environment: variables with the paths of the files (contract.md 2.4).
        """
        watched = (binding.name for binding in self.bindings if isinstance(binding, declared.Kubernetes))
        context = Context(lambda variable: json.loads(_path(environment, variable).read_bytes()), watched=watched)
        try:
            self.function(context)
        except BaseException as error:
            failed = not isinstance(error, SystemExit) or error.code not in (None, 0)
            _write(context.results(failed=failed), environment)
            raise
        _write(context.results(), environment)


def hook(
    *bindings: declared.Binding, settings: declared.Settings | None = None
) -> Callable[[Callable[[Context], None]], Hook]:
    """Makes a hook of a function.

    The result is called without arguments at the end of the script: `if __name__ == "__main__": main()`.

    Raises:
        ValueError: no binding, or two of the same point.
    """
    return lambda function: Hook(function, bindings, settings)


def _write(results: Mapping[str, str], environment: Mapping[str, str]) -> None:
    texts = {_path(environment, variable): text for variable, text in results.items()}
    for path, text in texts.items():
        with path.open("a", encoding="utf-8") as file:
            file.write(text)


def _path(environment: Mapping[str, str], variable: str) -> Path:
    try:
        return Path(environment[variable])
    except KeyError:
        raise LookupError(f"{variable} is not set: it comes from the operator") from None


def _line(operation: JsonValue) -> str:
    return json.dumps(operation) + "\n"
