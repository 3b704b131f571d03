"""``comlrl eval``: what saved agents earn on an environment."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from comlrl_agents import config
from comlrl_agents.run_keys import RunKeys, read_keys
from comlrl_env import registry
from comlrl_env.errors import ConfigError
from comlrl_env.shared_reward import check_rule

NUM_SAMPLES = 32
SAMPLING = ("temperature", "top_p", "top_k", "max_new_tokens")
OF_RUN = (*SAMPLING, "use_chat_template", "collaboration_mode")
"""How a team answers, which its run's own config.yaml tells where nothing else does."""
FIELDS = (*OF_RUN, "dtype", "agent_devices", "seed")
REMOTE = "api"
API = tuple(
    name.removeprefix("comparator_")
    for name in config.MADPOIterConfig.__dataclass_fields__
    if name.startswith("comparator_api_")
)
"""The remote model of ``agents=api``: the comparator's fields without ``comparator_``."""

PLAYERS = ("gold", "solo", "random", "garbage")

OWN_KEYS = {"comparator_policy='api'": "agents=api", "comparator_api_": "api_", "eval_num_samples": "num_eval_samples"}
"""How the configuration's fields are spelt here."""


def evaluate_agents(keys: RunKeys) -> str:
    """Evaluate as the keys say; a table of the metrics and what became of the joint responses.

    Raises ConfigError, before torch is imported, for every key, value or environment that is wrong.
    """
    keys.check_fields([*FIELDS, *API, "split", "num_eval_samples", "oracle"], "comlrl eval")
    if keys.agents in PLAYERS and not Path(keys.agents).is_dir():
        raise ConfigError(
            f"agents: a scripted player is written player:NAME, actually {keys.agents!r}; write "
            f"agents=player:{keys.agents}"
        )
    if keys.agents is None:
        raise ConfigError('agents: is missing; give a folder with agent_0, agent_1, …, model ids, or "tiny"')
    if keys.eval_arguments:
        raise ConfigError("eval_env: there is one environment here; write env.ARGUMENT=VALUE")
    fields = dict(keys.fields)
    if fields.get("oracle", "a folder") in (None, ""):
        raise ConfigError(
            "oracle: must name the folder of a reward model, actually nothing; without oracle= the task judges"
        )
    oracle = fields.pop("oracle", None)
    env = _open(keys, fields.pop("split", None))
    wanted = {"eval_num_samples": fields.pop("num_eval_samples", NUM_SAMPLES), **fields}
    remote = REMOTE in (keys.agents if isinstance(keys.agents, list) else [keys.agents])
    api = {f"comparator_{name}": wanted.pop(name) for name in API if name in wanted}
    if api and not remote:
        raise ConfigError(f"{next(iter(api)).removeprefix('comparator_')}: belongs to agents=api; leave it out")
    if keys.pairs is not None or (remote and keys.tokenizer is not None):
        raise ConfigError("pairs, tokenizer: have no meaning here; leave them out")
    kept, config_file = _sampling_of_run(keys.agents)
    if keys.reward_rule is None and config_file is not None:
        keys = replace(keys, reward_rule=read_keys((), config_file).reward_rule)
    check_rule(keys.reward_rule)
    given = {"num_agents": len(env.possible_agents), **kept, **wanted, **api}
    if remote:
        given["comparator_policy"] = "api"
    try:
        args = config.from_mapping(config.MADPOIterConfig, given)
        if remote:
            args.endpoint.request_headers()  # a key that is not set
    except ConfigError as error:
        raise ConfigError(_in_own_keys(str(error))) from error
    sources = {name: "as given" if name in wanted else f"from {config_file}" for name in {**kept, **wanted}}
    told = "" if _only_players(keys.agents) else "\n" + _sampling_line(args, sources)
    if args.collaboration_mode == "centralized":
        from comlrl_env.wrappers import joint_text_env

        env = joint_text_env(env, reward_rule=keys.reward_rule)
    if oracle is not None:
        env, remarks = _judged(env, oracle)
        told += remarks
    return _run(env, args, keys) + told


def _sampling_of_run(agents: Any) -> tuple[dict[str, Any], Path | None]:
    """The sampling with which a run's ``model`` folder was trained, and the file that says so; else nothing."""
    if not isinstance(agents, str):
        return {}, None
    folder = Path(agents).expanduser()
    kept = folder.parent / "config.yaml"
    if not (folder / "agent_0").is_dir() or not kept.is_file():
        return {}, None
    fields = read_keys((), kept).fields
    return {name: fields[name] for name in OF_RUN if name in fields}, kept


def _sampling_line(args: config.MADPOIterConfig, sources: Mapping[str, str]) -> str:
    """The sampling that is used, grouped by where it comes from."""
    by_source: dict[str, list[str]] = {}
    for name in SAMPLING if args.use_chat_template is None else (*SAMPLING, "use_chat_template"):
        by_source.setdefault(sources.get(name, "by default"), []).append(f"{name}={getattr(args, name)}".lower())
    return "sampling: " + "; ".join(f"{', '.join(values)} {source}" for source, values in by_source.items())


