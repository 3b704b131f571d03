"""Environments by name: ``make``, ``register`` and ``list_envs`` over PettingZoo's registry.

A name is a registered id (``"comlrl/Partition-v0"``; without ``-v0`` the newest version), an id that an
installed package announces in the entry-point group ``comlrl_env.tasks`` (``"acme/Chess-v0" =
"acme.tasks:Chess"``), or ``"module:Class"`` itself.
"""

import difflib
import functools
import importlib
import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
import pettingzoo
from pettingzoo import ParallelEnv
from pettingzoo.env_registry.exceptions import PettingZooRegistryError

from comlrl_env.env import TextEnv
from comlrl_env.errors import ConfigError, RegistryError

GROUP = "comlrl_env.tasks"

BUILT_IN = {
    "comlrl/ArxivExpansion-v0": "comlrl_env.tasks.texts.arxiv_expansion:ArxivExpansion",
    "comlrl/BFCLParallel-v0": "comlrl_env.tasks.calls.bfcl_parallel:BFCLParallel",
    "comlrl/ClassEval-v0": "comlrl_env.tasks.code.class_eval:ClassEval",
    "comlrl/CodeCompose-v0": "comlrl_env.tasks.code.code_compose:CodeCompose",
    "comlrl/ConstraintStory-v0": "comlrl_env.tasks.stories.constraint_story:ConstraintStory",
    "comlrl/CoopHumanEval-v0": "comlrl_env.tasks.code.coop_human_eval:CoopHumanEval",
    "comlrl/CrossFile-v0": "comlrl_env.tasks.code.cross_file:CrossFile",
    "comlrl/EvidencePool-v0": "comlrl_env.tasks.talking.evidence_pool:EvidencePool",
    "comlrl/GridBuild-v0": "comlrl_env.tasks.building.grid_build:GridBuild",
    "comlrl/HintPlay-v0": "comlrl_env.tasks.talking.hint_play:HintPlay",
    "comlrl/HouseBuild-v0": "comlrl_env.tasks.building.house_build:HouseBuild",
    "comlrl/HumanEval-v0": "comlrl_env.tasks.code.human_eval:HumanEval",
    "comlrl/JointCalls-v0": "comlrl_env.tasks.calls.joint_calls:JointCalls",
    "comlrl/LeetPrint-v0": "comlrl_env.tasks.code.leet_print:LeetPrint",
    "comlrl/LengthRatio-v0": "comlrl_env.tasks.stories.length_ratio:LengthRatio",
    "comlrl/LengthSimplex-v0": "comlrl_env.tasks.stories.length_simplex:LengthSimplex",
    "comlrl/MBPP-v0": "comlrl_env.tasks.code.mbpp:MBPP",
    "comlrl/Partition-v0": "comlrl_env.tasks.partition.partition:Partition",
    "comlrl/Reference-v0": "comlrl_env.tasks.talking.reference:Reference",
    "comlrl/Schedule-v0": "comlrl_env.tasks.talking.schedule:Schedule",
    "comlrl/Schelling-v0": "comlrl_env.tasks.controls.schelling:Schelling",
    "comlrl/SplitSum-v0": "comlrl_env.tasks.controls.split_sum:SplitSum",
    "comlrl/StrBuild-v0": "comlrl_env.tasks.building.str_build:StrBuild",
    "comlrl/TLDR-v0": "comlrl_env.tasks.texts.tldr:TLDR",
    "comlrl/TLDRRatio-v0": "comlrl_env.tasks.texts.tldr_ratio:TLDRRatio",
    "comlrl/TravelPlanner-v0": "comlrl_env.tasks.travel.travel_planner:TravelPlanner",
}

# What make() gives to TextEnv; everything else belongs to the task.
ENV_ARGUMENTS = tuple(inspect.signature(TextEnv).parameters)[1:]

EntryPoint = str | Callable[..., Any]


class TaskCard(msgspec.Struct, frozen=True):
    """What a list of environments shows: read from the task's class and page, without making items.

    ``levels``: the lowest and the highest, ``None`` where there are none. ``data``: where its items come from.
    """

    id: str
    summary: str
    agents: tuple[str, ...]
    num_turns: int
    figures: Mapping[str, float]
    levels: tuple[int, int] | None = None
    data: str = ""


_entries: dict[str, tuple[EntryPoint, dict[str, Any]]] = {}


