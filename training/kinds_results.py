"""Kinds that call everyday tools for ordinary requests and answer from results in every form that people return."""
# ruff: noqa: E501  # a line stands for many wordings

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Final

from training import canned, functions, kinds_chat, outcomes, results_forms, values
from training.chat import tool_call_text
from training.functions import Argument, described, function_object, opened, spoken
from training.kinds_agent import AGAIN, BOTH, joined
from training.registry import (
    REGISTRY,
    Dialogue,
    Split,
    assistant,
    draw,
    in_split,
    kind,
    loose,
    polite,
    system,
    user,
    wordings,
)
from training.results_forms import Told
from training.results_tools import BY_SORT, MAKERS, TOOLS, Field, Made, Parameter, Tool

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
FIELD_WANTED: Final = wordings("""
    [What is|What's] the {f} {of}?
    [Tell me|Give me|I need|Find out|Check|Show me|Get] the {f} {of}
    [Can you tell me|Do you know|Could you look up] the {f} {of}?
    {F} {of}?
""")
FIELD_AFTER: Final = wordings("""
    And [the|what is the|what's the|what about the] {f}?
    [What is|What's] the {f}?
    [Tell me|Give me|I also need|Now] the {f}[.|, please.]
    What about the {f}?
    The {f}[, please|]?
""")
ROW_AFTER: Final = wordings("""
    [What is|What's] the {f} of {r}?
    [Tell me|Give me|I need] the {f} of {r}[.|, please.]
    And the {f} of {r}?
    [And what|What] {f} does {r} have?
""")
ONCE_MORE: Final = wordings("""
    [What|Sorry, what] was that [again|once more]?
    [Say|Tell me] that again[.|, please.]
    [Can you|Could you|Please] [repeat|say] that[ again|][?|, please.]
    [Sorry|Pardon], I [missed|forgot] that[.|. Again, please.]
    I forgot, what did you [say|find][?| just now?]
    Remind me: {q}
    [Once more, please|Again, please][.|:] {q}
    I forgot: {q}
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
    if text[0].isdigit() or text.startswith(("I ", "I'd", "My ", "Weather", "Hotels", "At ")):
        return rng.choice((text, f"{text}.", f"{text}, please."))
    if rng.random() < 0.3:
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
        return results_forms.failed(rng, use)
    if form < 0.12 and use.tool.sort in ("record", "list", "text"):
        return results_forms.nothing(rng, use)
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


ASKED: Final = (*BY_SORT["record"], *BY_SORT["record"], *BY_SORT["text"], *BY_SORT["number"])


@kind("open", "The tool has answered.", weight=4, standalone=True, thinks=0.05)
def result_phrase(rng: Random, split: Split) -> Dialogue:
    """A phrase, a sentence or several sentences that a tool returns."""
    tools = (*ASKED, *BY_SORT["list"], *BY_SORT["action"])
    use = fresh(rng, split, tools, one_field=0.1)
    acts = use.tool.sort == "action"
    return answered(rng, split, use, results_forms.acted(rng, use) if acts else results_forms.phrased(rng, use))


@kind("open", "The tool has answered.", weight=5, standalone=True, thinks=0.05)
def result_record(rng: Random, split: Split) -> Dialogue:
    """A record in JSON or another form."""
    use = fresh(rng, split, (*ASKED, *BY_SORT["action"]), one_field=0.5)
    acts = use.tool.sort == "action"
    return answered(rng, split, use, results_forms.acted(rng, use) if acts else results_forms.recorded(rng, use))


@kind("open", "The tool has answered.", weight=3, standalone=True, thinks=0.05)
def result_table(rng: Random, split: Split) -> Dialogue:
    """A table or a list, of which the names are told or one field of one row is asked for."""
    use = fresh(rng, split, BY_SORT["list"])
    told = results_forms.listed(rng, use)
    if told.rows and rng.random() < 0.35:
        found = scene(rng, split, use)
        round_trip(rng, split, found, use, told)
        question, answer = of_row(rng, split, told)
        found.turns.append(user(question))
        return found.dialogue(rng, answer)
    return answered(rng, split, use, told)


def of_row(rng: Random, split: Split, told: Told) -> tuple[str, str]:
    """A question for a field of a row, and the answer."""
    name = rng.choice(list(told.rows))
    key, value = rng.choice(list(told.rows[name].items()))
    form = rng.choice(in_split(ROW_AFTER, split, "row after"))
    return form.replace("{f}", key).replace("{r}", name), f"The {key} is {value}."


@kind("open", "The tool has answered.", weight=2, standalone=True, thinks=0.05)
def result_value(rng: Random, split: Split) -> Dialogue:
    """A bare number, date, time or word."""
    use = fresh(rng, split, (*BY_SORT["record"], *BY_SORT["number"], *BY_SORT["number"]), one_field=0)
    return answered(rng, split, use, results_forms.valued(rng, use))


@kind("open", "The call failed.", weight=1.2, standalone=True, thinks=0.05)
def result_error(rng: Random, split: Split) -> Dialogue:
    """An error that is told, or a passing one after which the call is made again."""
    use = fresh(rng, split, TOOLS)
    if rng.random() < 0.7:
        return answered(rng, split, use, results_forms.failed(rng, use))
    text = rng.choice(in_split(outcomes.TRANSIENT, split, "error"))
    return answered(rng, split, use, Told(text, use.call))


@kind("open", "The tool found nothing.", weight=0.8, standalone=True, thinks=0.05)
def result_empty(rng: Random, split: Split) -> Dialogue:
    """An empty result."""
    use = fresh(rng, split, (*BY_SORT["record"], *BY_SORT["list"], *BY_SORT["list"], *BY_SORT["text"]))
    return answered(rng, split, use, results_forms.nothing(rng, use))


def together(rng: Random, split: Split) -> tuple[list[Use], str]:
    """Uses that one request needs at once, and the request."""
    if rng.random() < 0.5:
        use = fresh(rng, split, TOOLS)
        while use.varying is None:
            use = fresh(rng, split, TOOLS)
        uses = [use]
        for _ in range(rng.choice((1, 1, 2, 3))):
            uses.append(another(rng, split, use))
        subjects = [one.subject for one in uses]
        if len(set(subjects)) == len(subjects):
            one = use.varying
            assert one is not None
            if rng.random() < 0.75:
                given: dict[str, Made] = {**use.given, one.slot: values.enumerated(subjects)}
                return uses, asked_for(rng, split, replace(use, given=given))
            return uses, joined(rng, split, BOTH, "both", [single.request for single in uses])
    uses = [fresh(rng, split, TOOLS)]
    for _ in range(rng.choice((1, 1, 1, 2))):
        other = fresh(rng, split, TOOLS)
        if all(not rivals(other.tool, one.tool) and other.name.lower() != one.name.lower() for one in uses):
            uses.append(other)
    if len(uses) == 1:
        return together(rng, split)
    return uses, joined(rng, split, BOTH, "both", [one.request for one in uses])


@kind("open", "The tools have answered.", weight=5, standalone=True, thinks=0.05)
def results_of_several(rng: Random, split: Split) -> Dialogue:
    """The answer from the results of several calls, in their order."""
    uses, request = together(rng, split)
    found = scene(rng, split, *uses)
    found.turns.append(user(request))
    found.calls(*uses)
    first = any_result(rng, uses[0])
    told = [
        first,
        *(
            any_result(rng, use) if rng.random() < 0.2 else results_forms.alike(rng, use, first, any_result)
            for use in uses[1:]
        ),
    ]
    found.returns(*(one.result for one in told))
    alike = len({use.name for use in uses}) == 1
    return found.dialogue(rng, " ".join(
        outcomes.about(use.subject, one.answer) if alike else one.answer for use, one in zip(uses, told, strict=True)
    ))  # fmt: skip


@kind("open", "I need a tool for this.", weight=9, standalone=True, thinks=0.05)
def natural_call(rng: Random, split: Split) -> Dialogue:
    """A call for an ordinary request."""
    tools = TOOLS if rng.random() < 0.6 else (*BY_SORT["number"], *BY_SORT["list"], *BY_SORT["text"])
    use = fresh(rng, split, tools)
    found = scene(rng, split, use)
    found.turns.append(user(asked_for(rng, split, use)))
    return found.dialogue(rng, use.call)


@kind("open", "The user wants several things at once.", weight=6, standalone=True, thinks=0.05)
def natural_calls(rng: Random, split: Split) -> Dialogue:
    """Several calls for an ordinary request."""
    uses, request = together(rng, split)
    found = scene(rng, split, *uses)
    found.turns.append(user(request))
    return found.dialogue(rng, "\n".join(use.call for use in uses))


PLAIN_KINDS: Final = (
    "greeting", "thanks", "goodbye", "own_name", "own_nature", "mood", "praise", "acknowledgement", "capital", "opposite",
    "animal_sound", "colour_of", "neighbour", "plural", "copy_text", "repeat_phrase", "capital", "greeting", "copy_text",
)  # fmt: skip
UNNEEDED: Final = tuple(tool for tool in TOOLS if tool.names[0] not in ("define", "translate", "search", "wikipedia"))


@kind("open", "No tool is needed.", weight=2.5, standalone=True, thinks=0.05)
def tools_not_needed(rng: Random, split: Split) -> Dialogue:
    """Small talk, a fact or a copy while tools are offered."""
    plain = REGISTRY.kinds[rng.choice(PLAIN_KINDS)].generate(rng, split)
    found = scene(rng, split, fresh(rng, split, UNNEEDED), quiet=True)
    made = found.dialogue(rng)
    turns = plain.messages
    if made.messages and plain.messages[0]["role"] != "system":
        turns = (*made.messages, *turns)
    return replace(plain, messages=turns, tools=made.tools)


@kind("open", "The result is there already.", weight=3.5, standalone=True, thinks=0.05)
def after_results(rng: Random, split: Split) -> Dialogue:
    """A turn that follows an answer: thanks, another value, another field, or the same once more."""
    use = fresh(rng, split, (*BY_SORT["record"], *BY_SORT["record"], *TOOLS))
    told = any_result(rng, use)
    found = scene(rng, split, use)
    round_trip(rng, split, found, use, told)
    form = rng.random()
    if form < 0.2:
        found.turns.append(user(kinds_chat.varied(rng, canned.THANKS)))
        return found.dialogue(rng, *canned.THANKS_ANSWERS)
    if form < 0.5 and use.varying is not None:
        other = another(rng, split, use)
        again = rng.choice(in_split(AGAIN, split, "again")).replace("{v}", other.subject)
        found.turns.append(user(again if rng.random() < 0.7 else asked_for(rng, split, other)))
        return found.dialogue(rng, other.call)
    if form < 0.75 and told.fields:
        key, value = rng.choice(list(told.fields.items()))
        found.turns.append(user(rng.choice(in_split(FIELD_AFTER, split, "field after")).replace("{f}", key)))
        return found.dialogue(rng, f"The {key} is {value}.")
    if form < 0.85 and told.rows:
        question, answer = of_row(rng, split, told)
        found.turns.append(user(question))
        return found.dialogue(rng, answer)
    if use.tool.sort == "action":
        found.turns.append(user(kinds_chat.varied(rng, canned.THANKS)))
        return found.dialogue(rng, *canned.THANKS_ANSWERS)
    found.turns.append(
        user(rng.choice(in_split(ONCE_MORE, split, "once more")).replace("{q}", lower_first(use.request)))
    )
    return found.dialogue(rng, told.answer)


def lower_first(text: str) -> str:
    """A request in the middle of a sentence."""
    return text if text[:2] in ("I ", "I'") else text[0].lower() + text[1:]
