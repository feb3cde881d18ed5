"""Calls of everyday tools for ordinary requests, and the conversations in which they stand."""
# a line stands for many wordings

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Final

from training import canned, functions, results_forms, results_troubles, values, wordlists
from training.chat import tool_call_text
from training.functions import Argument, described, function_object, opened, spoken
from training.registry import (
    Dialogue,
    Split,
    assistant,
    draw,
    in_split,
    loose,
    polite,
    system,
    user,
    wordings,
)
from training.results_forms import Told
from training.results_tools import MAKERS, TOOLS, Field, Made, Parameter, Tool

VARYING: Final = ("city", "symbol", "code", "id", "product", "person", "first", "host", "room", "team", "title", "word")
# Tools of which no two are offered together, since both might do what is asked.
RIVALS: Final = (
    ("add", "multiply", "subtract", "divide", "sum_numbers", "percentage", "calculate"),
    ("search", "wikipedia", "define", "search_products", "search_news"),
    ("search_products", "check_stock", "get_price"),
    ("run_command", "list_files", "read_file"),
    ("get_weather", "read_sensor"),
    ("convert_currency", "get_exchange_rate", "convert_units"),
)
# Requests that no `can you` or `please` may stand before.
PLAIN: Final = tuple(
    one.replace("_", " ")
    for one in wordlists.listed(
        """I_ I'd My_ At_ In_the_ Don't Weather Current Forecast Hotels Latest News Headlines Light_on Directions Route
        The_way SQL Random Any_ Score Result Account Balance Quote Restaurants Good_ Flights Local Time Price Stock Rate
        Exchange_rate Let_me Let_us New_"""
    )
)
FIELD_WANTED: Final = wordings("""
    [What is|What's] the {f} {of}?
    [Tell me|Give me|I need|Find out|Check|Show me|Get] the {f} {of}
    [Can you tell me|Do you know|Could you look up] the {f} {of}?
    {F} {of}?
""")


@dataclass(frozen=True)
class Use:
    """A tool with the names that its function has this time, and one call of it."""

    tool: Tool
    function: dict[str, Any]
    names: dict[str, str]
    template: str
    given: dict[str, Made]
    asked: tuple[Field, str] | None = None

    @property
    def name(self) -> str:
        """The function's name."""
        return str(self.function["name"])

    @property
    def request(self) -> str:
        """The request in words."""
        return filled(self.template, self.given)

    @property
    def call(self) -> str:
        """The call as the model writes it."""
        return tool_call_text(self.name, {self.names[slot]: value for slot, value in self.given.items()})

    @property
    def varying(self) -> Parameter | None:
        """The parameter that a later turn may vary."""
        fitting = [one for one in self.tool.parameters if one.required and one.kind in VARYING]
        return fitting[0] if len(fitting) == 1 and self.template.count(f"{{{fitting[0].slot}}}") == 1 else None

    @property
    def subject(self) -> str:
        """What the answer is about."""
        return shown(self.given[self.varying.slot]) if self.varying else ""


def shown(value: Made) -> str:
    """A value as a request says it."""
    if isinstance(value, list):
        return values.enumerated([str(one) for one in value])
    return f"on {value}" if value in values.DAYS else str(value)


def filled(template: str, given: dict[str, Made]) -> str:
    """A template with its values."""
    for slot, value in given.items():
        template = template.replace(f"{{{slot}}}", shown(value))
    return template


def schema_of(rng: Random, one: Parameter) -> dict[str, Any]:
    """The schema of a parameter, whose enumeration is now and then left out."""
    if one.options:
        return {"type": "string", "enum": list(one.options)} if rng.random() < 0.8 else {"type": "string"}
    schema = dict(MAKERS[one.kind][0])
    return {"type": "number"} if schema == {"type": "integer"} and rng.random() < 0.2 else schema


