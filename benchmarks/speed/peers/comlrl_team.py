"""CoMLRL's trainers, set up as its user would, on the saved agents of a job."""

from typing import Any

from benchmarks.speed.job import Job, formatters, items, reward

AGENTS = 2


def trainer(kind: type, config: Any, job: Job) -> Any:
    """A trainer of CoMLRL with two agents in float32."""
    from transformers import AutoTokenizer

    return kind(
        agents=[job.agent(index) for index in range(AGENTS)],
        num_agents=AGENTS,
        tokenizer=[AutoTokenizer.from_pretrained(job.agent(index)) for index in range(AGENTS)],
        model_config={"torch_dtype": "float32"},
        train_dataset=items(job) if "items" in job.shapes else None,
        reward_func=reward,
        formatters=formatters(),
        args=config,
    )
