"""What models of every family can say, in each family's own way of writing it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.output.recorded.case import Call, Case
from tests.output.recorded.writers import Writer

THOUGHT = "They want three nights by the sea.\n\nMarseille fits; {budget} is open, so I leave it out."
ANSWER = "Marseille: 24 °C, <b>dry</b> & {sunny} [until Sunday].\n\n1. Old port\n2. Calanques (by boat)"
ASIDE = "Let me book that."
TRIP: Call = ("plan_trip", {"city": "Marseille", "nights": 3, "budget": 412.5, "insured": True})
SHORT: Call = ("plan_trip", {"city": "Marseille", "nights": 3})
RING: Call = ("ring", {})
NESTED: Call = (
    "store_note",
    {
        "title": "Łódź – 京都 🚲",
        "tags": ["sea", "a, b", "c]"],
        "meta": {"lang": "pl", "pages": [1, 20, 300], "draft": False, "parent": None},
    },
)
TRICKY: Call = ("store_note", {"title": 'She said "oui", it\'s \\d+ {x} [y] <z>&amp;', "body": "one\ntwo\n\tthree: €"})
PADDED: Call = ("store_note", {"title": "  indented", "body": "\n\n  def f():\n      pass  "})
STRANGER: Call = ("launch_rocket", {"target": "moon"})


def scenarios(writer: Writer) -> Iterator[Case]:
    """The cases that a family has."""

    def case(name: str, text: str, *calls: Call, **more: Any) -> Case:
        return Case(writer.name, name, text, calls=calls, **more)

    turn, block = writer.turn, writer.block
    yield case("a plain answer", turn("", ANSWER, ""), content=ANSWER)
    yield case("one call", turn("", "", block([TRIP])), TRIP)
    yield case("no arguments", turn("", "", block([RING])), RING)
    yield case("quotes, escapes and newlines", turn("", "", block([TRICKY])), TRICKY)
    yield case("whitespace around strings", turn("", "", block([PADDED])), PADDED)
    yield case("nested values", turn("", "", block([NESTED])), NESTED)
    if writer.parallel:
        yield case("parallel calls", turn("", "", block([SHORT, RING, NESTED])), SHORT, RING, NESTED)
    if writer.beside:
        yield case("text and a call", turn("", ASIDE, block([SHORT])), SHORT, content=ASIDE)
    if writer.quotes and writer.markers:
        quoting: Call = ("store_note", {"title": f"On {' and '.join(writer.markers)}", "body": "of calls"})
        yield case("markers in a string", turn("", "", block([quoting])), quoting)
    yield from _thinking(writer)
    yield from _others(writer)
    yield from _cuts(writer)


def _thinking(writer: Writer) -> Iterator[Case]:
    if writer.think is None:
        return

    def case(name: str, text: str, *calls: Call, **more: Any) -> Case:
        more.setdefault("opened", not opening)
        return Case(writer.name, name, text, calls=calls, **more)

    turn, (opening, closing) = writer.turn, writer.think
    called, answered = turn(THOUGHT, "", writer.block([SHORT])), turn(THOUGHT, ANSWER, "")
    yield case("reasoning and a call", called, SHORT, reasoning=THOUGHT)
    yield case("reasoning and an answer", answered, reasoning=THOUGHT, content=ANSWER)
    if opening:
        yield case(
            "the prompt opened the reasoning", called.removeprefix(opening), SHORT, reasoning=THOUGHT, opened=True
        )
    yield case("reasoning that is cut", f"{opening}{THOUGHT}", reasoning=THOUGHT, finish="length")
    yield case("an empty thought", f"{opening}\n\n{closing}\n\n" + turn("", ANSWER, ""), content=ANSWER)
    if writer.mentions:
        mention = writer.block([RING])
        thought = f"I could write {mention} here, but shall not."
        yield case("a call that is only mentioned in the reasoning", turn(thought, ANSWER, ""), reasoning=thought,
                   content=ANSWER)  # fmt: skip


def _others(writer: Writer) -> Iterator[Case]:
    """Calls that are none, and such that cannot be read."""

    def case(name: str, text: str, *calls: Call, **more: Any) -> Case:
        return Case(writer.name, name, text, calls=calls, **more)

    strange = writer.turn("", "", writer.block([STRANGER]))
    if writer.name in ("llama3_json", "pythonic", "xlam", "command_r_plus"):
        yield case("a function that was not offered", strange, content=strange)
        unasked = writer.turn("", "", writer.block([SHORT]))
        yield case("no tools were offered", unasked, content=unasked, tools=())
        return
    yield case("a function that was not offered", strange, STRANGER)
    yield case(
        "no tools were offered", writer.turn("", "", writer.block([SHORT])), content=None, kept=("Marseille",), tools=()
    )
    if writer.beside and writer.closed and len(writer.markers) > 1 and writer.name not in ("muse", "harmony"):
        start, end = writer.markers[:2]
        prose = f"{start} Marseille for three nights {end}"
        if writer.name not in ("functionary_v31", "minicpm5", "internlm2", "kimi_k3"):
            yield case(
                "a block without a call, and one with",
                f"{prose}\n{writer.block([RING])}",
                RING,
                content=None,
                kept=("Marseille for three nights",),
            )


def _cuts(writer: Writer) -> Iterator[Case]:
    block = writer.block([SHORT])
    aside = ASIDE if writer.beside else ""
    text = writer.turn("", aside, block)
    cut = text[: text.index("Mars") + 4]
    yield Case(writer.name, "cut in an argument", cut, content=aside, broken=(("plan_trip", "Mars"),), finish="length")
    cut = text[: text.index("plan_trip") + 6]
    more: dict[str, Any] = {"content": None, "kept": (aside,) if aside else ()}
    yield Case(writer.name, "cut in the name", cut, finish="length", **more)
