#!/usr/bin/env python3
"""Keeps a ConfigMap `platform-inventory`: which modules are on, and how many Pods of each workload are ready.

A module needs no chart: hooks run all the same, and beforeHelm means "at every run of the module".
"""

from __future__ import annotations

import os

from addon_operator.sdk import AfterDeleteHelm, AtPoint, BeforeHelm, Context, Kubernetes, Settings, hook

NAMESPACE = os.environ["ADDON_OPERATOR_NAMESPACE"]
NAME = "platform-inventory"


def workloads(name: str, kind: str, ready: str) -> Kubernetes:
    """Watches the workloads of the platform; those of all kinds are one group, with one context for whatever happens.

    A queue of its own, and nobody waits for it: the inventory must not hold up the platform.
    """
    return Kubernetes(
        name,
        kind=kind,
        namespaces=[NAMESPACE],
        label_selector={"matchLabels": {"app.kubernetes.io/managed-by": "Helm"}},
        jq_filter=f'"\\(.kind) \\(.metadata.name): \\({ready} // 0) of \\(.spec.replicas // 1) ready"',
        keep_full_objects=False,
        queue="inventory",
        wait_for_synchronization=False,
        group="workloads",
    )


@hook(
    BeforeHelm(10),
    AfterDeleteHelm(10),
    workloads("deployments", "Deployment", ".status.readyReplicas"),
    workloads("stateful sets", "StatefulSet", ".status.readyReplicas"),
    # A roll-out changes workloads many times: one run in five seconds shows it, too.
    settings=Settings(min_interval="5s", burst=1),
)
def main(ctx: Context) -> None:
    """Writes the inventory, or removes it with the module."""
    if ctx.bindings[-1] == AtPoint("afterDeleteHelm"):
        ctx.kube.delete("ConfigMap", NAME, namespace=NAMESPACE)
        return
    lines = [str(item.filter_result) for name in ("deployments", "stateful sets") for item in ctx.snapshots[name]]
    ctx.kube.create_or_update(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": NAME, "namespace": NAMESPACE},
            "data": {
                "kubernetesVersion": ctx.values.expect("global.discovery.kubernetesVersion", str),
                "modules": "\n".join(map(str, ctx.values.expect("global.enabledModules", list))),
                "workloads": "\n".join(lines),
            },
        }
    )


if __name__ == "__main__":
    main()