def _only_players(agents: Any) -> bool:
    """Whether nobody samples: every agent is a scripted player."""
    from comlrl_agents.player_policy import PREFIX

    named = agents if isinstance(agents, list) else [agents]
    return all(isinstance(name, str) and name.startswith(PREFIX) for name in named)


def _in_own_keys(message: str) -> str:
    """An error of the configuration with the keys that this command takes in place of the fields behind them."""
    for field, key in OWN_KEYS.items():
        message = message.replace(field, key)
    return message


def _judged(env: Any, folder: Any) -> tuple[Any, str]:
    """The environment with a saved reward model as its judge, and lines that say so."""
    from comlrl_agents.model_source import named_in
    from comlrl_agents.reward_model import SETTINGS, JointRewardModel
    from comlrl_agents.terminal import quiet_loading
    from comlrl_env.wrappers import ScoredBy

    quiet_loading()
    inside = [Path(str(folder)) / name for name in ("reward_model", "model/reward_model")]
    for path in inside:
        if (path / SETTINGS).is_file():
            raise ConfigError(
                f"oracle: must name the folder of a reward model, actually {str(folder)!r}, which has one inside; give "
                f"oracle={path}"
            )
    with named_in("oracle"):
        model = JointRewardModel.from_pretrained(str(folder))
    said = (
        f"\nscored by the reward model {folder}: 0 is the mean of what it was fitted to; the task's own reward is "
        "eval/parts/task_reward"
    )
    if model.agents is not None and set(model.agents) != set(env.possible_agents):
        said += (
            f"\nit was fitted to the agents {', '.join(model.agents)}, and this environment's are "
            f"{', '.join(env.possible_agents)}: is it the same task?"
        )
    return ScoredBy(env, model.judge), said


def _open(keys: RunKeys, split: Any) -> Any:
    """The environment on the asked split; "eval" where nothing is asked and there are splits."""
    env_id, arguments = keys.need_env(), dict(keys.env_arguments)
    if split is not None:
        arguments["split"] = split
    return registry.make_evaluation(env_id, **arguments)[0]


def _run(env: Any, args: config.MADPOIterConfig, keys: RunKeys) -> str:
    from comlrl_agents.columns import columns
    from comlrl_agents.context import refuse_long_prompts
    from comlrl_agents.evaluate import evaluate
    from comlrl_agents.streams import Streams
    from comlrl_agents.terminal import quiet_loading

    quiet_loading()
    team = _team(keys, args, env)
    streams = Streams(args.seed)  # as in training: with a run's seed, its items and samples
    players = dict(zip(env.possible_agents, team, strict=True))
    refuse_long_prompts(players, env, args.eval_num_samples)
    outcome = evaluate(
        players,
        env,
        args.eval_num_samples,
        {name: streams.fresh(f"eval/{name}") for name in env.possible_agents},
        reward_rule=keys.reward_rule,
    )
    rows = [["metric", "value"], *([name, f"{value:.4g}"] for name, value in outcome.metrics.items())]
    statuses = Counter(turn["status"] for row in outcome.samples for turn in row["turns"])
    found, asked = len(outcome.samples), args.eval_num_samples
    return "\n".join(
        [
            columns(rows),
            "",
            *([f"items: {found}, all that there are (num_eval_samples is {asked})"] if found < asked else []),
            interval(outcome.returns),
            "statuses: " + ", ".join(f"{name} {count}" for name, count in statuses.items()),
        ]
    )


def _team(keys: RunKeys, args: config.MADPOIterConfig, env: Any) -> Sequence[Any]:
    from comlrl_agents.placement import per_agent
    from comlrl_agents.player_policy import with_players
    from comlrl_agents.remote import remote_team
    from comlrl_agents.team import load_frozen, load_team

    sources = with_players(keys.agents, env, "agents")
    if args.comparator_policy == "api":
        remote = remote_team(args.endpoint, args.num_actors, args.sampling)
        named = enumerate(per_agent(sources, args.num_actors, "agents"))
        return load_frozen([remote[k] if source == REMOTE else source for k, source in named], None, args, "agents")
    if sources is keys.agents:
        return load_team(sources, keys.tokenizer, args)
    if keys.tokenizer is not None:
        raise ConfigError("tokenizer: has no meaning where a scripted player is among the agents; leave it out")
    return load_frozen(sources, None, args, "agents")


def interval(returns: Sequence[float]) -> str:
    """The mean return with its 95 % interval (normal approximation, items as independent draws)."""
    if len(returns) < 2:
        return f"no interval: {len(returns)} judged episodes"
    mean = math.fsum(returns) / len(returns)
    variance = math.fsum((value - mean) ** 2 for value in returns) / (len(returns) - 1)
    half = 1.96 * math.sqrt(variance / len(returns))
    return f"return {mean:.4g} ± {half:.2g} (95 % of {len(returns)} episodes)"
