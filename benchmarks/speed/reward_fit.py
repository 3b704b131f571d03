"""Fitting a reward model: one pass over pairs of joint responses, in each library's default batches of one pair."""

from benchmarks.speed.bench import Bench
from benchmarks.speed.job import Job
from benchmarks.speed.worker import Stopwatch, Turns

AGENTS = 2


def _flop(job: Job) -> float:
    about, pairs = job.about, job.shapes["pairs"] * job.shapes["updates"]
    tokens = AGENTS * (about.prompt_tokens + about.completion_tokens)
    return 6.0 * about.body * 2 * pairs * tokens


BENCH = Bench(
    name="reward_fit",
    unit="pairs/s",
    peer="comlrl",
    shapes={"S": {"pairs": 8, "updates": 2, "reward_batch": 1}, "G": {"pairs": 8, "updates": 1, "reward_batch": 1}},
    targets={"S": 1.3, "G": 6.0},
    turns={"S": 9, "G": 2},
    amount=lambda job: job.shapes["pairs"] * job.shapes["updates"],
    flop=_flop,
    notes={"useful": "the headings of the joint text are not counted; the tokenizer of S and G knows none of them"},
)


def run(job: Job, turns: Turns) -> None:
    """Our side: ``RewardFit.learn``."""
    from benchmarks.speed.team import settle_model, text_pairs
    from comlrl_agents.learners.marlhf import RewardFit, RewardFitRule
    from comlrl_agents.reward_model import JointRewardModel

    pairs = text_pairs(job, AGENTS)
    model = JointRewardModel.from_base(job.agent(0))
    settle_model(model.backbone, turns)
    size = job.shapes["reward_batch"]
    fit = RewardFit(model, RewardFitRule(batch_size=size))
    turns.ready(tokens=sum(map(len, model.encode([(pairs[0].winner[0].prompts, pairs[0].winner[0].texts)])[0])))
    for _ in turns:
        with Stopwatch() as watch:
            for start in range(0, len(pairs), size):
                fit.learn(pairs[start : start + size])
        turns.done(watch.seconds)
