"""Kinds that call a tool or answer from what a tool returned."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from training import facts, outcomes, wordlists
from training.chat import tool_call_text
from training.registry import Dialogue, Split, assistant, draw, kind, user

Arguments = dict[str, str | int]


@dataclass(frozen=True)
class Use:
    """A tool, a request that needs it, the arguments of the call, what it returns and the answer given then."""

    tool: dict[str, Any]
    request: str
    arguments: Arguments
    result: str
    answer: str


def tool(rng: Random, name: str, description: str, /, **types: str) -> dict[str, Any]:
    """A tool in OpenAI's form, its parameters all required; ``types`` are JSON types by parameter name."""
    properties: dict[str, Any] = {parameter: {"type": json_type} for parameter, json_type in types.items()}
    if rng.random() < 0.3:
        for parameter in properties.values():
            parameter["description"] = wordlists.sentence(rng)
    parameters: dict[str, Any] = {"type": "object", "properties": properties, "required": list(types)}
    function: dict[str, Any] = {"name": name, "description": description, "parameters": parameters}
    if rng.random() < 0.2:
        parameters["additionalProperties"] = False
        function["strict"] = True
    return {"type": "function", "function": function}


def place(rng: Random) -> str:
    """A city, sometimes a made-up one."""
    return rng.choice(list(facts.CAPITALS.values())) if rng.random() < 0.5 else wordlists.made_up_word(rng).capitalize()


def weather(rng: Random) -> Use:
    """The weather in a city."""
    city, degrees = place(rng), rng.randint(-9, 39)
    sky = rng.choice(("sunny", "cloudy", "rainy", "windy", "snowy", "foggy"))
    name = rng.choice(("get_weather", "get_weather", "weather", "get_current_weather"))
    parameter = rng.choice(("city", "city", "location"))
    forms = (
        f"What is the weather in {city}?",
        f"How is the weather in {city}?",
        f"What's the weather like in {city}?",
        f"Weather in {city}?",
        f"Tell me the weather in {city}.",
        f"What is the weather in {city} today?",
        f"Is it cold in {city}?",
    )
    about = rng.choice(
        (
            "Get the weather in a city.",
            "Get the current weather.",
            "The weather at a place.",
            "Get current temperature for a given location.",
        )
    )
    result = rng.choice(
        (f'{{"temperature": {degrees}, "sky": "{sky}"}}', f"{degrees} degrees, {sky}", f"{sky}, {degrees} degrees")
    )
    told = result.startswith("{")
    answer = f"The temperature is {degrees} and the sky is {sky}." if told else outcomes.ended(result)
    return Use(tool(rng, name, about, **{parameter: "string"}), rng.choice(forms), {parameter: city}, result, answer)


def local_time(rng: Random) -> Use:
    """The time in a city."""
    city, clock = place(rng), f"{rng.randrange(24):02}:{rng.randrange(60):02}"
    forms = (
        f"What time is it in {city}?",
        f"What is the time in {city}?",
        f"Tell me the time in {city}.",
        f"Time in {city}?",
    )
    spec = tool(
        rng,
        rng.choice(("get_time", "get_current_time")),
        rng.choice(("Get the time in a city.", "The local time.")),
        city="string",
    )
    result, answer = rng.choice(
        ((clock, f"It is {clock} in {city}."), (f'{{"time": "{clock}"}}', f"The time is {clock}."))
    )
    return Use(spec, rng.choice(forms), {"city": city}, result, answer)


def calculation(rng: Random) -> Use:
    """A sum or a product of two numbers too large to work out here."""
    a, b = rng.randint(100, 9999), rng.randint(100, 9999)
    name, sign, value = rng.choice((("add", "plus", a + b), ("multiply", "times", a * b)))
    forms = (f"What is {a} {sign} {b}?", f"Calculate {a} {sign} {b}.", f"How much is {a} {sign} {b}?")
    spec = tool(rng, name, f"{name.capitalize()} two numbers.", a="integer", b="integer")
    return Use(spec, rng.choice(forms), {"a": a, "b": b}, str(value), f"{a} {sign} {b} is {value}.")


