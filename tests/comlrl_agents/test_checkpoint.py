"""Checkpoints as folders: what is whole, what is damaged, what is cleaned away."""

import json
from pathlib import Path

import pytest

from comlrl_agents.checkpoint import complete_checkpoints, is_complete, latest_checkpoint, read_state, write_checkpoint
from comlrl_env.errors import CheckpointError


def fill(staged: Path) -> None:
    (staged / "weights").mkdir()
    (staged / "weights" / "agent_0.safetensors").write_bytes(b"123456789")
    (staged / "state.json").write_text('{"round": 3}')


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_checkpoint_lists_every_file_with_size_and_checksum(tmp_path: Path):
    path = write_checkpoint(tmp_path, "step_1", fill, None)
    assert read_state(path) == {"round": 3}
    listed = json.loads((path / "manifest.json").read_text())
    # The check value of CRC-32: 0xCBF43926 for "123456789".
    assert listed["weights/agent_0.safetensors"] == {"bytes": 9, "crc32": 0xCBF43926}
    assert set(listed) == {"weights/agent_0.safetensors", "state.json"}


def test_a_damaged_file_of_the_same_size_is_named(tmp_path: Path):
    path = write_checkpoint(tmp_path, "step_1", fill, None)
    weights = path / "weights" / "agent_0.safetensors"
    weights.write_bytes(b"123456780")
    with pytest.raises(CheckpointError, match=rf"^{weights}: is damaged: .* or delete {path} to resume from"):
        read_state(path)
    weights.write_bytes(b"123456789")
    assert read_state(path) == {"round": 3}


@pytest.mark.parametrize("manifest", ["[]", '{"state.json": 12}', "{", '{"state.json": {"bytes": 1}}', "3"])
def test_another_manifest_makes_no_whole_checkpoint(tmp_path: Path, manifest: str):
    path = write_checkpoint(tmp_path, "step_1", fill, None)
    (path / "manifest.json").write_text(manifest)
    assert not is_complete(path)


def test_half_deleted_and_half_written_ones_go_with_the_next(tmp_path: Path):
    first = write_checkpoint(tmp_path, "step_1", fill, None)
    (first / "state.json").unlink()
    (tmp_path / ".staged-step_9").mkdir()
    for number in (2, 3):
        write_checkpoint(tmp_path, f"step_{number}", fill, 2)
    assert names(tmp_path) == ["step_2", "step_3"]
    assert [path.name for path in complete_checkpoints(tmp_path)] == ["step_2", "step_3"]


def test_a_damaged_one_among_those_to_keep_is_no_reason_to_delete_a_whole_one(tmp_path: Path):
    for number in (1, 2):
        write_checkpoint(tmp_path, f"step_{number}", fill, 2)
    (tmp_path / "step_2" / "manifest.json").unlink()
    write_checkpoint(tmp_path, "step_3", fill, 2)
    assert names(tmp_path) == ["step_1", "step_2", "step_3"]
    assert latest_checkpoint(tmp_path) == tmp_path / "step_3"
