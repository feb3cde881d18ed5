"""The code of README and documentation runs as it stands, page by page, and its links lead somewhere."""

from __future__ import annotations

import ast
import contextlib
import functools
import gc
import re
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from localai_shim.builtin import CHECKPOINT
from localai_shim.options import LoadOptions, RunOptions
from localai_shim.types import log
from tests.embedding_models import tiny_embedder, tiny_judge
from tests.endpoints.audio.quiet import quiet_whisper
from tests.lora import make_adapter
from tests.mlx_audio_models import tiny_speech
from tests.otel import no_telemetry
from tests.prompt.media.files import wav

pytest_plugins = ["pytester"]
ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in sorted(DOCS.glob("*.md"))}
TEXTS = {name: (ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "CONTRIBUTING.md")} | PAGES
ELSEWHERE = {
    "docs/tensor-parallel.md": "tests/scale/parallel/test_tensor_parallel_doc.py",
    "docs/testing.md": "tests/testing/test_testing_doc.py",
    "docs/scaling.md": "tests/scale/ray/test_scaling_doc.py",
}
"""Pages whose code another test runs."""
STAND_INS = {
    "mlx-community/Qwen3-8B-4bit": lambda: CHECKPOINT,
    "/models/small": lambda: CHECKPOINT,
    "mlx-community/Qwen3-Embedding-0.6B-8bit": lambda: tiny_embedder(
        "qwen3", prompts=(("query", "Instruct: find\nQuery:"), ("document", ""))
    ),
    "Qwen/Qwen3-Reranker-0.6B": tiny_judge,
    "mlx-community/whisper-large-v3-turbo-asr-fp16": quiet_whisper,
    "mlx-community/Qwen3-TTS-12Hz-1.7B-CustomVoice-8bit": lambda: tiny_speech("qwen3_tts"),
    "adapters/sql": lambda: adapter_of(0),
    "adapters/support": lambda: adapter_of(1),
}
"""Models that a text names, and the small ones that stand in for them."""


@functools.cache
def adapter_of(seed: int) -> Path:
    """Random LoRA adapters for the checkpoint in the package."""
    folder = Path(tempfile.mkdtemp(prefix="localai_shim-adapter-"))
    return make_adapter(folder, CHECKPOINT, seed=seed, keys=["self_attn.q_proj", "self_attn.v_proj"])


