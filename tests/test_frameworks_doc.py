"""docs/frameworks.md, the tests that run its blocks, and the environments that these have."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

from tests.frameworks import kit

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "tests" / "frameworks"
FILES = {path.stem.removeprefix("test_"): path.read_text(encoding="utf-8") for path in FOLDER.glob("test_*.py")}
DEFS = (ast.FunctionDef, ast.AsyncFunctionDef)
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def words(variable: str) -> list[str]:
    """A variable of the Makefile."""
    found = re.search(rf"^{variable} := (.*)$", MAKEFILE, re.MULTILINE)
    return found[1].split() if found else []


def test_each_block_of_the_page_is_run_by_a_test() -> None:
    run = {name for text in FILES.values() for name in re.findall(r'^    snippet = "(.+)"$', text, re.MULTILINE)}
    assert run == set(kit.snippets())
    page = kit.PAGE.read_text(encoding="utf-8")
    assert page.count("```python") == len(kit.snippets())  # none is without a name, and no two have the same


def test_each_framework_is_asked_for_the_same_things() -> None:
    """An answer, its usage, a stream, a tool's round trip, a structured answer, eight calls at once, a real model."""
    asked = [name for name in vars(kit.Behaviours) if name.startswith("test_")]
    assert len(asked) == 7
    says = {"ask", "stream", "use_tool", "fill_in"}
    besides = {"lm_eval"}  # it evaluates
    besides |= {"agent_loops", "hosted_tools", "hosted_mcp", "file_search", "input_files"}  # they ask some once more
    besides |= {"voice_agents", "audio_loaders"}  # they hear and speak
    frameworks = {name for name, text in FILES.items() if "framework(" in text} - besides
    assert len(frameworks) == 13
    for name in frameworks:
        classes = [node for node in ast.walk(ast.parse(FILES[name])) if isinstance(node, ast.ClassDef)]
        methods = {each.name: {part.name for part in each.body if isinstance(part, DEFS)} for each in classes}
        first = [each.name for each in classes if any(getattr(base, "id", "") == "Behaviours" for base in each.bases)]
        assert first and all(says <= methods[each] for each in first), name
        assert not any(set(asked) & own for own in methods.values()), f"{name} has its own idea of a test"
        assert not re.search(r"pytest\.skip|mark\.(skip|xfail)", FILES[name]), name


def test_clients_that_frameworks_make_are_patched_for_each() -> None:
    asked = set(re.findall(r"^def ask_(\w+)\(", FILES["transport"], re.MULTILINE))
    assert {"langchain", "agents", "pydantic_ai", "litellm", "dspy", "crewai", "llama_index", "smolagents"} <= asked
    assert {"agno", "autogen", "haystack", "semantic_kernel"} <= asked
    for name in set(words("WEEKLY")) - {"lm_eval", "genai"}:
        assert "transport" in words(f"FILES_{name}"), name


def test_the_page_says_which_versions_were_tested() -> None:
    tested = dict(re.findall(r"^(\S+)==(\S+)$", (FOLDER / "tested.txt").read_text(encoding="utf-8"), re.MULTILINE))
    rows = re.findall(r"^\| \[(.+?)\]\(.*?\).*? \| (.*?) \|", kit.PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(rows) == 13
    for name, versions in rows:
        for version in versions.split(", "):
            package = version.split()[0] if " " in version else name.lower().replace(" ", "-")
            package = {"pydantic-ai": "pydantic-ai-slim"}.get(package, package)
            assert tested[package] == version.split()[-1], name


def test_each_environment_has_its_group_and_each_framework_its_environment() -> None:
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["dependency-groups"]
    each_time, weekly = words("EACH_TIME"), words("WEEKLY")
    assert {f"frameworks-{name}" for name in each_time + weekly} == {g for g in groups if g.startswith("frameworks-")}
    for names, is_weekly in ((each_time, False), (weekly, True)):
        chosen = {file for name in names for file in words(f"FILES_{name}") or [name]} & {
            file for file, text in FILES.items() if "framework(" in text
        }
        marked = {file for file in chosen if "pytest.mark.weekly" in FILES[file]}
        assert marked == (chosen if is_weekly else set())
    everywhere = {file for name in each_time + weekly for file in words(f"FILES_{name}") or [name]}
    assert {file for file, text in FILES.items() if "kit import" in text} <= everywhere
