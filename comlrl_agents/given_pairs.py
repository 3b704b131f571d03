"""Pairs that are given instead of collected: the round files of another run, or of another program."""

from collections.abc import Sequence
from pathlib import Path

from msgspec import structs

from comlrl_agents.config import PreferenceConfig
from comlrl_agents.policy import LLMPolicy
from comlrl_env.errors import ConfigError
from comlrl_env.records import RoundFile
from comlrl_env.types import Completion, JointTurn, PreferencePair


def pair_files(place: str | Path) -> list[Path]:
    """The round files at ``place``, in the order of their rounds: a file, a folder of them, or a run folder.

    Raises:
        ConfigError: there are none.

    """
    path = Path(place).expanduser().resolve()
    if path.is_file():
        return [path]
    found = sorted(path.glob("iteration_*.json")) or sorted((path / "pairs").glob("iteration_*.json"))
    if not found:
        raise ConfigError(
            f"pairs: {path} holds no iteration_0001.json; give a file or folder of pairs, or a run folder"
        )
    return found


COLLECTING = ("preference_num_", "preference_pairs_", "preference_scoring_", "pair_selection", "comparator_")
"""How the names of the settings begin that only collection reads."""


class GivenPairs:
    """The pairs of a folder as the rounds of a run: all of them in one round, or a file per round.

    Token ids are kept where the team's tokenizers read them as the stored text; elsewhere the text is tokenised.

    Raises:
        ConfigError: there are none, fewer files than rounds, or pairs of another number of agents.

    """

    def __init__(self, place: str | Path, num_agents: int, rounds: int) -> None:
        self._files = [RoundFile(path) for path in pair_files(place)]
        self._rounds = rounds
        if rounds > len(self._files):
            raise ConfigError(
                f"pairs: {place} holds {len(self._files)} rounds, and num_iterations asks for {rounds}; lower it"
            )
        for file in self._files:
            found = len(file[0].winner[0].prompts) if len(file) else num_agents
            if found != num_agents:
                raise ConfigError(
                    f"pairs: {file.path} holds pairs of {found} agents, and the team has {num_agents}; give the pairs "
                    "of a team of that size"
                )

    def remarks(self, agents: Sequence[str], args: PreferenceConfig) -> list[str]:
        """What a person may not expect: other agents' pairs, and settings that pairs of one's own leave no work."""
        named = next((file[0].agents for file in self._files if len(file)), None)
        said = []
        if named and list(named) != list(agents):
            said.append(
                f"pairs: are those of the agents {', '.join(named)}, and this environment's are {', '.join(agents)}: "
                "is it the same task?"
            )
        fields = type(args).__dataclass_fields__
        unused = [
            name for name in fields if name.startswith(COLLECTING) and getattr(args, name) != fields[name].default
        ]
        if unused:
            said.append(f"pairs: are given, so nothing is collected, and these have no effect: {', '.join(unused)}")
        return said

    @property
    def sizes(self) -> list[int]:
        """The number of pairs in each file."""
        return [len(file) for file in self._files]

    def of_round(self, iteration: int, team: Sequence[LLMPolicy]) -> tuple[list[PreferencePair], int]:
        """The pairs of a round (1-based), and how many of them were tokenised anew."""
        files = self._files if self._rounds == 1 else [self._files[iteration - 1]]
        stored = [pair for file in files for pair in file]
        known: dict[Prompted, bool] = {}  # pairs of an item share their prompts
        fitting = [pair if _tokens_fit(pair, team, known) else _without_tokens(pair) for pair in stored]
        return fitting, sum(one is not other for one, other in zip(stored, fitting, strict=True))


Prompted = tuple[str, tuple[int, ...], int]
"""A prompt, its stored ids, and whose they are."""


def _tokens_fit(pair: PreferencePair, team: Sequence[LLMPolicy], known: dict[Prompted, bool]) -> bool:
    """Whether every agent's tokenizer reads the stored ids as the stored text; pairs without ids fit as they are."""
    for turn in (*pair.winner, *pair.loser):
        asked = zip(turn.prompts, turn.prompt_ids or [None] * len(team), strict=True)
        for (prompt, prompt_ids), answer, policy in zip(asked, turn.completions, team, strict=True):
            ids = answer.token_ids
            if ids is not None and (
                max(ids, default=0) >= len(policy.tokenizer)
                or policy.decode(ids, answer.finished) != answer.text
                or (answer.finished and policy.eos_ids and ids and ids[-1] not in policy.eos_ids)
            ):
                return False
            if prompt_ids is None:
                continue
            key = prompt, tuple(prompt_ids), id(policy)
            if key not in known:
                known[key] = _reads_prompt(prompt, prompt_ids, policy)
            if not known[key]:
                return False
    return True


def _reads_prompt(prompt: str, ids: Sequence[int], policy: LLMPolicy) -> bool:
    """Whether the policy's vocabulary is the one that ids come from: they are the prompt, or a text with most of its
    words, such as a chat that puts the same in other words.
    """
    if max(ids, default=0) >= len(policy.tokenizer):
        return False
    if list(ids) == list(policy.encode(prompt)):
        return True
    words, read = set(prompt.split()), policy.decode(ids, False)
    return 2 * sum(word in read for word in words) >= len(words)


def _without_tokens(pair: PreferencePair) -> PreferencePair:
    def bare(turns: tuple[JointTurn, ...]) -> tuple[JointTurn, ...]:
        return tuple(
            JointTurn(turn.prompts, tuple(Completion(c.text, None, c.finished) for c in turn.completions))
            for turn in turns
        )

    return structs.replace(pair, winner=bare(pair.winner), loser=bare(pair.loser))