def blocks(text: str, kind: str) -> list[tuple[int, str]]:
    """The blocks of a kind in a text, each with its first line's number, less those for a suite of the reader's."""
    found = [
        (text.count("\n", 0, match.start(1)) + 1, match[1])
        for match in re.finditer(rf"^```{kind}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    ]
    return [(line, code) for line, code in found if kind != "python" or "def test_" not in code]


RUN = [name for name, text in TEXTS.items() if blocks(text, "python") and name not in ELSEWHERE]
TESTS = [
    pytest.param(code, id=f"{name}:{line}")
    for name, text in TEXTS.items()
    for line, code in blocks(text, "python pytest")
]


@pytest.fixture(autouse=True)
def _as_a_reader_has_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No key, and nobody has set up OpenTelemetry. What a page does to the logger is undone."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.chdir(tmp_path)  # where pages write their files
    (tmp_path / "meeting.wav").write_bytes(wav(np.zeros(8_000, np.int16)))
    handlers, level = list(log.handlers), log.level
    with no_telemetry():
        yield
    log.handlers[:] = handlers
    log.setLevel(level)


def run_page(name: str) -> None:
    """Run the code of a page from its top to its end."""
    page: dict[str, Any] = {"__name__": name}
    for line, code in blocks(TEXTS[name], "python"):
        for model, make in STAND_INS.items():
            if model in code:
                code = code.replace(f'"{model}"', repr(str(make())))
        exec(compile("\n" * (line - 1) + code, ROOT / name, "exec", dont_inherit=True), page)
    client = page.pop("client", None)
    if client is not None:
        client.close()
    page.clear()
    with contextlib.suppress(RuntimeError):
        gc.collect()


@pytest.mark.filterwarnings("ignore:deprecated:DeprecationWarning")  # OpenAI ends translations of audio
@pytest.mark.parametrize("name", [name for name in RUN if name != "docs/agents.md"])
def test_the_code_of_a_page_runs_from_its_top_to_its_end(name: str) -> None:
    run_page(name)


def test_the_page_of_agents_prints_answers_that_a_reader_believes(capsys: pytest.CaptureFixture[str]) -> None:
    run_page("docs/agents.md")
    sums, weather, *rest = capsys.readouterr().out.splitlines()
    assert [f"{i} + {i} = {2 * i}." in sums for i in range(1, 9)] == [True] * 8
    for city, answer in zip(("Paris", "Rome", "Oslo"), ast.literal_eval(weather), strict=True):
        assert all(word in answer for word in (city, "15 degrees", "sunny")) and len(answer) < 50, answer
    assert rest[0] == "canceled"


@pytest.mark.parametrize("snippet", TESTS)
def test_a_snippet_is_a_test_that_passes(pytester: pytest.Pytester, snippet: str) -> None:
    pytester.makepyfile(test_snippet=snippet)
    arguments = ("-p", "localai_shim.testing.plugin", "-p", "no:cacheprovider", "--block-openai")
    for mode in ("once", "none"):
        result = pytester.runpytest_inprocess(*arguments, f"--record-mode={mode}")
        assert result.parseoutcomes() == {"passed": 1}


def test_no_page_or_example_replaces_a_name_of_the_sdk() -> None:
    """Names that are missed would still send prompts to OpenAI."""
    texts = {name: text for name, text in TEXTS.items() if name != "README.md"}
    texts |= {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "examples").rglob("*.py")}
    replaced = re.compile(
        r"^\s*(?:openai\.\w+,? *=?,? *)*openai\.(?:Async)?(?:Azure)?(?:OpenAI|Client)\s*=[^=]", re.MULTILINE
    )
    assert [name for name, text in texts.items() if replaced.search(text)] == []


@pytest.mark.parametrize("name", ELSEWHERE)
def test_what_is_not_run_here_is_run_there(name: str) -> None:
    assert name in (ROOT / ELSEWHERE[name]).read_text(encoding="utf-8")


# -- links and the site ----------------------------------------------------------------------------------------------


def anchors(text: str) -> set[str]:
    """The ids of a page's headings, as Markdown makes them."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    return {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower()) for heading in headings}


@pytest.mark.parametrize("name", TEXTS)
def test_links_lead_somewhere(name: str) -> None:
    for target in re.findall(r"\]\((?!https?://)([^)\s]+)\)", TEXTS[name]):
        path, _, anchor = target.partition("#")
        found = (ROOT / name).parent / path if path else ROOT / name
        assert found.exists(), target
        assert not anchor or anchor in anchors(found.read_text(encoding="utf-8")), target


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "docs/architecture.md", "docs/surroundings.md"])
def test_files_that_are_named_exist(name: str) -> None:
    text = re.sub(r"^```.*?^```", "", TEXTS[name], flags=re.MULTILINE | re.DOTALL)
    known = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("[!.]*/**/*.py")}
    named = set(re.findall(r"`([\w/]+\.py)`", text))
    assert len(named) > 10
    for each in named:
        assert any(f"/{path}".endswith(f"/{each}") for path in known), each


NOT_TUNING = {"adapter_path", "revision", "trust_remote_code", "tool_format", "reasoning_format"}


def test_the_pages_on_tuning_have_every_option_of_models_and_engines() -> None:
    options = {*LoadOptions.__annotations__, *RunOptions.__annotations__, "keep_alive"}
    text = PAGES["docs/performance.md"] + PAGES["docs/memory.md"]
    assert options - set(re.findall(r"`(\w+)[`=]", text)) == NOT_TUNING


def test_every_page_is_in_the_navigation() -> None:
    def leaves(entry: Any) -> Iterator[str]:
        if isinstance(entry, str):
            yield entry
        else:
            for each in entry.values() if isinstance(entry, dict) else entry:
                yield from leaves(each)

    site = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]
    assert sorted(leaves(site["nav"])) == sorted(path.name for path in DOCS.glob("*.md"))