def made(rng: Random, tool: Tool, told: Sequence[Parameter]) -> dict[str, Made]:
    """Different values for the parameters that are told."""
    given: dict[str, Made] = {}
    for one in told:
        value: Made = rng.choice(one.options) if one.options else MAKERS[one.kind][1](rng)
        while value in given.values() and len(given) < 9 and not isinstance(value, int):
            value = MAKERS[one.kind][1](rng)
        given[one.slot] = value
    return given


def function_of(rng: Random, tool: Tool, told: Sequence[Parameter]) -> tuple[dict[str, Any], dict[str, str]]:
    """The tool as a function with names drawn anew, and these names by slot."""
    arguments, names = [], dict[str, str]()
    place = rng.choice((0, 0, 0, 1, 1, 2, 3))
    for one in tool.parameters:
        if not one.required and one not in told and rng.random() < 0.6:
            continue
        name = one.names[min(place, len(one.names) - 1)] if rng.random() < 0.8 else rng.choice(one.names)
        if name in names.values():
            name = one.slot
        names[one.slot] = name
        schema = described(rng, schema_of(rng, one), name, "request")
        arguments.append(Argument(name, schema, "", "", required=one.required))
    about = rng.choice(tool.descriptions) + rng.choice((".", ".", ""))
    name = rng.choice(tool.names) if rng.random() < 0.7 else tool.names[0]
    if "_" in name and rng.random() < 0.1:
        name = name.split("_")[0] + "".join(word.capitalize() for word in name.split("_")[1:])
    return function_object(rng, name, about if rng.random() < 0.95 else "", arguments), names


def fresh(rng: Random, split: Split, tools: Sequence[Tool], *, one_field: float = 0.25) -> Use:
    """A use of one of the tools with arguments and a wording of the split."""

    def make() -> tuple[Tool, list[Parameter], dict[str, Made]]:
        tool = rng.choice(tools)
        while split is Split.HELD_OUT and not tool.parameters:
            tool = rng.choice(tools)
        told = [one for one in tool.parameters if one.required]
        told += [one for one in tool.parameters if one.forms and rng.random() < 0.3][:1]
        return tool, told, made(rng, tool, told)

    def key(one: tuple[Tool, list[Parameter], dict[str, Made]]) -> str:
        # A call without arguments is training's.
        return f"call {sorted(map(str, one[2].values()))}" if one[2] else f"call {rng.random()}"

    tool, told, given = draw(make, split, key)
    function, names = function_of(rng, tool, told)
    fields = [one for one in tool.fields if one.asked]
    asked = None
    if tool.sort == "record" and tool.about and fields and rng.random() < one_field:
        chosen = rng.choice(fields)
        asked = chosen, rng.choice(chosen.names)
        form = rng.choice(in_split(FIELD_WANTED, split, "field wanted"))
        word = spoken(asked[1])
        template = form.replace("{f}", word).replace("{F}", word.capitalize()).replace("{of}", tool.about)
    else:
        template = rng.choice(in_split(tool.requests, split, "everyday"))
    for one in told:
        if one.forms:
            mark = "?" if template.endswith("?") else ""
            form = rng.choice(one.forms).replace("{v}", f"{{{one.slot}}}")
            template = f"{template.removesuffix('?')}{form}{mark}"
    return Use(tool, function, names, template, given, asked)


def asked_for(rng: Random, split: Split, use: Use) -> str:
    """The request as a turn."""
    text = use.request
    if text.endswith("?"):
        return loose(rng, text)
    if text[0].isdigit() or text.startswith(PLAIN):
        return rng.choice((text, f"{text}.", f"{text}, please."))
    if rng.random() < 0.3 and " me " not in text:
        return opened(rng, split, text[0].lower() + text[1:])
    return polite(rng, text)


def another(rng: Random, split: Split, use: Use) -> Use:
    """The same with another value of the varying parameter."""
    one = use.varying
    assert one is not None
    old = use.given[one.slot]
    for _ in range(30):
        value = draw(lambda: MAKERS[one.kind][1](rng), split, lambda value: f"call {[str(value)]}")
        if value != old:
            break
    while value == old:  # The split has no other.
        value = MAKERS[one.kind][1](rng)
    return replace(use, given={**use.given, one.slot: value})


