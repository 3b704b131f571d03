"""TRL's DPO, one agent."""

import tempfile
from pathlib import Path
from typing import Any

from benchmarks.speed.job import Job, pairs
from benchmarks.speed.models import text
from benchmarks.speed.worker import Stopwatch, Turns


def run(job: Job, turns: Turns) -> None:
    """Time ``DPOTrainer``'s steps, from the start of the forward pass to the end of the optimizer's step."""
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import DPOConfig, DPOTrainer  # type: ignore[import-not-found]  # lives in the peers' environment

    tokenizer = AutoTokenizer.from_pretrained(Path(job.folder) / "closing")
    model = AutoModelForCausalLM.from_pretrained(job.agent(0), dtype=torch.float32)
    rows = [own for (own,) in pairs(job, 1, closed=True)]
    # TRL puts the closing token behind both completions itself.
    dataset = Dataset.from_list(
        [{"prompt": text(r.prompt), "chosen": text(r.winner[:-1]), "rejected": text(r.loser[:-1])} for r in rows]
    )
    with tempfile.TemporaryDirectory() as folder:
        config = DPOConfig(
            output_dir=folder,
            bf16=False,
            learning_rate=5e-6,
            lr_scheduler_type="constant",
            per_device_train_batch_size=job.shapes["pairs"],
            max_steps=10**9,
            save_strategy="no",
            report_to=[],
            use_cpu=not torch.cuda.is_available(),
        )
        trainer = DPOTrainer(
            model=model,
            args=config,
            train_dataset=dataset,
            processing_class=tokenizer,
            callbacks=[_callback(job, turns)],
        )
        first = trainer.data_collator([trainer.train_dataset[0]])
        chosen, rejected = trainer.compute_ref_log_probs(trainer.ref_model, first)
        turns.ready(chosen=float(chosen), rejected=float(rejected))
        trainer.train()


def _callback(job: Job, turns: Turns) -> Any:
    from transformers import TrainerCallback

    class Steps(TrainerCallback):
        """Waits for the parent before the first step of each turn and answers after the last."""

        def __init__(self) -> None:
            self.watch = Stopwatch()
            self.left = 0

        def on_step_begin(self, args: Any, state: Any, control: Any, **keywords: Any) -> None:
            if self.left == 0:
                if turns.wait() is None:
                    raise SystemExit
                self.left, self.watch.seconds = job.shapes["updates"], 0.0
            self.watch.__enter__()

        def on_step_end(self, args: Any, state: Any, control: Any, **keywords: Any) -> None:
            self.watch.__exit__()
            self.left -= 1
            if self.left == 0:
                turns.done(self.watch.seconds)

    return Steps()
