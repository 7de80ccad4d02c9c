"""For hooks in Python. Standard library only, and nothing of the operator: a hook starts fast.

    #!/usr/bin/env python3
    from addon_operator.sdk import BeforeHelm, Context, hook

    @hook(BeforeHelm(10))
    def main(ctx: Context) -> None:
        ctx.values["myModule.replicas"] = ctx.values["global.discovery.nodeCount"]

    if __name__ == "__main__":
        main()

docs/hook-libraries.md has the whole.
"""

from addon_operator.sdk.bindings import (
    AfterAll,
    AfterDeleteHelm,
    AfterHelm,
    BeforeAll,
    BeforeDeleteHelm,
    BeforeHelm,
    Conversion,
    Kubernetes,
    Mutating,
    OnStartup,
    Rule,
    Schedule,
    Settings,
    Validating,
)
from addon_operator.sdk.contexts import (
    AtPoint,
    AtTime,
    BindingContext,
    ConversionReview,
    Event,
    Group,
    Item,
    Review,
    Synchronization,
)
from addon_operator.sdk.hook import Context, Hook, hook
from addon_operator.sdk.jsondata import JsonInput, JsonObject, JsonValue
from addon_operator.sdk.values import Values

__all__ = [
    "AfterAll",
    "AfterDeleteHelm",
    "AfterHelm",
    "AtPoint",
    "AtTime",
    "BeforeAll",
    "BeforeDeleteHelm",
    "BeforeHelm",
    "BindingContext",
    "Context",
    "Conversion",
    "ConversionReview",
    "Event",
    "Group",
    "Hook",
    "Item",
    "JsonInput",
    "JsonObject",
    "JsonValue",
    "Kubernetes",
    "Mutating",
    "OnStartup",
    "Review",
    "Rule",
    "Schedule",
    "Settings",
    "Synchronization",
    "Validating",
    "Values",
    "hook",
]
