"""``comlrl``: train, evaluate, look at, check and play, from a terminal.

Nothing heavy is imported here: ``comlrl --help`` and ``comlrl envs`` answer in under a second.
"""

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

BAD_INPUT, FINDINGS, INTERRUPTED = 2, 1, 130


class PlainErrors(TyperGroup):
    """Prints the kit's own errors as the one message they are, without a traceback; anything else is a bug."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except Exception as error:
            from comlrl_env.errors import ComlrlError  # here, because it brings PettingZoo with it

            if not isinstance(error, ComlrlError):
                raise
            typer.secho(f"error: {error}", fg="red", err=True)
            raise typer.Exit(BAD_INPUT) from error


app = typer.Typer(
    cls=PlainErrors,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Teams of language models that learn to cooperate from preferences or rewards.",
)

ALGORITHMS = (
    "madpo, madpo-iter, marlhf, marlhf-iter: from preferences. magrpo, mareinforce, marloo, maremax, iac, maac: "
    "from the task's reward."
)
Assignments = Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", show_default=False)]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="Keys from a YAML or TOML file; arguments win.")
]


@app.command()
def train(
    algorithm: Annotated[
        str,
        typer.Argument(metavar="ALGO", help=ALGORITHMS),
    ],
    keys: Assignments = None,
    config: ConfigFile = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the run in output_dir, with its own keys where none are given.")
    ] = False,
    show_keys: Annotated[
        bool, typer.Option("--keys", help="List ALGO's keys with defaults and meaning, and stop.")
    ] = False,
) -> None:
    """Train a team on an environment.

    For example: comlrl train madpo-iter env=comlrl/LengthRatio-v0 agents=tiny output_dir=runs/a

    Keys: env (an id that `comlrl envs` lists), env.ARGUMENT, eval_env.ARGUMENT, agents ("tiny", a model id, a
    folder, or several with commas), tokenizer, output_dir, pairs (a folder of pairs to train from instead of
    collecting), reward_rule (how rewards that differ between agents become one: mean, sum, min, max), and every
    field of the algorithm (--keys).
    """
    from comlrl_agents import cli_train

    if show_keys:
        typer.echo(cli_train.describe_keys(algorithm))
        return
    asked = None
    try:
        asked = cli_train.read_command(algorithm, keys or (), config, resume=resume)
        cli_train.train(algorithm, asked, resume=resume, say=typer.echo)
    except KeyboardInterrupt:
        typer.echo(f"\n{cli_train.stopped(algorithm, asked)}", err=True)
        raise typer.Exit(INTERRUPTED) from None


@app.command("eval")
def evaluate(keys: Assignments = None, config: ConfigFile = None) -> None:
    """Evaluate saved agents on an environment.

    For example: comlrl eval env=comlrl/LengthRatio-v0 agents=runs/a/model num_eval_samples=64

    Keys: env, env.ARGUMENT, agents (also a folder with agent_0, agent_1, …), tokenizer, split (eval),
    num_eval_samples (32), seed (0; with a run's own its evaluation is repeated), oracle (a folder with a reward model
    that judges in place of the task, whose own reward stands beside it), reward_rule, collaboration_mode (centralized:
    one model writes for all) and the sampling: temperature, top_p, top_k, max_new_tokens; those that are not given are
    the run's own where agents is the model folder of a run.
    agents=api asks a remote model: api_url, api_format, api_model, api_key_env and the others of comparator_api_….
    """
    from comlrl_agents import cli_eval
    from comlrl_agents.run_keys import read_keys

    typer.echo(cli_eval.evaluate_agents(read_keys(keys or (), config)))


@app.command()
def envs(
    env: Annotated[str | None, typer.Argument(metavar="[ID]", help="Show this one's page.")] = None,
) -> None:
    """List the environments, or show the page of one.

    A page tells purpose, roles, an example, the reward and the measured figures.
    """
    from comlrl_agents import cli_envs

    typer.echo(cli_envs.list_environments() if env is None else cli_envs.page(env))


@app.command()
def check(
    env: Annotated[str | None, typer.Argument(metavar="ID|MODULE:CLASS")] = None,
    keys: Assignments = None,
    everything: Annotated[bool, typer.Option("--all", help="Check every registered environment.")] = False,
) -> None:
    """Check an environment and say what to mend.

    For example: comlrl check my_package.my_module:MyTask env.level=1
    """
    from comlrl_agents import cli_envs
    from comlrl_env.errors import ConfigError

    if everything == (env is not None):
        raise ConfigError("check: expected an id, module:class, or --all, and only one of them")
    if env is None:
        found = cli_envs.check_all()
        for name, faults in found.items():
            typer.echo(faults or f"{name}: no finding", err=bool(faults))
        if any(found.values()):
            raise typer.Exit(FINDINGS)
        return
    advice = cli_envs.check(env, keys or ())
    if advice:
        typer.echo(advice, err=True)
        raise typer.Exit(FINDINGS)
    typer.echo(f"{env}: no finding")


@app.command("new-task")
def new_task(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its class, such as RhymePair.")],
    folder: Annotated[Path, typer.Option("--folder", metavar="DIR", help="Where the two files go.")] = Path(),
) -> None:
    """Write a small working task and its test, to start from.

    For example: comlrl new-task RhymePair
    """
    from comlrl_agents import new_task as writer

    typer.echo(writer.write_task(name, folder))


@app.command()
def play(
    env: Annotated[str, typer.Argument(metavar="ENV")],
    keys: Assignments = None,
    seed: Annotated[int, typer.Option(min=0, help="Which items come.")] = 0,
    person: Annotated[
        str | None, typer.Option("--as", metavar="AGENT|all", help="Who you are; the first agent by default.")
    ] = None,
    others: Annotated[str, typer.Option(metavar="scripted|tiny", help="Who plays the rest.")] = "scripted",
) -> None:
    """Be one of the agents, or all of them.

    For example: comlrl play comlrl/Partition-v0 --as all env.level=0
    """
    from comlrl_agents import cli_envs
    from comlrl_agents.play import Game

    Game(cli_envs.open_env(env, keys or ()), person=person, others=others, seed=seed, say=typer.echo).run()


@app.command()
def pairs(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Round files, or a run folder.")],
    round_: Annotated[int | None, typer.Option("--round", min=1, help="Of this round only.")] = None,
    item: Annotated[str | None, typer.Option(help="Of the item with this key only.")] = None,
    min_gap: Annotated[float, typer.Option(help="With at least this difference of rewards.")] = 0.0,
    contains: Annotated[str | None, typer.Option(help="With this in a prompt or an answer.")] = None,
    show: Annotated[int, typer.Option(min=0, help="How many pairs to show.")] = 3,
    check_: Annotated[bool, typer.Option("--check", help="Say what is wrong with the files, and stop.")] = False,
    to: Annotated[Path | None, typer.Option(help="Write rows here: a .jsonl file, else a datasets folder.")] = None,
    kind: Annotated[
        str | None,
        typer.Option(metavar="agents|joint", help="What --to writes: per agent (default) or of all roles."),
    ] = None,
) -> None:
    """Look at stored pairs, choose among them, check them, convert them.

    For example: comlrl pairs runs/a --round 2 --min-gap 0.5 --to rows.jsonl --kind joint
    """
    from comlrl_agents import cli_pairs
    from comlrl_agents.given_pairs import pair_files
    from comlrl_env.errors import ConfigError

    if kind is not None and to is None:
        raise ConfigError(f"--kind: says what --to writes, actually {kind!r} without --to; give both or neither")
    files = pair_files(folder)
    if check_:
        found = cli_pairs.findings(files)
        typer.echo("\n".join(found) or f"{len(files)} files: no finding", err=bool(found))
        raise typer.Exit(FINDINGS if found else 0)
    chosen = list(cli_pairs.chosen_pairs(files, cli_pairs.Choice(round_, item, min_gap, contains)))
    if not chosen:
        typer.echo("no pair" if to is None else f"no pair; {to} is not written")
        return
    typer.echo("\n\n".join([cli_pairs.summary(chosen), *(cli_pairs.page(*one) for one in chosen[:show])]))
    if to is not None:
        typer.echo(cli_pairs.convert(chosen, kind or "agents", to))  # type: ignore[arg-type]  # export refuses other kinds


@app.command()
def report(folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")]) -> None:
    """Write a run's report and curve again."""
    from comlrl_agents.report import write_report
    from comlrl_env.errors import ConfigError

    if not (folder / "metrics.jsonl").exists():
        raise ConfigError(f"RUN: {folder} is no run folder: it has no metrics.jsonl")
    typer.echo(write_report(folder))


def wait_briefly() -> None:
    """Let threads that wait for each other sleep soon, unless the user has said how they wait.

    By default they spin until their core is taken away. On two cores that saves 6 %, and beside one other process a
    small run took seventeen times as long as without. libgomp reads this when torch is imported.
    """
    if not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & os.environ.keys():
        os.environ["GOMP_SPINCOUNT"] = "10000"


def main() -> None:
    """The console script. Modules in the working directory can be named, as with ``python -m``."""
    wait_briefly()
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    app()
