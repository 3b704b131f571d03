"""One optimizer per distinct set of weights: AdamW, gradient clipping, learning-rate schedule."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from comlrl_agents.embedding_rows import EmbeddingRows, all_rows
from comlrl_agents.placement import ask_for_huge_pages
from comlrl_agents.policy import LLMPolicy
from comlrl_env.errors import ConfigError, TrainingError

ScheduleType = Literal["constant", "linear", "cosine"]


@dataclass(frozen=True, slots=True)
class Optimisation:
    """How weights are updated; ``max_grad_norm`` None switches clipping off.

    ``concurrent``: agents with different models compute at the same time, see :mod:`comlrl_agents.concurrency`.
    """

    learning_rate: float = 5e-6
    max_grad_norm: float | None = 1.0
    lr_scheduler_type: ScheduleType = "constant"
    warmup_steps: int = 0
    micro_batch_tokens: int | None = None
    score_final_token: bool = True
    concurrent: bool = False


def schedule_factor(kind: ScheduleType, update: int, warmup_steps: int, progress: float) -> float:
    """The share of the base learning rate at an update (0-based) when ``progress`` of the run, in [0, 1], is done.

    The decay follows the run's progress in rounds and epochs, not a count of updates, because nobody knows before
    collection how many pairs a round will have.
    """
    warmup = min(1.0, (update + 1) / (warmup_steps + 1))
    if kind == "linear":
        return warmup * (1.0 - progress)
    if kind == "cosine":
        return warmup * 0.5 * (1.0 + float(torch.cos(torch.tensor(torch.pi * progress, dtype=torch.float64))))
    return warmup


def distinct_modules(policies: Sequence[LLMPolicy]) -> dict[int, nn.Module]:
    """The different models of a team by the index of the first agent that uses them; sharing agents appear once."""
    found: dict[int, nn.Module] = {}
    for index, policy in enumerate(policies):
        if all(policy.model is not module for module in found.values()):
            found[index] = policy.model
    return found


class TeamOptimizer:
    """AdamW for every distinct model of a team. Weight decay is 0, as usual in preference training.

    ``who`` and ``rate_field`` name the models and their learning rate in errors and metrics. ``lookups``: embeddings of
    models that are nothing but looked up, learned by the rows that are used. Raises ConfigError for a model whose
    weights are all frozen.
    """

    def __init__(
        self,
        modules: Mapping[int, nn.Module],
        optimisation: Optimisation,
        who: str = "agent",
        rate_field: str = "agent_learning_rate",
        lookups: Mapping[int, nn.Embedding] | None = None,
    ) -> None:
        self.optimisation = optimisation
        self._who, self._rate_field = who, rate_field
        self.updates = 0
        self._rows = {index: EmbeddingRows(embedding) for index, embedding in (lookups or {}).items()}
        rows_of = {id(looked_up.weight): looked_up.rows for looked_up in self._rows.values()}
        self._parameters = {
            index: [rows_of.get(id(own), own) for own in module.parameters() if own.requires_grad]
            for index, module in modules.items()
        }
        for index, parameters in self._parameters.items():
            if not parameters:
                raise ConfigError(
                    f"{who} {index}: its model must have a weight to learn, actually all are frozen; set "
                    "requires_grad=True on those that are to be trained"
                )
        _take_into_memory({id(own): own for parameters in self._parameters.values() for own in parameters}.values())
        self._optimizers = {
            index: torch.optim.AdamW(
                parameters, lr=optimisation.learning_rate, weight_decay=0.0, fused=_fused(parameters)
            )
            for index, parameters in self._parameters.items()
        }

    def clear_gradients(self) -> None:
        """Begin an update from zero, whatever an interrupted one has left; the buffers are kept for reuse.

        Raises TrainingError when a weight that learns has been frozen since.

        What stays is there before what comes and goes, or it would be put into the holes that passes leave behind, and
        the next pass would need fresh memory: 3 GiB more at the second update of two 270 M models.
        """
        for index, optimizer in self._optimizers.items():
            for parameter in self._parameters[index]:
                if not parameter.requires_grad:
                    raise TrainingError(
                        f"{self._who} {index}: weights that learn must keep requires_grad=True, actually one of shape "
                        f"{tuple(parameter.shape)} was frozen after the optimizer was made; leave it as it is in a run"
                    )
                if parameter.grad is None:
                    parameter.grad = _fresh(parameter).zero_()
                if not optimizer.state[parameter]:
                    optimizer.state[parameter] = _fresh_state(parameter)
            optimizer.zero_grad(set_to_none=False)
        for looked_up in self._rows.values():
            looked_up.weight.grad = None

    def step(self, progress: float) -> dict[str, float]:
        """Clip the gradients of all models and step; returns ``learning_rate`` and the gradient norms.

        Raises:
            TrainingError: a gradient is not finite; no model has been stepped then.

        """
        for index, looked_up in self._rows.items():
            looked_up.take_gradient(self._optimizers[index].state[looked_up.rows])
        norms = {index: float(nn.utils.get_total_norm(_gradients(own))) for index, own in self._parameters.items()}
        for index, norm in norms.items():
            if not torch.isfinite(torch.tensor(norm)):
                raise TrainingError(
                    f"{self._who} {index}: the gradient norm must be finite, actually {norm}; lower "
                    f"{self._rate_field} and begin anew: a run that goes on keeps its settings"
                )
        rate = self.optimisation.learning_rate * schedule_factor(
            self.optimisation.lr_scheduler_type, self.updates, self.optimisation.warmup_steps, progress
        )
        for index, optimizer in self._optimizers.items():
            for group in optimizer.param_groups:
                group["lr"] = rate
            self._clip(index, norms[index])
            optimizer.step()
        for looked_up in self._rows.values():
            looked_up.write_back()
        self.updates += 1
        total = sum(norm**2 for norm in norms.values()) ** 0.5
        per_agent = {f"{self._who}_{index}/grad_norm": norm for index, norm in norms.items()}
        return {"learning_rate": rate, "grad_norm": total, **per_agent}

    def _clip(self, index: int, norm: float) -> None:
        """As ``clip_grad_norm_`` does, but where the optimizer is fused it scales the gradients as it reads them."""
        limit, optimizer = self.optimisation.max_grad_norm, self._optimizers[index]
        scale = 1.0 if limit is None else min(1.0, limit / (norm + 1e-6))
        if optimizer.defaults["fused"]:
            # What torch's GradScaler sets: gradients are divided by it.
            optimizer.grad_scale = None if scale == 1.0 else torch.tensor(1 / scale)  # type: ignore[attr-defined]
        elif scale < 1.0:
            torch._foreach_mul_(_gradients(self._parameters[index]), scale)

    def state_dict(self) -> dict[str, Any]:
        """The optimizers' states, the rows they are of, and the number of updates done."""
        return {
            "updates": self.updates,
            "optimizers": {str(index): opt.state_dict() for index, opt in self._optimizers.items()},
            "rows": {str(index): looked_up.ids for index, looked_up in self._rows.items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where ``state`` stopped."""
        self.updates = state["updates"]
        for index, optimizer in self._optimizers.items():
            saved, ids = state["optimizers"][str(index)], state["rows"].get(str(index))
            if index in self._rows:
                self._rows[index].load(ids)
            elif ids is not None:
                saved = all_rows(saved, ids, self._parameters[index])
            optimizer.load_state_dict(saved)


@torch.no_grad()
def _take_into_memory(parameters: Collection[torch.nn.Parameter]) -> None:
    """Weights that were loaded on the CPU lie in their file until they are written to. The first step would bring them
    into memory page by page: 3 seconds a GiB instead of 0.3. What parameters share stays shared.
    """
    users = Counter(parameter.data_ptr() for parameter in parameters)
    for parameter in parameters:
        if parameter.device.type == "cpu" and users[parameter.data_ptr()] == 1:
            parameter.data = _fresh(parameter).copy_(parameter)


def _fused(parameters: Sequence[torch.nn.Parameter]) -> bool:
    """The fused kernel exists for floating-point parameters of CPUs and GPUs; elsewhere torch picks its default."""
    return all(p.is_floating_point() and p.device.type in ("cpu", "cuda") for p in parameters)


def _fresh_state(parameter: torch.nn.Parameter) -> dict[str, torch.Tensor]:
    """What AdamW makes at its first step, on the device where the fused kernel wants the count."""
    zeros = {name: _fresh(parameter).zero_() for name in ("exp_avg", "exp_avg_sq")}
    device = parameter.device if _fused([parameter]) else None
    return {"step": torch.zeros((), dtype=torch.float32, device=device), **zeros}


def _fresh(parameter: torch.nn.Parameter) -> torch.Tensor:
    """Memory of the parameter's shape, to be kept."""
    made = torch.empty_like(parameter, requires_grad=False)
    ask_for_huge_pages(made)
    return made


def _gradients(parameters: Sequence[torch.nn.Parameter]) -> list[torch.Tensor]:
    return [parameter.grad for parameter in parameters if parameter.grad is not None]