def message(rng: Random) -> Use:
    """A short text sent to somebody."""
    name, text = wordlists.name(rng), " ".join(wordlists.word(rng) for _ in range(rng.randint(1, 4)))
    forms = (f"Send {name} the message: {text}", f'Tell {name} "{text}"', f"Send a message to {name}: {text}")
    spec = tool(rng, "send_message", "Send a message to a person.", to="string", text="string")
    return Use(
        spec,
        rng.choice(forms),
        {"to": name, "text": text},
        *rng.choice((("ok", "Done."), ('{"ok": true}', "Done."), (f"Message sent to {name}.",) * 2)),
    )


def search(rng: Random) -> Use:
    """A search for a few words."""
    query, found = " ".join(wordlists.word(rng) for _ in range(rng.randint(1, 4))), wordlists.sentence(rng)
    forms = (
        f"Search for {query}",
        f"Search the web for {query}.",
        f"Look up {query}",
        f"Find {query}",
        f"Please search for {query}",
    )
    spec = tool(rng, rng.choice(("search", "web_search")), "Search the web.", query="string")
    return Use(spec, rng.choice(forms), {"query": query}, found, outcomes.ended(found))


def made_up_tool(rng: Random) -> Use:
    """A tool with made-up names, called by its name."""
    name = "_".join(wordlists.word(rng) for _ in range(rng.randint(1, 3)))
    parameters = list(dict.fromkeys(wordlists.word(rng) for _ in range(rng.randint(1, 2))))
    arguments: Arguments = {}
    types: dict[str, str] = {}
    for parameter in parameters:
        number = rng.random() < 0.4
        arguments[parameter] = rng.randrange(1000) if number else wordlists.word(rng)
        types[parameter] = "integer" if number else "string"
    given = " and ".join(f"{parameter} {value}" for parameter, value in arguments.items())
    forms = (
        f"Call {name} with {given}.",
        f"Use {name} with {given}.",
        f"Use the tool {name} with {given}",
        f"Run {name} with {given}",
    )
    result = wordlists.word(rng)
    spec = tool(rng, name, wordlists.sentence(rng) + ".", **types)
    return Use(spec, rng.choice(forms), arguments, result, f"The result is {result}.")


USES: tuple[Callable[[Random], Use], ...] = (
    weather,
    weather,
    local_time,
    calculation,
    message,
    search,
    made_up_tool,
    made_up_tool,
)


def fresh_use(rng: Random, split: Split) -> Use:
    """A use of a tool whose arguments are new to the split."""
    make = rng.choice(USES)
    return draw(lambda: make(rng), split, lambda use: f"call {sorted(map(str, use.arguments.values()))}")


def offered(rng: Random, use: Use) -> tuple[dict[str, Any], ...]:
    """The tool and up to two others, in random order."""
    others = [rng.choice(USES)(rng).tool for _ in range(rng.choice((0, 0, 1, 2)))]
    name = use.tool["function"]["name"]
    tools = [use.tool, *(other for other in others if other["function"]["name"] != name)]
    rng.shuffle(tools)
    return tuple(tools)


@kind("open", "I need a tool for this.", weight=4, standalone=True)
def tool_call(rng: Random, split: Split) -> Dialogue:
    """A call of the one tool that fits the request."""
    use = fresh_use(rng, split)
    name = use.tool["function"]["name"]
    return Dialogue((user(use.request),), (tool_call_text(name, use.arguments),), tools=offered(rng, use))


@kind("open", "The tool has answered.", weight=3, standalone=True)
def tool_answer(rng: Random, split: Split) -> Dialogue:
    """The answer to the request, from what the tool returned."""
    use = fresh_use(rng, split)
    call = tool_call_text(use.tool["function"]["name"], use.arguments)
    turns = (user(use.request), assistant(call), {"role": "tool", "content": use.result})
    return Dialogue(turns, (use.answer,), tools=offered(rng, use))
