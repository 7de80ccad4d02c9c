"""The one exception of this package."""

from __future__ import annotations

from addon_operator.errors import AddonOperatorError


class DevClusterError(AddonOperatorError):
    """The local control plane cannot be started, or one of its components ended; shows the end of its log."""
