"""The ``key=value`` language of the command line and of ``--config`` files.

Besides the fields of an algorithm's configuration there are the run's own keys: ``env`` (an id) with
``env.<argument>`` for its constructor, ``eval_env.<argument>`` where the evaluation environment differs,
``agents``, ``tokenizer``, ``output_dir``, ``pairs`` and ``reward_rule``. Values are YAML. In a file, ``env`` may also
be a table with ``id``, and ``algorithm`` may say whose settings they are: the ``config.yaml`` of a run is such a file.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from comlrl_agents.config import unknown_name
from comlrl_env.errors import ConfigError
from comlrl_env.shared_reward import RewardRule

RUN_KEYS = {
    "env": "Id of an environment (comlrl envs), or package.module:Class; env.NAME= is an argument of it.",
    "agents": "tiny, a model id or folder for all agents, or one each: a,b.",
    "tokenizer": "Where the agents' tokenizers are; without it beside the models.",
    "output_dir": "Folder of the run; without it runs/ALGORITHM-ENVIRONMENT.",
    "pairs": "Folder of pairs to learn from instead of collecting.",
    "reward_rule": "How rewards that differ between agents become one: mean, sum, min or max; without it refused.",
}
LISTS = (
    "agents", "tokenizer", "agent_devices", "report_to", "comparator_agents", "comparator_devices",
    "critic_model_name", "critic_devices", "reference_devices",
)  # fmt: skip
"""Keys whose value may be written ``a,b`` instead of ``[a, b]``."""

SECRET = re.compile(r"api_(key|headers)\b(?!_)")
"""Keys whose values are shown nowhere."""

# YAML 1.1 reads 1e-6 as text: it wants 1.0e-6.
EXPONENT = re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+")


@dataclass(frozen=True)
class RunKeys:
    """What one command was asked to do, sorted: the run's own keys, and the rest in ``fields``."""

    algorithm: str | None = None
    env: str | None = None
    env_arguments: Mapping[str, Any] = field(default_factory=dict)
    eval_arguments: Mapping[str, Any] = field(default_factory=dict)
    agents: Any = None
    tokenizer: Any = None
    output_dir: str | None = None
    pairs: str | None = None
    reward_rule: RewardRule | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)

    def check_fields(self, known: Sequence[str], command: str) -> None:
        """Raise ConfigError for a field that is not ``known``, with the nearest key of ``command``."""
        for name in self.fields:
            if name not in known:
                choices = [*known, *RUN_KEYS]
                raise ConfigError(unknown_name(f"{command}: unknown key", name, choices))

    def describe(self, algorithm: str) -> dict[str, Any]:
        """The run's own keys as a file holds them, without ``output_dir``."""
        told = {
            "algorithm": algorithm,
            "env": {"id": self.env, **self.env_arguments},
            "eval_env": dict(self.eval_arguments),
            "agents": self.agents,
            "tokenizer": self.tokenizer,
            "pairs": self.pairs,
            "reward_rule": self.reward_rule,
        }
        return {name: value for name, value in told.items() if value not in (None, {})}

    def need_env(self) -> str:
        """The environment's id. Raises ConfigError when it is missing."""
        if self.env is None:
            raise ConfigError("env: is missing; give one, e.g. env=comlrl/LengthRatio-v0 (`comlrl envs` lists them)")
        return self.env


def read_keys(assignments: Sequence[str], config: Path | None = None) -> RunKeys:
    """Sort the keys of a command line and of a file; the command line wins.

    Raises ConfigError for a text without ``=``, a key given twice, a value that is no YAML, and a file that
    cannot be read.
    """
    values: dict[str, Any] = {} if config is None else dict(_flatten(_read_file(config)))
    given: set[str] = set()
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals or not key:
            raise ConfigError(f"arguments: expected key=value, actually {shown(assignment)!r}; e.g. num_iterations=6")
        if key in given:
            raise ConfigError(f"{key}: is given twice on the command line; keep one of them")
        given.add(key)
        values[key] = _value(key, value)
    for key in LISTS:
        text = values.get(key)
        if isinstance(text, str) and ("," in text or (key == "report_to" and text.lower() not in ("none", "null"))):
            values[key] = [part.strip() for part in text.split(",") if part.strip()]
    for key in ("env", "output_dir", "pairs"):
        if values.get(key) is not None:
            values[key] = str(values[key])  # a folder called 2024 is no number
    return RunKeys(
        **{key: values.pop(key) for key in ("algorithm", *RUN_KEYS) if key in values},
        env_arguments=_take(values, "env."),
        eval_arguments=_take(values, "eval_env."),
        fields=values,
    )


def shown(text: str, key: str = "") -> str:
    """An argument as it may be written down: without the value of a key that holds a secret."""
    found = SECRET.search(key or text)
    if found is None:
        return text
    return "***" if key else text[: found.end()] + "=***"


def _take(values: dict[str, Any], prefix: str) -> dict[str, Any]:
    """Remove the keys that begin with ``prefix`` and return them without it."""
    names = [key for key in values if key.startswith(prefix)]
    return {name.removeprefix(prefix): values.pop(name) for name in names}


def _value(key: str, text: str) -> Any:
    try:
        return _numbers(yaml.safe_load(text))
    except yaml.YAMLError as error:
        said = ConfigError(f"{key}: expected a YAML value, actually {shown(text, key)!r}; put text in quotes")
        raise said from (None if SECRET.search(key) else error)


def _numbers(value: Any) -> Any:
    """``1e-6`` as a number, also inside lists and tables."""
    if isinstance(value, str) and EXPONENT.fullmatch(value):
        return float(value)
    if isinstance(value, list):
        return [_numbers(entry) for entry in value]
    if isinstance(value, dict):
        return {str(key): _numbers(entry) for key, entry in value.items()}
    return value


def _read_file(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--config: {path} cannot be read: {error}") from error
    try:
        values = tomllib.loads(text) if path.suffix == ".toml" else yaml.safe_load(text)
    except (yaml.YAMLError, tomllib.TOMLDecodeError) as error:
        kind = "TOML" if path.suffix == ".toml" else "YAML"
        if SECRET.search(text):  # the parser's message quotes the file
            raise ConfigError(
                f"--config: {path} is no valid {kind} (its lines are not shown: one holds a key)"
            ) from None
        raise ConfigError(f"--config: {path} is no valid {kind}: {error}") from error
    if not isinstance(values, dict):
        raise ConfigError(f"--config: {path} must hold keys and values, actually {type(values).__name__}")
    return values


def _flatten(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """``env: {id: x, level: 1}`` as ``env`` and ``env.level``; the same for ``eval_env``."""
    for key, value in values.items():
        if key in ("env", "eval_env") and isinstance(value, dict):
            for name, entry in value.items():
                yield (key if (key, name) == ("env", "id") else f"{key}.{name}"), _numbers(entry)
        else:
            yield str(key), _numbers(value)