def make(id: str, **kwargs: Any) -> ParallelEnv[Any, Any, Any]:
    """Make an environment: ``make(id, split=…, render_mode=…, reward_processor=…, **task arguments)``.

    Raises:
        RegistryError: the name is unknown, or its code cannot be imported.
        ConfigError: an argument is unknown or missing.
        TaskError: an argument has an illegal value, or the split has no items.

    """
    name, entry_point, defaults = _find(id)
    env_kwargs = {key: value for key, value in kwargs.items() if key in ENV_ARGUMENTS}
    task_kwargs = defaults | {key: value for key, value in kwargs.items() if key not in ENV_ARGUMENTS}
    creator = _load(name, entry_point)
    # A factory that names e.g. `split` wants it itself.
    own = {key: env_kwargs.pop(key) for key in list(env_kwargs) if key in _parameters(creator)}
    made = _call(name, creator, task_kwargs | own)
    if isinstance(made, ParallelEnv):
        if env_kwargs:
            raise ConfigError(f"{name}: makes its environment itself and does not take {sorted(env_kwargs)}")
        return made
    env = TextEnv(made, **env_kwargs)
    env.metadata["name"] = name
    return env


def make_evaluation(id: str, **kwargs: Any) -> tuple[ParallelEnv[Any, Any, Any], str]:
    """What :func:`make` makes, on its evaluation split where it has one and none is named in ``kwargs``; and why not,
    where it is not: see :func:`on_evaluation`.
    """
    name, entry_point, _ = _find(id)
    if "split" in kwargs:
        return make(id, **kwargs), ""
    if "split" not in _parameters(_load(name, entry_point)):
        return on_evaluation(make(id, **kwargs))
    made = make(id, **kwargs)
    try:
        return make(id, split="eval", **kwargs), ""
    except Exception as error:  # noqa: BLE001 - somebody's own code, which need not know this split
        return made, _no_split(made, error)


def on_evaluation(env: Any) -> tuple[Any, str]:
    """The environment on its evaluation split, and an empty text; or itself, and why it has none."""
    if not isinstance(env, TextEnv):
        return env, _no_split(env, None)
    try:
        return env.on_split("eval"), ""
    except Exception as error:  # noqa: BLE001 - somebody's own task, which need not know this split
        return env, _no_split(env, error)


def _no_split(env: Any, error: Exception | None) -> str:
    why = "it knows no splits" if error is None else f"{type(error).__name__}: {error!s:.120}"
    where = "other seeds of what is" if getattr(env, "num_items", None) is None else "the items that are"
    return f"there is no split 'eval' ({why}), so it plays {where} learned from; give eval_env= for held-out ones"


def load_task(id: str, **task_kwargs: Any) -> Any:
    """Make only the task (or the environment, where the id stands for a whole one). Raises as :func:`make` does."""
    name, entry_point, defaults = _find(id)
    return _call(name, _load(name, entry_point), defaults | task_kwargs)


def register(id: str, entry_point: EntryPoint, **kwargs: Any) -> None:
    """Give a name to a task or to a whole environment.

    Args:
        id: ``"namespace/Name-v0"``.
        entry_point: a Task class, a function that returns a Task or a ParallelEnv, or ``"module:attribute"``.
        kwargs: default arguments of the task.

    Raises:
        RegistryError: the id is malformed, or taken by something else (the same once more is fine).

    """
    if not (callable(entry_point) or (isinstance(entry_point, str) and entry_point.count(":") == 1)):
        raise RegistryError(f"{id}: expected a callable or 'module:attribute' as entry point, actually {entry_point!r}")
    _read_entry_points()
    _add(id, entry_point, kwargs)


def list_envs() -> list[str]:
    """Return the registered ids in alphabetical order, those of other packages included."""
    _read_entry_points()
    return sorted(_entries)


def describe(id: str) -> TaskCard:
    """Return what a list shows about an environment. Raises as :func:`make` does."""
    name = _find(id)[0]
    task = load_task(name)
    summary = page_of(task).partition("\n")[0]
    published = getattr(getattr(task, "source", None), "repo", "")
    data = [getattr(task, "data_source", ""), published]
    return TaskCard(
        id=name,
        summary=summary.partition("``: ")[2] or summary,
        agents=tuple(getattr(task, "agents", ()) or task.possible_agents),
        num_turns=getattr(task, "num_turns", 1),
        figures=dict(getattr(task, "figures", {})),
        levels=getattr(task, "levels", None),
        data=", or ".join(filter(None, data)),
    )


def page_of(task: Any) -> str:
    """The page of a task or environment: the docstring of its module, else of its class; empty when there is none."""
    return inspect.getdoc(inspect.getmodule(type(task))) or inspect.getdoc(type(task)) or ""


def suggest(word: str, choices: Iterable[str]) -> str:
    """Return "; did you mean 'x'?" for the nearest choice, or nothing when none is near."""
    by_lower = {choice.lower(): choice for choice in choices}
    near = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    return f"; did you mean {by_lower[near[0]]!r}?" if near else ""


