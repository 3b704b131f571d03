"""Rows of public data sets: every file format, splits that never meet, the Hub at a commit."""

import csv
import gzip
import json
import sys
import types

import pytest

from comlrl_env.errors import TaskError
from comlrl_env.rows import PublicData, read_files

ROWS = [{"text": f"row {i}\u2028with a line separator", "n": i} for i in range(8)]
TWO = PublicData("someone/two", ("text",), {"train": "train", "eval": "test"}, 3)
ONE = PublicData("someone/one", ("text",), {"train": "all", "eval": "all"}, 3)


def write(path, rows):
    text = json.dumps(rows) if ".jsonl" not in path.name else "\n".join(json.dumps(r, ensure_ascii=False) for r in rows)
    if path.name.endswith(".csv"):
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, ["text", "n"])
            writer.writeheader()
            writer.writerows(rows)
    elif path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text, encoding="utf-8")
    return path


def texts(items):
    return [item.data["text"] for item in items]


@pytest.mark.parametrize("name", ["rows.json", "rows.jsonl", "rows.jsonl.gz", "rows.json.gz", "rows.csv"])
def test_formats(tmp_path, name):
    rows = read_files([write(tmp_path / name, ROWS)])
    assert [row["text"] for row in rows] == [row["text"] for row in ROWS]


def test_one_file_is_cut_and_a_folder_has_files_for_both(tmp_path):
    items = ONE.items(str(write(tmp_path / "rows.jsonl", ROWS)))
    assert texts(items["eval"]) == [row["text"] for row in ROWS[:2]]  # a quarter of 8, not 3
    assert texts(items["train"]) == [row["text"] for row in ROWS[2:]]
    folder = tmp_path / "folder"
    folder.mkdir()
    write(folder / "train-00000-of-00002.jsonl", ROWS[:2])
    write(folder / "train-00001-of-00002.jsonl", ROWS[2:5])
    write(folder / "test.json", ROWS[4:])
    items = TWO.items(str(folder))
    assert texts(items["eval"]) == [row["text"] for row in ROWS[4:7]]
    assert texts(items["train"]) == [row["text"] for row in ROWS[:4]]  # row 4 stands in evaluation
    keys = [item.key for part in items.values() for item in part]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", '{"text": "x"}\n{"text": ', "cannot read"),
        ("a.json", '{"text": "x"}', "named fields"),
        ("a.json", "[1, 2]", "named fields"),
        ("a.jsonl", '{"other": "x"}', "lacks text and has other"),
        ("a.txt", "x", "expected one of"),
        ("a.jsonl.gz", "no gzip", "cannot read"),
        ("a.jsonl", '{"text": "x"}', "leaves none for eval"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(TaskError, match=message):
        ONE.items(str(path))


def test_missing_files_and_packages(tmp_path, monkeypatch):
    with pytest.raises(TaskError, match="files named test"):
        TWO.items(str(tmp_path))
    with pytest.raises(TaskError, match="nowhere' has none"):
        TWO.items(str(tmp_path / "nowhere"))
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    monkeypatch.setitem(sys.modules, "datasets", None)
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    with pytest.raises(TaskError, match="pip install pyarrow"):
        ONE.items(str(tmp_path / "a.parquet"))
    with pytest.raises(TaskError, match="pip install datasets"):
        ONE.items("hub", "a" * 40)


@pytest.mark.parametrize("revision", [None, "main", "a" * 39, "A" * 40])
def test_the_hub_is_asked_for_a_commit_only(revision):
    with pytest.raises(TaskError, match="40 hexadecimal digits"):
        TWO.items("hub", revision)


def test_the_hub_and_parquet_go_through_their_packages(tmp_path, monkeypatch):
    asked = []

    def load_dataset(repo, config, *, split, revision):
        asked.append((repo, config, split, revision))
        return ROWS[:4] if split == "train" else ROWS[4:]

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))
    items = TWO.items("hub", "0123456789" * 4)
    assert sorted(asked) == [("someone/two", None, split, "0123456789" * 4) for split in ("test", "train")]
    assert texts(items["train"]) == [row["text"] for row in ROWS[:4]]

    def read_table(path):
        assert path == tmp_path / "a.parquet"
        return types.SimpleNamespace(to_pylist=lambda: ROWS)

    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    parquet = types.SimpleNamespace(read_table=read_table)
    monkeypatch.setitem(sys.modules, "pyarrow", types.SimpleNamespace(parquet=parquet))
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", parquet)
    assert len(ONE.items(str(tmp_path / "a.parquet"))["train"]) == 6
