import pytest

from comlrl_env import ConfigError, Score, TaskError
from comlrl_env.figures import episode_return, main, measure

from .toys import Match, TwoTurns


def test_means_over_items():
    class Solved(Match):
        def solo(self, item, history=()):
            return {"caller_0": str(item.data["number"]), "caller_1": ""}

        def sample_answers(self, item, rng, history=()):
            # Right in one of two cases, for both at once.
            number = item.data["number"] + int(rng.integers(2))
            return dict.fromkeys(self.agents, str(number))

    figures = measure(Solved(), draws=64)
    assert list(figures) == ["gold", "solo", "random"]
    assert (figures["gold"], figures["solo"]) == (1, 0)
    assert figures["random"] == pytest.approx(0.5, abs=0.06)
    assert measure(Solved(), draws=64) == figures


def test_only_what_the_task_can_do():
    assert measure(Match(), num_items=3) == {"gold": 1.0}


def test_returns_of_two_turns_are_summed():
    class Greeting(TwoTurns):
        def score(self, item, history, responses):
            return super().score(item, history, responses) if history else Score(reward=0.25)

    task = Greeting()
    item = task.items("eval")[0]
    assert episode_return(task, item, task.gold) == 1.25
    assert episode_return(task, item, lambda item, history: {"caller_0": "x", "caller_1": "y"}) == 0.25


def test_a_broken_oracle_gives_no_figure():
    class Broken(Match):
        def score(self, item, history, responses):
            return Score.failed("error", "the judge is ill")

    with pytest.raises(TaskError, match="item 'train/0': expected a score, actually error: the judge is ill"):
        measure(Broken())


def test_command(capsys):
    main(["comlrl/Partition-v0", "num_things=4", "split=eval", "num_items=16"])
    assert capsys.readouterr().out.startswith("gold 1.0000  solo 0.0000  random 0.")
    with pytest.raises(ConfigError, match="figures: expected an id"):
        main([])
