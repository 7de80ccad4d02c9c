"""The pages of the debug socket: which address answers what, as document, text and commented YAML.

Pure: from the views of an Inspector to pages. `server.debug` serves `ROUTES`; what documents contain is in
`documents.py`, how text is laid out in `texts.py`. Source: contract.md 2.17.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Literal

from addon_operator.documents import jsondoc, yamldoc
from addon_operator.documents.jsondoc import JsonObject, JsonValue
from addon_operator.server import documents, texts
from addon_operator.server.inspector import MAIN_QUEUE, Inspector
from addon_operator.server.layout import commented_yaml, printable

Format = Literal["text", "yaml", "json"]


@dataclasses.dataclass(frozen=True, slots=True)
class Query:
    """The parameters of a request.

    Attributes:
        module: name of the module in the path, empty if there is none.
        show_empty: include empty queues.
        with_global: include the global section.
        with_origin: show where each value came from.
    """

    module: str = ""
    show_empty: bool = False
    with_global: bool = False
    with_origin: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Page:
    """One answer in all its formats.

    Attributes:
        document: what JSON shows, and YAML unless `yaml` is set.
        text: for people.
        yaml: the document with comments.
    """

    document: JsonValue
    text: str = ""
    yaml: str | None = None

    def encode(self, form: Format) -> bytes:
        """Writes the page in one format; always ends with a line end."""
        match form:
            case "json":
                return jsondoc.dumps(self.document) + b"\n"
            case "yaml":
                return (yamldoc.dump(self.document) if self.yaml is None else self.yaml).encode()
            case "text":
                return printable(self.text).encode(errors="replace")


@dataclasses.dataclass(frozen=True, slots=True)
class Route:
    """One address of the debug socket.

    Attributes:
        path: without the dot and the format; `{module}` stands for a module's name.
        formats: those it is served in.
    """

    path: str
    formats: tuple[Format, ...]
    answer: Callable[[Inspector, Query], Page]


def queue_list(inspector: Inspector, query: Query) -> Page:
    """Shows all queues: `main` first, the others by name; empty ones only if asked for."""
    queues = sorted(inspector.queues(), key=lambda queue: (queue.name != MAIN_QUEUE, queue.name))
    active = [queue for queue in queues if queue.tasks]
    empty = [queue for queue in queues if not queue.tasks]
    shown = empty if query.show_empty else []
    queues_text = "".join(map(texts.queue_text, active)) + texts.empty_queues_text(shown)
    document: JsonObject = {
        "active": [documents.queue_document(queue) for queue in active],
        "empty": [documents.queue_document(queue) for queue in shown],
        "summary": documents.summary_document(queues),
        "apiServerAwaySince": _away_since(inspector),
    }
    return Page(document, texts.notes(inspector.notices()) + queues_text + texts.summary_text(queues))


def queue_main(inspector: Inspector, _query: Query) -> Page:
    """Shows the queue `main` only."""
    main = next(queue for queue in inspector.queues() if queue.name == MAIN_QUEUE)
    return Page(documents.queue_document(main), texts.queue_text(main).rstrip("\n") + "\n")


def global_list(inspector: Inspector, _query: Query) -> Page:
    """Names the global hooks."""
    return Page({"globalHooks": list(inspector.global_hooks())})


def global_values(inspector: Inspector, _query: Query) -> Page:
    """Shows the effective global values, not wrapped into `global`."""
    return Page(inspector.global_values())


def global_config(inspector: Inspector, _query: Query) -> Page:
    """Shows the global section of the ConfigMap, not wrapped into `global`."""
    return Page(inspector.global_config())


def global_patches(inspector: Inspector, _query: Query) -> Page:
    """Shows the stored patches of global values."""
    return Page(documents.patches_document(inspector.global_patches()))


def global_snapshots(inspector: Inspector, _query: Query) -> Page:
    """Shows the snapshots of global hooks."""
    return Page(inspector.global_snapshots())


def module_list(inspector: Inspector, _query: Query) -> Page:
    """Lists all modules in run order, disabled ones too; `enabledModules` has the sorted names of the enabled ones."""
    modules = inspector.modules()
    document: JsonObject = {
        "enabledModules": [*sorted(module.name for module in modules if module.enabled)],
        "modules": [documents.module_document(module) for module in modules],
        "apiServerAwaySince": _away_since(inspector),
        "held": documents.held_document(inspector.held()),
    }
    return Page(
        document,
        texts.notes(inspector.notices()) + texts.failing_heads(inspector.queues()) + texts.modules_table(modules),
    )


def removals_list(inspector: Inspector, _query: Query) -> Page:
    """Lists what is held: neither upgraded nor removed until a person decides."""
    return Page(documents.held_document(inspector.held()), texts.held_table(inspector.held()))


def module_values(inspector: Inspector, query: Query) -> Page:
    """Shows effective values under the module's camelCase key; with origins, YAML gets a comment at each leaf."""
    values = inspector.module_values(query.module, with_global=query.with_global)
    if not query.with_origin:
        return Page(values)
    origins = inspector.module_origins(query.module, with_global=query.with_global)
    return Page({"values": values, "origins": dict(origins)}, yaml=commented_yaml(values, origins))


