"""Calls that models write almost rightly, of every family: nothing of them is lost, and no marker is content."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from localai_shim.output.channels import markers_of
from tests.output.reading import Answer
from tests.output.recorded import WRITERS
from tests.output.recorded.case import Call, Case
from tests.output.recorded.read import markup_of, read

ONE: Call = ("plan_trip", {"city": "zebra"})
OTHER: Call = ("set_level", {"level": 77})
_TOKEN = re.compile(r"<\|[^<>|]*\|>|<｜[^<>｜]*｜>|</?[\w:｜]+|\w+|\s+|.", re.DOTALL)
PARALLEL = [name for name, writer in WRITERS.items() if writer.parallel]


def damaged(text: str) -> Iterator[str]:
    """A text in which one token is gone, another, or doubled; the values that the calls have are whole."""
    tokens = _TOKEN.findall(text)
    for at, token in enumerate(tokens):
        for instead in ("", "@", token * 2):
            made = "".join([*tokens[:at], instead, *tokens[at + 1 :]])
            if "zebra" in made and ("77" in made or "77" not in text):
                yield made


def everything(answer: Answer) -> str:
    calls = [f"{name} {arguments}" for name, arguments in answer.calls]
    return " ".join([answer.content, answer.reasoning, *calls, *(call.text for call in answer.invalid)])


@pytest.mark.parametrize("calls", [(ONE, OTHER), (OTHER, ONE)], ids=["first", "second"])
@pytest.mark.parametrize("family", PARALLEL)
def test_nothing_of_a_damaged_call_or_of_one_next_to_it_is_lost(family: str, calls: tuple[Call, Call]) -> None:
    for text in damaged(WRITERS[family].block(calls)):
        case = Case(family, "", text)
        found = read(case, [text])
        assert "zebra" in everything(found) and "77" in everything(found), text
        assert found == read(case, list(text)), text


# Families in which a call has no beginning that can be told from text, or an answer is text if its first call is none.
SWALLOWING = ("lfm2", "pythonic", "llama3_json", "xlam", "command_r_plus")


@pytest.mark.parametrize("name", ["plan_trip", "no name"])
@pytest.mark.parametrize("family", [name for name in PARALLEL if name not in SWALLOWING])
def test_a_readable_call_behind_an_unreadable_one_is_read(family: str, name: str) -> None:
    whole = WRITERS[family].block([ONE, OTHER])
    text = re.sub("plan_trip.*?zebra", f"{name} for a zebra", whole, count=1, flags=re.DOTALL)
    if "zebra for" in text or text == whole:
        return
    found = read(Case(family, "", text), [text])
    assert ("set_level", '{"level": 77}') in found.calls, text
    assert "zebra" in everything(found), text


@pytest.mark.parametrize("family", WRITERS)
def test_no_special_token_of_a_damaged_call_is_content(family: str) -> None:
    """Unless nothing else could be read: then all of it is shown."""
    markers = markers_of(markup_of(family))
    special = {token for marker in markers for token in re.findall(r"<\|[^<>|\s]+\|>|<｜[^<>｜]+｜>", marker)}
    for text in damaged(WRITERS[family].block([ONE])):
        found = read(Case(family, "", text), [text])
        assert (found.invalid and not found.calls) or not [each for each in special if each in found.content], text


_SECTION = ("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>")
_RING = "<|tool_call_begin|>functions.ring:1<|tool_call_argument_begin|>{}<|tool_call_end|>"
_GARBAGE = "<|tool_call_begin|>a garbled one<|tool_call_end|>"
_NO_COLON = '<|tool_call_begin|>functions.plan_trip {"city": "Rome"}<|tool_call_end|>'
_INVOKE = '<｜DSML｜tool_calls>\n<｜DSML｜invoke name="ring">\n</｜DSML｜invoke>\n{}</｜DSML｜tool_calls>{}'
_K3_TOOLS = '<|open|>tools{0}<|sep|><|open|>call{0} tool="plan_trip" index="1"{0}<|sep|><|open|>argument'
_K3 = (
    _K3_TOOLS + ' key="city" type="string"{0}<|sep|>Rome<|close|>argument{0}<|sep|><|close|>{0}call<|sep|>'
    "<|close|>tools{0}<|sep|><|close|>message{0}<|sep|>"
)
RING, ROME = ("ring", "{}"), ("plan_trip", '{"city": "Rome"}')


@pytest.mark.parametrize(
    ("family", "text", "calls", "content", "invalid"),
    [
        ("kimi_k2", _SECTION[0] + _GARBAGE + _RING + _SECTION[1], [RING], "", [_GARBAGE]),
        ("kimi_k2", _SECTION[0] + _RING + _GARBAGE + _SECTION[1], [RING], "", [_GARBAGE]),
        ("kimi_k2", _SECTION[0] + _NO_COLON + _RING + _SECTION[1], [ROME, RING], "", []),
        ("kimi_k2", _GARBAGE + _RING, [RING], "a garbled one", ["<|tool_call_begin|>"]),
        ("deepseek_v4", _INVOKE.format("", "</｜DSML｜tool_calls>"), [RING], "", []),
        ("deepseek_v4", _INVOKE.format("</｜DSML｜invoke>\n", ""), [RING], "", []),
        ("deepseek_v4", _INVOKE.format("", "</｜DSML｜invoke>"), [RING], "", []),
        ("deepseek_v4", "Well.</｜DSML｜invoke></｜DSML｜function_calls>", [], "Well.", []),
        ("deepseek_v32", "Well.</｜DSML｜parameter></｜DSML｜tool_calls>", [], "Well.", []),
        *(("kimi_k3", _K3.format(blank), [ROME], "", []) for blank in ("", " ", "\n", "  ")),
        ("kimi_k3", "<|open|>think <|sep|>Hm.<|close|> think<|sep|><|open|> response <|sep|>Yes.", [], "Yes.", []),
        ("muse", "Yes.", [], "Yes.", []),
        ("muse", " to=user Yes.<|eom|>", [], "Yes.", []),
        ("muse", " to=ring<|message|>Yes.<|eom|><|start|>assistant to=user<|message|>No.", [], "No.", ["Yes."]),
        ("harmony", "<|channel|>final Yes.<|return|>", [], "Yes.", []),
        ("hermes", '<tool_call>{"name": "plan_trip", "city": "Rome"}</tool_call>', [ROME], "", []),
        ("hermes", '<tool_call>{"name": "plan_trip", "args": {"city": "Rome"}}</tool_call>', [ROME], "", []),
    ],
)
def test_what_is_read_of_calls_that_are_almost_right(
    family: str, text: str, calls: list[tuple[str, str]], content: str, invalid: list[str]
) -> None:
    for pieces in ([text], list(text), [text[at : at + 7] for at in range(0, len(text), 7)]):
        found = read(Case(family, "", text), pieces)
        assert (found.calls, found.content.strip()) == (calls, content)
        assert [call.text for call in found.invalid] == invalid
