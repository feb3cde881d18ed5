"""The examples run on what ships with the package, and do what they say."""

from __future__ import annotations

import asyncio
import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import httpx
import pytest

FOLDER = Path(__file__).parents[1] / "examples"


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"examples.{name}", FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_agents_with_tools(capsys: pytest.CaptureFixture[str]) -> None:
    module = example("agents")
    asyncio.run(module.main())
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(module.CITIES)
    assert lines[0] == "What is the weather in Paris?  15 degrees in Paris, sunny."


def test_the_demo_shows_answers_that_a_reader_believes(capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(example("demo").main())
    said = capsys.readouterr().out
    for line in (
        "    That is 12 apples.",
        '    get_weather {"city": "Oslo"} -> 4 degrees and snow in Oslo\n    4 degrees and snow in Oslo.',
        "    The amount is 21.6 and the currency is USD.",
        "    21 degrees and sunny in Rome. 15 degrees and cloudy in Paris.",
        "    Person(name='Anna Berg', age=31, city='Oslo', job='nurse')",
        "  How many shapes are there?\n    2\n",
        "  What is left of the blue square?\n    A red circle.",
        "  What number is printed?\n    472",
    ):
        assert line in said, line


def test_agents_that_share_a_system_prompt(capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(example("shared_prompt").main())
    *answers, last = capsys.readouterr().out.splitlines()
    assert answers[:2] == ["1 + 5 = 6.", "2 + 5 = 7."] and len(answers) == 20
    words = last.split()
    assert int(words[words.index("tokens") - 1]) > int(words[words.index("which") - 2]) > 10_000


def test_classification(capsys: pytest.CaptureFixture[str]) -> None:
    module = example("classify")
    asyncio.run(module.main())
    lines = capsys.readouterr().out.splitlines()
    topics = module.Label.model_json_schema()["properties"]["topic"]["enum"]
    assert len(lines) == len(module.TEXTS) and all(line.split()[0] in topics for line in lines)


def test_a_web_app_with_the_client_inside() -> None:
    app = example("fastapi_app").app

    async def ask(client: httpx.AsyncClient, question: str) -> Any:
        return (await client.get("/ask", params={"question": question})).text

    async def run() -> list[str]:
        transport = httpx.ASGITransport(app)
        async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport, base_url="http://a") as web:
            return await asyncio.gather(*(ask(web, f"What is {i} + 5?") for i in range(1, 4)))

    assert asyncio.run(run()) == ["1 + 5 = 6.", "2 + 5 = 7.", "3 + 5 = 8."]


def test_reinforcement_learning(capsys: pytest.CaptureFixture[str]) -> None:
    module = example("grpo")
    rewards = asyncio.run(module.main(steps=7))
    assert len(rewards) == 7 and rewards[0] <= 0.7 and rewards[-1] >= rewards[0] + 0.2
    assert capsys.readouterr().out.splitlines()[-1] == f"reward before {rewards[0]:.2f}, after {rewards[-1]:.2f}"
    assert ElementTree.fromstring(module.draw(rewards)).tag == "{http://www.w3.org/2000/svg}svg"


def test_every_example_is_run_by_a_test() -> None:
    """test_vision_clients.py runs `vision`; `pytest_project` is a suite of its own."""
    elsewhere = {"vision", "langgraph_agent", "ray_data", "ray_serve"}  # in tests/frameworks and tests/scale/ray
    assert {path.stem for path in FOLDER.glob("*.py")} - elsewhere == {
        "agents",
        "classify",
        "demo",
        "fastapi_app",
        "grpo",
        "shared_prompt",
    }
