"""`code_interpreter` with a hook: items, events, containers, and outputs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import openai
import pytest

from localai_shim import LocalOpenAI
from localai_shim.endpoints.hosted.partial import StringReader
from localai_shim.testing import ScriptedEngine
from tests.endpoints.hosted.hosting import (
    ASKS_CODE,
    ASKS_SEARCH,
    CODE,
    RAN,
    SEARCH,
    Hooks,
    ask,
    each_way,
    script,
    types,
)

PLOT = {"name": "plot.png", "url": "data:image/png;base64,AA=="}


@each_way
def test_code_is_run_and_the_same_response_continues(how: str) -> None:
    hooks = Hooks()
    with ScriptedEngine(script(ASKS_CODE, "Done.")) as engine:
        response, events = ask(engine, how, hooks.all, tools=[CODE])
    assert types(response) == ["code_interpreter_call", "message"]
    ran = response.output[0]
    assert ran.id.startswith("ci_") and ran.container_id.startswith("cntr_")
    assert (ran.code, ran.outputs, ran.status) == (RAN, None, "completed")
    assert hooks.calls == [(RAN, ran.container_id, {})]
    if how.endswith("streamed"):
        deltas = [event.delta for event in events if event.type == "response.code_interpreter_call_code.delta"]
        assert "".join(deltas) == RAN and len(deltas) > 1


OUTPUTS: list[tuple[Any, list[dict[str, str]] | None, str]] = [
    ({"logs": "2\n"}, [{"type": "logs", "logs": "2\n"}], "2"),
    ("2\n", [{"type": "logs", "logs": "2\n"}], "2"),
    ({"logs": "", "files": []}, None, "The code has printed nothing."),
    (
        {"logs": "ok", "files": [PLOT, {"name": "data.csv"}]},
        [{"type": "logs", "logs": "ok"}, {"type": "image", "url": PLOT["url"]}],
        "ok\nIt has written the file plot.png.\nIt has written the file data.csv.",
    ),
    (
        SimpleNamespace(logs="ok", files=(SimpleNamespace(name="a.txt", url=None),)),
        [{"type": "logs", "logs": "ok"}],
        "ok\nIt has written the file a.txt.",
    ),
]


@pytest.mark.parametrize(("returned", "outputs", "read"), OUTPUTS)
def test_logs_and_pictures_are_outputs(returned: Any, outputs: Any, read: str) -> None:
    with ScriptedEngine(script(ASKS_CODE, "Done.")) as engine:
        include = ["code_interpreter_call.outputs"]
        response, _ = ask(engine, "streamed", Hooks(ran=returned).all, tools=[CODE], include=include)
    ran = response.output[0]
    assert (ran.outputs and [each.to_dict() for each in ran.outputs]) == outputs
    assert ran.output == read


def test_a_conversation_continues_in_its_container() -> None:
    hooks = Hooks()
    asked: Any = {"model": "m", "tools": [CODE]}
    with (
        ScriptedEngine(script(ASKS_CODE, "Done.")) as engine,
        LocalOpenAI(engine=engine, hosted_tools=hooks.all) as client,
    ):
        first = client.responses.create(**asked, input="Weather?")
        client.responses.create(**asked, input="Weather again?", previous_response_id=first.id)
        client.responses.create(**asked, input="Weather?")
        client.responses.create(model="m", input="Weather?", tools=[{**CODE, "container": "cntr_mine"}])
    first_id, second, other, own = (container for _, container, _ in hooks.calls)
    assert first_id == second != other and own == "cntr_mine"


def test_options_of_the_container_are_options_of_the_hook() -> None:
    options: dict[str, Any] = {
        "file_ids": ["file-1"],
        "memory_limit": "4g",
        "network_policy": {"type": "disabled"},
    }
    tool = {"type": "code_interpreter", "container": {"type": "auto", **options}}
    hooks = Hooks()

    def run(code: str, container: str) -> str:
        return ""

    with ScriptedEngine(script(ASKS_CODE, "Done.")) as engine:
        ask(engine, "whole", hooks.all, tools=[tool])
        with pytest.raises(openai.BadRequestError) as caught:
            ask(engine, "whole", {"code_interpreter": run}, tools=[tool])
    assert [given for _, _, given in hooks.calls] == [options]
    assert caught.value.param == "tools[0].container.file_ids"


@each_way
def test_tools_of_two_kinds_are_called_in_one_round(how: str) -> None:
    hooks = Hooks()
    with ScriptedEngine(script(ASKS_CODE + ASKS_SEARCH + ASKS_CODE, "Done.")) as engine:
        response, _ = ask(engine, how, hooks.all, tools=[SEARCH, CODE])
    assert types(response) == ["code_interpreter_call", "web_search_call", "code_interpreter_call", "message"]
    assert sorted(len(each) for each in hooks.calls) == [2, 3, 3]


TEXTS = [r"print(1)", r"a\nb\t\"c\" \\ é", r"\u00e9\ud83d\ude00!", "raw é 😀"]


@pytest.mark.parametrize("size", [1, 2, 3, 100])
@pytest.mark.parametrize("text", TEXTS)
def test_a_string_of_json_is_read_while_it_is_written(text: str, size: int) -> None:
    import json

    whole = f' {{ "code" : "{text}", "more": "x"}}'
    reader = StringReader("code")
    read = [reader.feed(whole[i : i + size]) for i in range(0, len(whole), size)]
    assert "".join(read) == json.loads(whole)["code"]
    assert all(piece.encode() is not None for piece in read)