def _find(name: str) -> tuple[str, EntryPoint, dict[str, Any]]:
    """Return the full id, its entry point and its default arguments."""
    if not isinstance(name, str):
        raise RegistryError(f"environment id: expected a str such as 'comlrl/Partition-v0', actually {name!r:.80}")
    if ":" in name:
        return name, name, {}
    _read_entry_points()
    try:
        found = pettingzoo.spec("parallel", name).id
    except PettingZooRegistryError:
        near = suggest(name, [*_entries, *pettingzoo.parallel_registry])
        raise RegistryError(
            f"unknown environment {name!r}{near or ';'} comlrl_env.list_envs() has {', '.join(list_envs())}; "
            "others are named 'module:Class' or registered with comlrl_env.register(id, entry_point)"
        ) from None
    if found in _entries:
        return found, *_entries[found]
    # An environment of PettingZoo or of another user of its registry.
    return found, functools.partial(pettingzoo.make, "parallel", found), {}


def _load(name: str, entry_point: EntryPoint) -> Callable[..., Any]:
    if not isinstance(entry_point, str):
        return entry_point
    module_name, _, attribute = entry_point.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise RegistryError(
            f"{name}: cannot import {module_name!r} ({error}); check the name, or install what it needs"
        ) from error
    creator = getattr(module, attribute, None)
    if not callable(creator):
        near = suggest(attribute, vars(module))
        raise RegistryError(f"{name}: {module_name!r} has no class or function {attribute!r}{near}")
    return creator  # type: ignore[no-any-return]  # getattr knows no types


def _parameters(creator: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """What a class or factory takes; where a class passes ``**kwargs`` on to its base, what the base takes too."""
    try:
        parameters = dict(inspect.signature(creator).parameters)
    except (TypeError, ValueError):  # some builtins have no signature
        return {"kwargs": inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD)}
    bases = inspect.getmro(creator)[:-1] if inspect.isclass(creator) else ()
    for init in [vars(base)["__init__"] for base in bases if "__init__" in vars(base)][1:]:
        rest = [name for name, parameter in parameters.items() if parameter.kind is parameter.VAR_KEYWORD]
        if not rest:
            break
        del parameters[rest[0]]
        inherited = list(inspect.signature(init).parameters.items())[1:]
        parameters |= {name: parameter for name, parameter in inherited if name not in parameters}
    return parameters


def _call(name: str, creator: Callable[..., Any], kwargs: Mapping[str, Any]) -> Any:
    """Call a task's class or factory; an argument that it does not know is a :class:`ConfigError`."""
    parameters = _parameters(creator)
    takes = [key for key, p in parameters.items() if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        known = [*takes, *ENV_ARGUMENTS]
        for key in kwargs:
            if key not in takes:
                raise ConfigError(
                    f"{name}: unknown argument {key!r}{suggest(key, known) or ';'} the task takes {', '.join(takes)} "
                    f"and the environment {', '.join(ENV_ARGUMENTS)}"
                )
    missing = [key for key in takes if parameters[key].default is inspect.Parameter.empty and key not in kwargs]
    if missing:
        raise ConfigError(f"{name}: expected the argument {missing[0]!r}, actually only {sorted(kwargs)} are given")
    return creator(**kwargs)


def _add(name: str, entry_point: EntryPoint, kwargs: dict[str, Any]) -> None:
    try:
        name = pettingzoo.EnvSpec(name).id
    except PettingZooRegistryError as error:
        raise RegistryError(f"{name!r}: expected an id such as 'namespace/Name-v0'") from error
    known = _entries.get(name)
    if known is not None and not _same(known, (entry_point, kwargs)):
        raise RegistryError(f"{name}: is taken by {known[0]!r}; choose another name or a higher version")
    if known is None and name in pettingzoo.parallel_registry:
        raise RegistryError(f"{name}: is taken in PettingZoo's registry; choose another name or a higher version")
    if known is None:
        pettingzoo.register("parallel", name, functools.partial(make, name))
    _entries[name] = (entry_point, kwargs)


def _same(one: tuple[EntryPoint, dict[str, Any]], other: tuple[EntryPoint, dict[str, Any]]) -> bool:
    """Whether two entries are the same code; a class that a notebook cell defines again counts as the same."""
    places = [(getattr(e, "__module__", e), getattr(e, "__qualname__", e)) for e, _ in (one, other)]
    return places[0] == places[1] and one[1] == other[1]


@functools.cache
def _read_entry_points() -> None:
    """Register what installed packages announce; once, at the first look-up, because it reads every package."""
    # Imported here because it is a tenth of this package's import time.
    from importlib.metadata import entry_points

    for entry in entry_points(group=GROUP):
        try:
            _add(entry.name, f"{entry.module}:{entry.attr}", {})
        except RegistryError as error:
            package = entry.dist.name if entry.dist else "an unknown package"
            warnings.warn(f"entry point of {package} left out: {error}", RuntimeWarning, stacklevel=3)


for _name, _place in BUILT_IN.items():
    _add(_name, _place, {})
