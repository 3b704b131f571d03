"""Where a remote model is, how it is spoken to, and the key, which is shown nowhere."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from comlrl_env.errors import ConfigError

ApiFormat = Literal["generic", "openai", "anthropic", "openai_responses"]
PATHS = {"openai": "/chat/completions", "anthropic": "/messages", "openai_responses": "/responses"}
HIDDEN = "***"
_SECRET_NAMES = re.compile(r"auth|key|token|secret|cookie", re.IGNORECASE)
_SHORTEST_SECRET = 8
"""Shorter ones are no secrets, and taking them out of texts would tear the texts apart."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One remote model; fields as in the configuration (``comparator_api_…``).

    ``key_env`` names an environment variable and goes before ``key``. Neither the key nor the headers are in the repr.

    Raises:
        ConfigError: the URL cannot be used.

    """

    url: str
    format: ApiFormat = "generic"
    model: str | None = None
    key_env: str | None = None
    key: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] | None = field(default=None, repr=False)
    key_header: str = "Authorization"
    key_prefix: str | None = "Bearer"
    timeout: float = 120.0
    max_n_per_request: int | None = None
    response_field: str = "completions"
    extra_body: Mapping[str, Any] | None = None
    max_concurrency: int = 8
    max_retries: int = 4
    cache_dir: str | None = None

    def __post_init__(self) -> None:
        check_url(self.url)

    @property
    def target(self) -> str:
        """The URL that requests go to: a bare server or one that ends in ``/v1`` gets the path of its format."""
        parts = urlsplit(self.url)
        path = parts.path.rstrip("/")
        if self.format in PATHS and (not path or path.endswith("/v1")):
            path = (path or "/v1") + PATHS[self.format]
        return parts._replace(path=path or "/").geturl()

    @property
    def shown(self) -> str:
        """The URL for errors and logs, without its query."""
        return urlsplit(self.target)._replace(query="", fragment="").geturl()

    @property
    def host(self) -> str:
        """The server's name."""
        return urlsplit(self.url).hostname or ""

    def secret_key(self) -> str | None:
        """The key, None where there is none.

        Raises:
            ConfigError: the environment variable is not set, or a key cannot be sent; the text does not show it.

        """
        value, source = self.key, "comparator_api_key"
        if self.key_env is not None:
            source = f"comparator_api_key_env: the environment variable {self.key_env}"
            value = os.environ.get(self.key_env)
            if not value:
                raise ConfigError(f"{source} is not set; set it, or name another one")
        if value is None:
            return None
        value = value.strip()
        if not value or not _sendable(value):
            raise ConfigError(f"{source} must hold printable ASCII characters without blanks (its value is not shown)")
        return value

    def request_headers(self) -> dict[str, str]:
        """All headers of a request, the key among them."""
        headers = {"content-type": "application/json"}
        if self.format == "anthropic":
            headers["anthropic-version"] = "2023-06-01"
        for name, value in (self.headers or {}).items():
            if not re.fullmatch(r"[\w!#$%&'*+.^`|~-]+", name, re.ASCII) or not _sendable(value, blanks=True):
                raise ConfigError(
                    f"comparator_api_headers: {name!r} is no header that can be sent (its value is not shown)"
                )
            headers[name.lower()] = value
        key = self.secret_key()
        if key is not None:
            name, prefix = self.key_header, self.key_prefix
            if self.format == "anthropic" and name == "Authorization":
                name, prefix = "x-api-key", None
            headers[name.lower()] = f"{prefix} {key}" if prefix else key
        return headers

    def secrets(self) -> list[str]:
        """The texts that must appear nowhere, longest first."""
        found = {value for name, value in (self.headers or {}).items() if _SECRET_NAMES.search(name)}
        found |= {part for value in found for part in value.split()}
        key = self.secret_key()
        if key is not None:
            found.add(key)
        return sorted((text for text in found if len(text) >= _SHORTEST_SECRET), key=len, reverse=True)

    @property
    def cache_folder(self) -> Path | None:
        """Where answers are kept, None where they are not."""
        return None if self.cache_dir is None else Path(self.cache_dir).expanduser().resolve()


def check_url(url: str) -> None:
    """Refuse a URL that cannot be used, or that holds a secret, which would be logged. Raises ConfigError."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(
            f"comparator_api_url: must be http:// or https:// with a server, actually {url!r:.120}; "
            "e.g. http://localhost:8000/v1"
        )
    if parts.username or parts.password or _SECRET_NAMES.search(parts.query):
        raise ConfigError(
            f"comparator_api_url: must hold no key and no password, which would be logged (server {parts.hostname!r}); "
            "give the key as comparator_api_key_env, sent in comparator_api_key_header"
        )


def _sendable(value: str, *, blanks: bool = False) -> bool:
    return all("!" <= character <= "~" or (blanks and character == " ") for character in value)