def rivals(one: Tool, other: Tool) -> bool:
    """Tell if both might do what is asked."""
    first, second = one.names[0], other.names[0]
    return first == second or any(first in group and second in group for group in RIVALS)


@dataclass
class Scene:
    """A conversation so far."""

    uses: list[Use]
    others: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    turns: list[dict[str, str]] = field(default_factory=list[dict[str, str]])

    def calls(self, *uses: Use) -> None:
        """Add a turn with calls."""
        self.turns.append(assistant("\n".join(use.call for use in uses)))

    def returns(self, *texts: str) -> None:
        """Add results."""
        self.turns += [{"role": "tool", "content": text} for text in texts]

    def dialogue(self, rng: Random, *answers: str) -> Dialogue:
        """The dialogue that asks for the answer."""
        tools = list(
            {str(one["name"]).lower(): one for one in (*self.others, *(use.function for use in self.uses))}.values()
        )
        rng.shuffle(tools)
        turns = self.turns
        if rng.random() < 0.25:
            turns = [system(rng.choice(canned.SYSTEM_PROMPTS)), *turns]
        return Dialogue(tuple(turns), answers, tools=tuple(tools), taught=True)


def scene(rng: Random, split: Split, *uses: Use, quiet: bool = False) -> Scene:
    """A scene whose tools are those of the uses and up to three others, with an earlier round trip now and then."""
    found = Scene(list(uses))
    chosen = [use.tool for use in uses]
    names = {use.name.lower() for use in uses}
    for _ in range(rng.choice((0, 0, 1, 1, 2, 3))):
        if rng.random() < 0.2:
            function = functions.use_of(rng, split, functions.intent(rng, split)).function
        else:
            tool = rng.choice(TOOLS)
            if any(rivals(tool, one) for one in chosen):
                continue
            chosen.append(tool)
            function, _ = function_of(rng, tool, ())
        if str(function["name"]).lower() not in names:
            names.add(str(function["name"]).lower())
            found.others.append(function)
    if not quiet and rng.random() < 0.25:
        for _ in range(rng.choice((1, 1, 1, 2))):
            earlier = fresh(rng, split, TOOLS)
            if earlier.name.lower() in names or any(rivals(earlier.tool, one) for one in chosen):
                continue
            names.add(earlier.name.lower())
            chosen.append(earlier.tool)
            found.uses.append(earlier)
            round_trip(rng, split, found, earlier, any_result(rng, earlier))
    return found


def round_trip(rng: Random, split: Split, found: Scene, use: Use, told: Told) -> None:
    """A request, its call, its result and the answer."""
    found.turns.append(user(asked_for(rng, split, use)))
    found.calls(use)
    found.returns(told.result)
    found.turns.append(assistant(told.answer))


def any_result(rng: Random, use: Use) -> Told:
    """A result of any form that the tool may return."""
    form = rng.random()
    if form < 0.06:
        return results_troubles.failed(rng, use)
    if form < 0.12 and use.tool.sort in ("record", "list", "text"):
        return results_troubles.nothing(rng, use)
    if use.tool.sort == "action":
        return results_forms.acted(rng, use)
    makers: dict[str, tuple[Callable[[Random, Use], Told], ...]] = {
        "record": (
            results_forms.phrased,
            results_forms.phrased,
            results_forms.recorded,
            results_forms.recorded,
            results_forms.valued,
        ),
        "text": (results_forms.phrased, results_forms.recorded),
        "number": (results_forms.valued, results_forms.valued, results_forms.recorded, results_forms.phrased),
        "list": (results_forms.listed, results_forms.listed, results_forms.listed, results_forms.phrased),
    }
    return rng.choice(makers[use.tool.sort])(rng, use)


def answered(rng: Random, split: Split, use: Use, told: Told) -> Dialogue:
    """The answer to one result."""
    found = scene(rng, split, use)
    found.turns.append(user(asked_for(rng, split, use)))
    found.calls(use)
    found.returns(told.result)
    return found.dialogue(rng, told.answer)
