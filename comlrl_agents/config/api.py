"""The fields of a remote comparator (ALGORITHMS 6)."""

import sys
import typing
from dataclasses import dataclass
from typing import Any, Literal

from comlrl_agents.config.fields import secret
from comlrl_agents.config.preferences import PreferenceConfig
from comlrl_env.errors import ConfigError

if typing.TYPE_CHECKING:
    from comlrl_agents.remote.endpoint import Endpoint

ALIASES = {"responses": "openai_responses", "codex": "openai_responses"}
ApiFormatName = Literal["generic", "openai", "anthropic", "openai_responses", "responses", "codex"]
PREFIX = "comparator_api_"


@dataclass(kw_only=True, frozen=True)
class ApiFields(PreferenceConfig):
    """Where a remote model is and how it is spoken to."""

    comparator_api_url: str | None = None
    """Where the remote model is asked."""
    comparator_api_format: ApiFormatName = "generic"
    """How it is spoken to; responses and codex are other names of openai_responses."""
    comparator_api_model: str | None = None
    """Its name there."""
    comparator_api_key_env: str | None = None
    """Environment variable that holds its key."""
    comparator_api_key: str | None = secret()
    """The key itself; it goes into no file."""
    comparator_api_headers: dict[str, str] | None = secret()  # noqa: RUF009 - a dataclass field
    """More headers of every request; they go into no file."""
    comparator_api_key_header: str = "Authorization"
    """Header that the key is sent in."""
    comparator_api_key_prefix: str | None = "Bearer"
    """What stands before the key."""
    comparator_api_timeout: float = 120.0
    """Seconds that a request may take in all."""
    comparator_api_max_n_per_request: int | None = None
    """With openai: most answers asked for at once."""
    comparator_api_response_field: str = "completions"
    """With generic: where the answers are in the response."""
    comparator_api_extra_body: dict[str, Any] | None = None
    """More fields of every request; null takes one of ours away."""
    # Ours
    comparator_api_max_concurrency: int = 8
    """Requests under way at the same time."""
    comparator_api_max_retries: int = 4
    """Attempts after one that failed for a passing reason."""
    comparator_api_cache_dir: str | None = None
    """Folder that keeps answers for later runs; none keeps none."""

    @classmethod
    def ranges(cls) -> dict[str, tuple[float, float]]:
        """The closed interval of each bounded number."""
        most = sys.float_info.max
        return super().ranges() | {
            "comparator_api_timeout": (0.001, most),
            "comparator_api_max_n_per_request": (1, most),
            "comparator_api_max_concurrency": (1, 1024),
            "comparator_api_max_retries": (0, 100),
        }

    @property
    def api_format(self) -> str:
        """The format under its own name."""
        return ALIASES.get(self.comparator_api_format, self.comparator_api_format)

    def check_api(self) -> None:
        """Refuse a remote model that cannot be asked.

        Raises:
            ConfigError: naming the field, the rule and the value.

        """
        from comlrl_agents.remote.endpoint import check_url

        if self.comparator_api_url is None:
            raise ConfigError("comparator_api_url: is required by comparator_policy='api', actually None")
        check_url(self.comparator_api_url)
        if self.api_format != "generic" and not self.comparator_api_model:
            raise ConfigError(
                f"comparator_api_model: is required by comparator_api_format={self.api_format!r}, actually "
                f"{self.comparator_api_model!r}"
            )
        for name, owner in (("max_n_per_request", "openai"), ("response_field", "generic")):
            field = f"{PREFIX}{name}"
            if self.api_format != owner and getattr(self, field) != self.__dataclass_fields__[field].default:
                raise ConfigError(
                    f"{field}: belongs to comparator_api_format={owner!r} and has no meaning with "
                    f"{self.api_format!r}; leave it out, actually {self.shown(field)}"
                )

    @property
    def endpoint(self) -> "Endpoint":
        """The remote model."""
        from comlrl_agents.remote.endpoint import Endpoint

        names = [name for name in self.__dataclass_fields__ if name.startswith(PREFIX)]
        values = {name.removeprefix(PREFIX): getattr(self, name) for name in names}
        return Endpoint(**values | {"format": self.api_format})
