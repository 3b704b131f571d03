"""The team's weights after each round, on disk: for the comparator ``history`` and for measuring drift."""

import copy
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from comlrl_agents.decoders import inherit_decoder
from comlrl_agents.head import inherit_head
from comlrl_agents.optimisation import distinct_modules
from comlrl_agents.policy import LLMPolicy
from comlrl_agents.scored_states import inherit_sharing
from comlrl_env.errors import CheckpointError

_WAY_OUT = "copy the file again, or go on from a checkpoint (resume), which brings its own"


class PolicyHistory:
    """Saved weights ``round_0000`` (initial), ``round_0001`` (after round 1), …; one file per distinct model."""

    def __init__(self, folder: Path, team: Sequence[LLMPolicy]) -> None:
        self.folder = folder
        self._team = list(team)

    def path(self, number: int) -> Path:
        """Where policy ``number`` lies."""
        return self.folder / f"round_{number:04d}"

    def save(self, number: int) -> None:
        """Write the live weights as policy ``number``: staged and renamed, so that a half-written one never counts.

        Raises CheckpointError when they cannot be written.
        """
        staged = self.folder / f".staged-{number:04d}"
        shutil.rmtree(staged, ignore_errors=True)
        staged.mkdir(parents=True)
        try:
            for index, module in distinct_modules(self._team).items():
                save_file(weights(module), staged / f"agent_{index}.safetensors")
        except (OSError, SafetensorError) as error:
            shutil.rmtree(staged, ignore_errors=True)
            raise CheckpointError(
                f"{self.path(number)}: cannot be written: {error}; make room, and go on from the last checkpoint"
            ) from error
        shutil.rmtree(self.path(number), ignore_errors=True)
        staged.rename(self.path(number))

    def load(self, number: int, devices: Sequence[torch.device | None] | None = None) -> list[LLMPolicy]:
        """Frozen copies of the team with the weights of policy ``number``; sharing agents share the copy.

        ``devices``: where each agent's copy goes; None: where the agent is. On the CPU the weights stay in the file,
        and are read as they are used.

        Raises:
            CheckpointError: a file is missing or damaged, lacks a tensor, or it has another shape.

        """
        files = {index: self.path(number) / f"agent_{index}.safetensors" for index in distinct_modules(self._team)}
        return frozen_copies(self._team, devices or [None] * len(self._team), files)

    def prune(self, keep: set[int]) -> None:
        """Delete all saved policies whose numbers are not in ``keep``."""
        for path in self.folder.glob("round_[0-9]*"):
            number = path.name.removeprefix("round_")
            if path.is_dir() and number.isdigit() and int(number) not in keep:
                shutil.rmtree(path)


def frozen_copies(
    team: Sequence[LLMPolicy], devices: Sequence[torch.device | None], files: Mapping[int, Path] | None = None
) -> list[LLMPolicy]:
    """Copies of the policies without gradients on the given devices; sharing agents share the first one's copy.

    ``files``: where other weights for them are stored, by the index of the first agent that uses them.
    """
    copies: dict[int, torch.nn.Module] = {}
    for index, module in distinct_modules(team).items():
        values = {} if files is None else _stored_values(module, files[index])
        copies[id(module)] = _frozen_copy(module, devices[index], values)
    frozen = [copy.copy(policy) for policy in team]
    for policy in frozen:
        policy.model = copies[id(policy.model)]
    return frozen


def _frozen_copy(
    module: torch.nn.Module, device: torch.device | None, values: Mapping[int, torch.Tensor]
) -> torch.nn.Module:
    """A copy whose tensors are made on ``device`` at once: the device they come from need not hold them twice.

    ``values``: other values for tensors of ``module``, by their identity, that nothing else writes to.
    """
    made: dict[int, object] = {}
    for tensor in [*module.parameters(), *module.buffers()]:
        place = tensor.device if device is None else device
        stored = values.get(id(tensor))
        own = tensor.detach().to(place, copy=True) if stored is None else stored.to(place, tensor.dtype)
        made[id(tensor)] = torch.nn.Parameter(own, False) if isinstance(tensor, torch.nn.Parameter) else own
    twin = copy.deepcopy(module, made)
    twin.requires_grad_(False)
    for inherit in (inherit_head, inherit_sharing, inherit_decoder):
        inherit(module, twin)
    return twin


def _stored_values(module: torch.nn.Module, path: Path) -> dict[int, torch.Tensor]:
    """What :func:`weights` kept, by the identity of the module's tensors."""
    state = module.state_dict(keep_vars=True)
    stored = _stored(path, state)
    return {id(state[name]): tensor for name, tensor in stored.items()}


def weights(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The state of a module for safetensors: contiguous, each shared tensor once (tied heads come back by tying)."""
    seen: dict[int, str] = {}
    kept: dict[str, torch.Tensor] = {}
    for name, tensor in module.state_dict().items():
        if tensor.data_ptr() in seen and tensor.numel() == kept[seen[tensor.data_ptr()]].numel():
            continue
        seen[tensor.data_ptr()] = name
        kept[name] = tensor.detach().contiguous()
    return kept


def load_weights(module: torch.nn.Module, path: Path) -> None:
    """Read what :func:`weights` kept into a module of the same shape, in place; tied tensors follow their twins.

    Raises:
        CheckpointError: the file is missing or damaged, a tensor is missing or has another shape.

    """
    state = module.state_dict()
    stored = _stored(path, state)
    with torch.no_grad():
        for name, tensor in stored.items():
            state[name].copy_(tensor)


def _stored(path: Path, state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    try:
        stored = load_file(path)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path}: cannot be read: {error}; {_WAY_OUT}") from error
    pointers = {tensor.data_ptr() for name, tensor in state.items() if name in stored}
    missing = [n for n, t in state.items() if n not in stored and t.data_ptr() not in pointers]
    if missing:
        raise CheckpointError(f"{path}: must hold tensor {missing[0]!r}, actually it does not; {_WAY_OUT}")
    for name, tensor in stored.items():
        if state[name].shape != tensor.shape:
            raise CheckpointError(
                f"{path}: {name!r} must have the model's shape {tuple(state[name].shape)}, actually "
                f"{tuple(tensor.shape)}; {_WAY_OUT}"
            )
    return stored
