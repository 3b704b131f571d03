"""A whole run of MARLHF with magrpo: collect once, fit the reward model, one epoch of policy learning."""

from benchmarks.speed.bench import Bench
from benchmarks.speed.job import Job
from benchmarks.speed.worker import Stopwatch, Turns

AGENTS = 2
NEVER = 10**9

BENCH = Bench(
    name="marlhf",
    unit="runs/s",
    peer="comlrl",
    shapes={
        "S": {"items": 8, "candidates": 8, "pairs_per_item": 4, "generations": 4, "reward_batch": 1},
        "G": {"items": 2, "candidates": 4, "pairs_per_item": 2, "generations": 4, "reward_batch": 1},
    },
    targets={"S": 3.0, "G": 6.0},
    turns={"S": 5, "G": 3},
    amount=lambda job: 1,
    notes={
        "ours": "with logging, TensorBoard, drift and held-out figures and the task's reward beside the learned one; "
        "without checkpoint and evaluation",
        "phases": "fit and policy as each library's trainer runs them",
    },
)


def run(job: Job, turns: Turns) -> None:
    """Our side: collection, fit and policy learning of ``MARLHFTrainer``."""
    import tempfile

    from benchmarks.speed.team import environment, settle
    from comlrl_agents.config import MARLHFConfig
    from comlrl_agents.progress import RunState
    from comlrl_agents.rollouts import LearnedReward
    from comlrl_agents.tracking import Tracker
    from comlrl_agents.trainers import MARLHFTrainer

    config = MARLHFConfig(
        num_train_epochs=1,
        preference_num_candidates=job.shapes["candidates"],
        preference_pairs_per_sample=job.shapes["pairs_per_item"],
        num_generations=job.shapes["generations"],
        reward_train_batch_size=job.shapes["reward_batch"],
        reward_model_name=job.agent(0),
        reward_held_out_share=0.0,
        max_new_tokens=job.about.completion_tokens,
        eval_interval=NEVER,
        dtype="float32",
    )
    with tempfile.TemporaryDirectory() as folder:
        trainer = MARLHFTrainer(
            env=environment(job), agents=[job.agent(index) for index in range(AGENTS)], args=config, output_dir=folder
        )
        settle(trainer.policies, turns)
        trainer.history.save(0)
        state = RunState(trainer)
        state.save = lambda: trainer.folder.checkpoints  # type: ignore[method-assign]  # no checkpoint on either side
        with Tracker(trainer.folder.path, report_to=config.report_to) as trainer.tracker:
            turns.ready(pairs=job.shapes["items"] * job.shapes["pairs_per_item"])
            for _ in turns:
                phases: dict[str, float] = {}
                with Stopwatch() as collecting:
                    trainer._collect_round()
                phases |= {"collect": collecting.seconds, "collect_mib": turns.phase_peak()}
                sample = trainer.replay.sample(trainer.progress.sample)
                assert len(sample) == job.shapes["items"] * job.shapes["pairs_per_item"]
                with Stopwatch() as fitting:
                    trainer.learning._fit_model(sample, state.save)
                phases |= {"fit": fitting.seconds, "fit_mib": turns.phase_peak()}
                assert trainer.learning.reward_model is not None
                with Stopwatch() as learning:
                    trainer.learning.policy.learn_from(LearnedReward(trainer.learning.reward_model), state.save)
                phases |= {"policy": learning.seconds, "policy_mib": turns.phase_peak()}
                trainer.progress.phase = "collect"
                turns.done(collecting.seconds + fitting.seconds + learning.seconds, **phases)
