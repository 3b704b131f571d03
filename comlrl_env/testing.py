"""``check_env``: the conformance test that ships. It runs on any ParallelEnv and says what to mend."""

from collections.abc import Callable, Iterator
from typing import Any

from pettingzoo import ParallelEnv

from comlrl_env import env_checks, registry, task_checks
from comlrl_env.env import TextEnv
from comlrl_env.env_checks import AnyEnv, BrokenError, Finding
from comlrl_env.errors import ComlrlError

__all__ = ["CheckFailed", "Finding", "check_env", "find_faults"]


# One fault, one finding: what the first one makes fail as well is left out.
CONSEQUENCES = {"seed": ("purity", "copies"), "oracle": ("hostile", "gold"), "gold": ("cooperation",)}


class CheckFailed(ComlrlError, AssertionError):  # noqa: N818  (reads as what it is in a test report)
    """An environment does not conform; ``findings`` lists the faults."""

    def __init__(self, name: str, findings: list[Finding]) -> None:
        self.findings = findings
        lines = "\n".join(f"  {number}. {finding}" for number, finding in enumerate(findings, start=1))
        super().__init__(f"{name}: {len(findings)} fault(s)\n{lines}")


def check_env(env: AnyEnv | str | Callable[[], AnyEnv], *, episodes: int = 3) -> None:
    """Check an environment and raise :class:`CheckFailed` with every fault and what to mend.

    Any ParallelEnv: spaces, reset with options, seeding, whole episodes (observations in their spaces,
    finite and shared rewards, agents empty at the end), repeatable rewards, deep copies, and, where actions
    are texts, empty, huge, unicode and malformed answers. A :class:`TextEnv` also: infos, items, train
    against eval, purity of the score, gold answers and leaks of them, and that one agent alone earns less.

    Args:
        env: an environment, a registered id, or a function that makes one. It is reset and played.
        episodes: how many episodes of random actions to play.

    """
    if isinstance(env, str):
        env = registry.make(env)
    elif not isinstance(env, ParallelEnv) and callable(env):
        env = env()
    findings = find_faults(env, episodes=episodes)
    if findings:
        name = env.metadata.get("name") if isinstance(getattr(env, "metadata", None), dict) else None
        raise CheckFailed(str(name or type(env).__name__), findings)


def find_faults(env: Any, *, episodes: int = 3) -> list[Finding]:
    """Return the faults of an environment, one for each kind, in the order of the checks."""
    if not isinstance(env, ParallelEnv):
        mend = "derive it from pettingzoo.ParallelEnv (an AEC environment: pettingzoo.utils.aec_to_parallel)"
        return [Finding("type", f"expected a ParallelEnv, actually {type(env).__name__}", mend)]
    checks: list[Callable[[], Iterator[Finding]]] = [
        lambda: env_checks.check_structure(env),
        lambda: env_checks.check_reset(env),
        lambda: env_checks.check_seed(env),
        lambda: env_checks.check_episodes(env, episodes),
        lambda: env_checks.check_repeatable(env),
        lambda: env_checks.check_copies(env),
        lambda: env_checks.check_hostile(env),
    ]
    inner = env.unwrapped
    if isinstance(inner, TextEnv):
        untouched = task_checks.ItemsUntouched(inner)
        checks.insert(2, untouched.remember)
        checks += [
            lambda: task_checks.check_infos(inner),
            lambda: task_checks.check_items(inner),
            lambda: task_checks.check_item_option(inner),
            lambda: task_checks.check_oracle(inner),
            lambda: task_checks.check_scores(inner),
            lambda: task_checks.check_gold(inner),
            lambda: task_checks.check_cooperation(inner),
            untouched.compare,
        ]
    findings: dict[str, Finding] = {}
    for number, check in enumerate(checks):
        try:
            for finding in check():
                findings.setdefault(finding.check, finding)
        except BrokenError as broken:
            findings.setdefault(broken.finding.check, broken.finding)
            if number < 2:  # without agents, spaces and reset nothing else can be tried
                break
        except Exception as error:  # noqa: BLE001  (the environment's code; the report must still come)
            finding = Finding("crash", f"{type(error).__name__}: {error!s:.300}", "mend what raises")
            findings.setdefault(finding.check, finding)
    for cause, effects in CONSEQUENCES.items():
        if cause in findings:
            for effect in effects:
                findings.pop(effect, None)
    return list(findings.values())
