"""Where a run may lie, found out before anything is loaded."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from comlrl_agents.config import MADPOIterConfig, RLConfig
from comlrl_agents.run_folder import RunFolder, usable_folder
from comlrl_agents.trainers import MADPOIterTrainer, RLTrainer
from comlrl_env.errors import ConfigError
from tests.comlrl_agents.toys import ColourEnv

REFUSED = "output_dir: must be a folder that can be made and written to, actually .*"


def test_a_folder_that_is_yet_to_be_made_is_only_tried_out(tmp_path: Path):
    assert RunFolder(tmp_path / "runs" / "a").path == tmp_path / "runs" / "a"
    assert list(tmp_path.iterdir()) == []


def test_each_trainer_has_a_folder_of_its_own_where_none_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    paths = [MADPOIterTrainer(ColourEnv(), args=MADPOIterConfig(items_per_round=1)).folder.path for _ in range(2)]
    paths += [RLTrainer(ColourEnv(), args=RLConfig(rl_algorithm="marloo", items_per_round=1)).folder.path]
    assert len(set(paths)) == 3
    assert {path.parent for path in paths} == {tmp_path / "runs"}
    assert [re.sub(r"\d", "0", path.name) for path in paths] == [
        "madpo-iter-00000000-000000-000000", "madpo-iter-00000000-000000-000000", "marloo-00000000-000000-000000",
    ]  # fmt: skip
    assert list(tmp_path.iterdir()) == []


def test_no_folder_can_be_made_under_a_file(tmp_path: Path):
    (tmp_path / "file").write_text("kept")
    for folder in (tmp_path / "file", tmp_path / "file" / "run", str(tmp_path / ("n" * 300)), "a\0b"):
        with pytest.raises(ConfigError, match=REFUSED):
            RunFolder(folder)
    assert (tmp_path / "file").read_text() == "kept"
    with pytest.raises(ConfigError, match="output_dir: must name a folder, actually ''"):
        RunFolder("")


def test_a_place_where_nothing_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    if os.getuid():  # root may write everywhere but in /proc
        tmp_path.chmod(0o500)
        with pytest.raises(ConfigError, match=f"{REFUSED}Permission denied"):
            RunFolder(tmp_path / "run")
        tmp_path.chmod(0o700)

    def read_only(*_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(os, "mkdir", read_only)
    with pytest.raises(ConfigError, match=f"{REFUSED}Read-only file system.*name another one"):
        usable_folder("output_dir", tmp_path / "run")


@pytest.mark.parametrize("field", ["output_dir", "preference_replay_dir", "policy_checkpoint_dir"])
def test_a_trainer_looks_at_its_folders_before_its_models(tmp_path: Path, field: str):
    (tmp_path / "file").touch()
    folders = {"output_dir": str(tmp_path / "run"), field: str(tmp_path / "file" / "x")}
    args = MADPOIterConfig(
        items_per_round=2, **{name: value for name, value in folders.items() if name != "output_dir"}
    )
    with pytest.raises(ConfigError, match=f"^{field}: must be a folder"):
        MADPOIterTrainer(ColourEnv(), agents="no/such/model", args=args, output_dir=folders["output_dir"])


def test_two_processes_do_not_train_in_one_folder(tmp_path: Path):
    code = (
        "import sys; from comlrl_agents.run_folder import RunFolder\n"
        "with RunFolder(sys.argv[1]).claimed():\n    print('mine', flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "mine\n"
        run = RLTrainer(ColourEnv(), args=RLConfig(items_per_round=1), output_dir=tmp_path)
        with pytest.raises(ConfigError, match=f"output_dir: another run is under way in {tmp_path}"):
            run.train()
        assert [path.name for path in tmp_path.iterdir()] == [".lock"]
        other.kill()
    with RunFolder(tmp_path).claimed():
        (tmp_path / ".lock").read_text()  # gives nothing back
        with pytest.raises(ConfigError, match="another run is under way"), RunFolder(tmp_path).claimed():
            pass
        with pytest.raises(ConfigError, match="another run is under way"):
            run.train()
    with RunFolder(tmp_path).claimed():
        pass
