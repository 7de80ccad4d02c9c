"""A real local control plane for demonstrations, tests and benchmarks: `DevCluster`."""

from addon_operator.devcluster.cluster import DevCluster
from addon_operator.devcluster.errors import DevClusterError

__all__ = ["DevCluster", "DevClusterError"]
