"""docs/scaling.md: its code runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[3] / "docs" / "scaling.md"


def test_the_code_of_the_page_runs_from_its_top_to_its_end(cluster: None) -> None:
    page: dict[str, Any] = {"__name__": "scaling"}
    text = PAGE.read_text(encoding="utf-8")
    for block in re.finditer(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        line = text.count("\n", 0, block.start(1))
        exec(compile("\n" * line + block[1], PAGE, "exec", dont_inherit=True), page)
    assert page["client"].is_closed()