def module_config(inspector: Inspector, query: Query) -> Page:
    """Shows the ConfigMap's section under the module's camelCase key."""
    return Page(inspector.module_config(query.module, with_global=query.with_global))


def module_patches(inspector: Inspector, query: Query) -> Page:
    """Shows the stored patches of a module's values."""
    return Page(documents.patches_document(inspector.module_patches(query.module)))


def module_snapshots(inspector: Inspector, query: Query) -> Page:
    """Shows the snapshots of a module's hooks."""
    return Page(inspector.module_snapshots(query.module))


def resource_monitor(inspector: Inspector, _query: Query) -> Page:
    """Shows which objects of which module are watched for absence."""
    watched = inspector.resource_monitor()
    return Page(documents.monitor_document(watched), texts.monitor_text(watched))


def module_explain(inspector: Inspector, query: Query) -> Page:
    """Shows why a module is in its state: sources of the flag, script, release, last error."""
    view = inspector.module_explain(query.module)
    return Page(
        documents.explain_document(view),
        texts.notes(inspector.notices()) + texts.failing_heads(inspector.queues()) + texts.explain_text(view),
    )


def config_list(inspector: Inspector, _query: Query) -> Page:
    """Shows what can be changed at run time."""
    parameters = inspector.parameters()
    return Page(documents.parameters_document(parameters), texts.parameters_table(parameters))


def _away_since(inspector: Inspector) -> str | None:
    away = inspector.api_server_away_since()
    return None if away is None else away.isoformat(timespec="seconds")


_DATA: tuple[Format, ...] = ("yaml", "json")
_ALL: tuple[Format, ...] = ("text", "yaml", "json")

ROUTES: tuple[Route, ...] = (
    Route("/queue/list", _ALL, queue_list),
    Route("/queue/main", _ALL, queue_main),
    Route("/global/list", _DATA, global_list),
    Route("/global/values", _DATA, global_values),
    Route("/global/config", _DATA, global_config),
    Route("/global/patches", _DATA, global_patches),
    Route("/global/snapshots", _DATA, global_snapshots),
    Route("/module/list", _ALL, module_list),
    Route("/module/resource-monitor", _ALL, resource_monitor),
    Route("/module/{module}/values", _DATA, module_values),
    Route("/module/{module}/config", _DATA, module_config),
    Route("/module/{module}/patches", _DATA, module_patches),
    Route("/module/{module}/snapshots", _DATA, module_snapshots),
    Route("/module/{module}/explain", _ALL, module_explain),
    Route("/config/list", _ALL, config_list),
    Route("/removals/list", _ALL, removals_list),
)
