"""``python -m comlrl_agents`` is the command ``comlrl``."""

from comlrl_agents.cli import main

main()
