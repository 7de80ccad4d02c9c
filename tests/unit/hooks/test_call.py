from __future__ import annotations

from pathlib import Path

from addon_operator.hooks.call import Effects, HookCall, HookId


def test_global_hooks_come_first_then_module_by_module() -> None:
    ids = [HookId("b", "a"), HookId("a", "z"), HookId(None, "z"), HookId("a", "b"), HookId(None, "a")]
    assert sorted(ids) == [HookId(None, "a"), HookId(None, "z"), HookId("a", "b"), HookId("a", "z"), HookId("b", "a")]


def test_messages_tell_hooks_of_the_same_name_apart() -> None:
    assert str(HookId(None, "hooks/x.sh")) == "global hook hooks/x.sh"
    assert str(HookId("alpha", "hooks/x.sh")) == "hook hooks/x.sh of module alpha"


def test_values_are_not_in_the_printed_form() -> None:
    hook = HookId(None, "x")
    call = HookCall(hook, Path("x"), (b'[{"object": "secret"}]',), {"a": "secret"}, {"b": "secret"}, timeout_s=1)
    assert "secret" not in repr(call) + repr(Effects(metrics=b"secret", object_patch=b"secret", response=b"secret"))
