"""What the installed SDK has that nobody here has dealt with: arguments, fields of requests, their values, events.

With `FAIL_ON_SDK_NEWS` set, as in CI, news are a failure; elsewhere a newer SDK is no fault of who has installed it,
and the test says what is new as it is skipped. `python -m tests.sdk_surface` records what has been dealt with.
"""

from __future__ import annotations

import json
import os
from typing import Any

import openai
import pytest

from localai_shim import LocalOpenAI
from localai_shim.testing import ScriptedEngine
from tests.sdk_surface import RECORDED, Surface, news, read_surface


@pytest.fixture(scope="module")
def recorded() -> Surface:
    found: dict[str, Any] = json.loads(RECORDED.read_text())
    return {name: members for name, members in found.items() if name != "version"}


@pytest.fixture(scope="module")
def installed() -> Surface:
    return read_surface()


def test_the_installed_sdk_has_nothing_new(installed: Surface, recorded: Surface) -> None:
    found = news(installed, recorded)
    told = f"openai {openai.__version__} has what is not dealt with yet: " + "; ".join(found)
    if found and not os.environ.get("FAIL_ON_SDK_NEWS"):
        pytest.skip(told)
    assert not found, told


def test_the_record_is_that_of_the_version_that_it_names(installed: Surface, recorded: Surface) -> None:
    version = json.loads(RECORDED.read_text())["version"]
    same = [name for name in recorded if recorded[name] == installed.get(name)]
    assert len(same) > 200
    assert openai.__version__ != version or installed == recorded


def test_arguments_fields_values_and_events_are_read(installed: Surface) -> None:
    assert {"messages", "stream", "extra_body", "verbosity"} <= set(installed["chat.completions.create"])
    assert {"text_format", "input"} <= set(installed["responses.parse"])
    assert "api_key" in installed["OpenAI"] and "_extra_kwargs" in installed["OpenAI.copy"]
    assert "encrypted_content" in installed["responses.response_reasoning_item_param.ResponseReasoningItemParam"]
    assert {"low", "high"} <= set(installed["values of chat.completions.verbosity"])
    assert {"error", "response.created", "response.output_text.delta"} <= set(installed["events of responses"])


def test_news_name_what_was_added_and_where(recorded: Surface) -> None:
    later = {
        **recorded,
        "responses.create": [*recorded["responses.create"], "telepathy"],
        "events of responses": [*recorded["events of responses"], "response.thought.delta"],
        "responses.rewind": ["response_id"],
    }
    del later["models.list"]  # what is gone is another test's affair
    assert sorted(news(later, recorded)) == [
        "events of responses: response.thought.delta",
        "responses.create: telepathy",
        "responses.rewind (new): response_id",
    ]


def test_who_uses_an_argument_that_is_too_new_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    create = openai.resources.chat.Completions.create

    def with_news(self: Any, *, telepathy: Any = None, **more: Any) -> Any:
        return create(self, **more, extra_body={"telepathy": telepathy})

    monkeypatch.setattr(openai.resources.chat.Completions, "create", with_news)
    with ScriptedEngine(["hi"]) as engine:
        client: Any = LocalOpenAI(engine=engine)
        with pytest.raises(
            openai.BadRequestError, match=rf"an argument of openai {openai.__version__}, which is newer"
        ):
            client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}], telepathy=1)


def test_who_misspells_one_is_not() -> None:
    with ScriptedEngine(["hi"]) as engine, pytest.raises(openai.BadRequestError, match="'telepathy'") as caught:
        LocalOpenAI(engine=engine).responses.create(model="m", input="hi", extra_body={"telepathy": 1})
    assert "newer" not in str(caught.value)
