"""Remote models as policies: four formats over one HTTP client (ALGORITHMS 6)."""

from comlrl_agents.remote.endpoint import Endpoint
from comlrl_agents.remote.remote_policy import RemotePolicy, remote_team

__all__ = ["Endpoint", "RemotePolicy", "remote_team"]
