"""How another server reaches a sandbox that a resources server has opened."""

from nemo_gym.schema.sandbox_access import DirectSandboxConnection, SandboxAccess

__all__ = ["DirectSandboxConnection", "SandboxAccess"]
