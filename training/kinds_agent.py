"""Kinds that choose among never-seen functions, call them one by one or at once, and answer from their results."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Final

from training import functions, outcomes, values
from training.catalogue import known_use
from training.chat import tool_call_text
from training.functions import Argument, Use, distinct, opened, spoken
from training.outcomes import Outcome
from training.registry import Dialogue, Split, assistant, in_split, kind, loose, user, wordings

MOST_TOOLS: Final = 6
NONE_FITS: Final = "None of my tools can do that."
THEN: Final = wordings("""
    {a}, then {b}
    {a} and then {b}
    [First|To begin with,|First of all,|To start,] {a}[, then|. Then|, and then|, after that|. After that,] {b}
    [First|To begin with,|First of all,|To start,] {a}[, and after that| and afterwards] {b}
    {a}. [Then|After that,|Next,|Afterwards,|When that is done,|Once you have that,|And then] {b}
    {a}[; afterwards|; then|, next|, and when that is done,|, afterwards|, and once that is done,] {b}
    Start with this: {a}. [Then|After that,|Next,] {b}
    [Step one|Step 1|1]: {a}. [Step two|Step 2|2]: {b}
    1. {a}\\n2. {b}
""")
BOTH: Final = wordings("""
    {a} and {b}
    {a} and [also|please] {b}
    {a}, and {b}
    {a}, and [also|at the same time] {b}
    {a}. [Also|And|In addition,|And also|Besides,|At once,|Moreover,] {b}
    {a}[; also|; and|; besides,| as well as| plus] {b}
    [Both|Two things:|Do both:|At once:] {a}[ and|, and] {b}
    - {a}\\n- {b}
    {a}\\n{b}
    {a}. {b}
""")
AGAIN: Final = wordings("""
    And for {v}?
    And {v}?
    [Now|And now|Also|Then|Next] for {v}[.|, please.|]
    [The same|Same thing|Do the same|Repeat that|That again|Again] [for|with] {v}[.|, please.|]
    [What|How] about {v}?
    [Again|Once more|Now|Another time][, but|,|] with {v}[.|]
    [Now|Then|Next,|And then] {v}[.|]
    [Try|Take|Use] {v}[ instead| now| next][.|]
    [No, I meant|Sorry, I meant|Actually|I meant|Make that|Oh, I mean] {v}[.|]
    {v}[ too| as well|][, please|].
    [Do|Run] it [again |]for {v}[.|]
""")
USING: Final = wordings("""
    [using|with|for|and use] that {f}
    with the {f} [from before|you get|from the result|that you got|you found]
    using the {f} [from the result|from before|that comes back|it returns]
    [with|using|for] [its|this|the resulting] {f}
""")
WANTED: Final = wordings("""
    What is the {f} of the {t}
    [Which|What] {f} does the {t} have
    [Tell me|Give me|I need|Find out|Look up|Get me|I want|Show me|Say] the {f} of the {t}
    [I want to know|Do you know|Can you tell me|Could you find out|I wonder about] the {f} of the {t}
""")


def call_text(*uses: Use) -> str:
    """The calls of one turn as the model writes them."""
    return "\n".join(tool_call_text(use.name, use.arguments) for use in uses)


def returned(text: str) -> dict[str, str]:
    """A tool's turn."""
    return {"role": "tool", "content": text}


@dataclass
class Episode:
    """A conversation with tools; ``marks`` are the indexes of its turns that may be asked for, by skill."""

    tools: list[dict[str, Any]]
    turns: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    marks: dict[str, list[int]] = field(default_factory=dict[str, list[int]])

    def says(self, skill: str, text: str) -> None:
        """Add a turn of the assistant that shows the skill."""
        self.marks.setdefault(skill, []).append(len(self.turns))
        self.turns.append(assistant(text))

    def cut(self, rng: Random, skill: str) -> Dialogue:
        """The dialogue up to one of the turns that show the skill."""
        place = rng.choice(self.marks[skill])
        right = self.turns[place]["content"]
        return Dialogue(tuple(self.turns[:place]), (right,), tools=tuple(self.tools), taught=True)


def scene(rng: Random, split: Split) -> list[Use]:
    """Uses of six functions that are near to each other."""
    what = functions.intent(rng, split)
    uses = [functions.use_of(rng, split, what)]
    while len(uses) < MOST_TOOLS:
        form = rng.random()
        if form < 0.25:
            uses.append(known_use(rng, split))
        else:
            uses.append(functions.use_of(rng, split, functions.near(rng, split, what)))
    if not distinct(uses):
        return scene(rng, split)
    rng.shuffle(uses)
    return uses


def offered(rng: Random, fitting: Sequence[Use], others: Sequence[Use]) -> Episode:
    """An empty episode that has the fitting functions and up to as many others as make six, in random order."""
    tools = [use.function for use in (*fitting, *others[: rng.choice((0, 1, 1, 2, 2, 3, 3, 4, 5))])]
    rng.shuffle(tools)
    return Episode(tools)


def asked(rng: Random, split: Split, use: Use) -> str:
    """The request of one use as a whole turn."""
    finished = use.request[0].isupper() or use.request[-1] in "?"
    return loose(rng, use.request) if finished and rng.random() < 0.8 else opened(rng, split, lowered(use.request))


def lowered(text: str) -> str:
    """A request that stands inside a sentence."""
    bare = text.rstrip("?.")
    return bare if bare[:2].isupper() or bare.startswith("I ") else bare[0].lower() + bare[1:]


def joined(rng: Random, split: Split, forms: Sequence[str], salt: str, requests: Sequence[str]) -> str:
    """Requests as one turn."""
    text = lowered(requests[0])
    for request in requests[1:]:
        form = rng.choice(in_split(forms, split, salt))
        text = form.replace("\\n", "\n").replace("{a}", text).replace("{b}", lowered(request))
    text = text[0].upper() + text[1:] if rng.random() < 0.8 else text
    return text if text[-1] in "?.!" or rng.random() < 0.5 else text + "."


def outcome(rng: Random, use: Use) -> Outcome:
    """The outcome of a use."""
    return outcomes.found(rng, bare=not use.family) if use.asks else outcomes.done(rng)


def one_call(rng: Random, split: Split, episode: Episode, use: Use, *, troubled: bool = False) -> None:
    """A request, its call, perhaps an error that a second call mends or none mends, and the answer."""
    episode.turns.append(user(asked(rng, split, use)))
    episode.says("choose_function", call_text(use))
    result = outcome(rng, use)
    form = rng.random() * (0.3 if troubled else 1.0)
    if form < 0.15:
        episode.turns.append(returned(rng.choice(in_split(outcomes.TRANSIENT, split, "error"))))
        episode.says("try_again", call_text(use))
    elif form < 0.3 and use.varying is not None:
        use = mended(rng, episode, use, use.varying)
    elif form < 0.36:
        result = outcomes.final_error(rng, "record")
    episode.turns.append(returned(result.result))
    episode.says("answer_from_result", result.answer)


def mended(rng: Random, episode: Episode, use: Use, varying: Argument) -> Use:
    """An error that names a right value, and the call with it."""
    right = values.span(rng)
    said = rng.choice(("Error: unknown {p} {w}, did you mean {r}?", "Error: {p} must be {r}",
                       'Error: there is no {p} "{w}". Use "{r}".', "Invalid {p}: {w}. Did you mean {r}?",
                       '{"error": "{p} has to be {r}"}', "{p}: {w} is not known, try {r} instead",
                       "Error: the {p} is now called {r}"))  # fmt: skip
    text = said.replace("{p}", varying.name).replace("{w}", str(varying.value)).replace("{r}", right)
    episode.turns.append(returned(text))
    use = replace(use, arguments={**use.arguments, varying.name: right})
    episode.says("try_again", call_text(use))
    return use


def follow_up(rng: Random, split: Split, episode: Episode, use: Use, varying: Argument) -> None:
    """The same again with another value, which a short turn names."""
    maker = functions.TEXT_MAKERS.get(varying.name, values.span)
    value = maker(rng) if rng.random() < 0.7 else values.span(rng)
    episode.turns.append(user(rng.choice(in_split(AGAIN, split, "again")).replace("{v}", value)))
    use = replace(use, arguments={**use.arguments, varying.name: value})
    episode.says("follow_up", call_text(use))
    result = outcome(rng, use)
    episode.turns.append(returned(result.result))
    episode.says("answer_from_result", result.answer)


def several_at_once(rng: Random, split: Split, episode: Episode, uses: Sequence[Use]) -> None:
    """Requests in one turn that need calls at once."""
    requests = [use.request for use in uses]
    episode.turns.append(user(joined(rng, split, BOTH, "both", requests)))
    answered_at_once(rng, episode, uses)


def answered_at_once(rng: Random, episode: Episode, uses: Sequence[Use]) -> None:
    """Calls at once, their results and the answer."""
    episode.says("several_calls", call_text(*uses))
    results = [outcome(rng, use) for use in uses]
    episode.turns += [returned(result.result) for result in results]
    alike = len(uses) > 1 and len({use.name for use in uses}) == 1
    subjects = [str(use.arguments[use.varying.name]) if alike and use.varying else "" for use in uses]
    answers = [outcomes.about(subject, one.answer) for subject, one in zip(subjects, results, strict=True)]
    episode.says("answer_from_result", " ".join(answers))


def for_each(rng: Random, split: Split, episode: Episode, use: Use, uses: Sequence[Use]) -> None:
    """One request that names several values, each of which needs a call."""
    assert use.varying is not None
    shown = [str(one.arguments[use.varying.name]) for one in uses]
    request = use.request.replace(shown[0], values.enumerated(shown))
    episode.turns.append(user(asked(rng, split, replace(use, request=request))))
    answered_at_once(rng, episode, uses)


def one_after_another(rng: Random, split: Split, episode: Episode, uses: Sequence[Use]) -> None:
    """Requests in one turn that need calls one by one, the later ones now and then with a value of a result."""
    needed: list[tuple[Use, Outcome]] = []
    requests: list[str] = []
    for place, use in enumerate(uses):
        result = outcome(rng, use)
        if place + 1 < len(uses) and rng.random() < 0.6:
            result, _ = outcomes.asked_field(rng)
            result = replace(result, answer="Done.")
        requests.append(use.request)
        needed.append((use, result))
    for place in range(1, len(needed)):
        earlier = needed[place - 1][1].field
        if earlier is not None and rng.random() < 0.7:
            use = fed(rng, needed[place][0], *earlier)
            requests[place] += " " + rng.choice(in_split(USING, split, "using")).replace("{f}", spoken(earlier[0]))
            for index, tool in enumerate(episode.tools):
                if tool["name"] == use.name:
                    episode.tools[index] = use.function
            needed[place] = (use, needed[place][1])
    episode.turns.append(user(joined(rng, split, THEN, "then", requests)))
    for use, result in needed:
        episode.says("loop", call_text(use))
        if rng.random() < 0.05:
            episode.turns.append(returned(rng.choice(in_split(outcomes.TRANSIENT, split, "error"))))
            episode.says("try_again", call_text(use))
        episode.turns.append(returned(result.result))
    last_use, last = needed[-1]
    episode.says(
        "answer_after_loop",
        last.answer if last_use.asks or last.answer.startswith("Done") or last.field is None else "Done.",
    )


def fed(rng: Random, use: Use, name: str, value: str) -> Use:
    """The use with one more parameter, which takes a value of an earlier result."""
    parameters = dict(use.function["parameters"])
    parameters["properties"] = {**parameters["properties"], name: {"type": "string"}}
    return replace(use, function={**use.function, "parameters": parameters}, arguments={**use.arguments, name: value})


def none_fits(rng: Random, split: Split, episode: Episode, use: Use) -> None:
    """A request for a function that is not there."""
    episode.turns.append(user(asked(rng, split, use)))
    episode.says("no_tool_fits", NONE_FITS)


def wanted_field(rng: Random, split: Split, episode: Episode, use: Use) -> None:
    """A question for one field of what a function returns."""
    result, name = outcomes.asked_field(rng)
    said = re.sub(r"^.*?\b(a|the|my|our|this) ", "", use.request, count=1)
    text = rng.choice(in_split(WANTED, split, "wanted")).replace("{f}", name).replace("{t}", said)
    episode.turns.append(user(loose(rng, text + rng.choice(("?", ".")))))
    episode.says("choose_function", call_text(use))
    episode.turns.append(returned(result.result))
    episode.says("answer_from_result", result.answer)


def conversation(rng: Random, split: Split, skill: str) -> Dialogue:
    """A conversation that shows the skill, up to there, with one or two other requests before it now and then."""
    uses = scene(rng, split)
    count = rng.choice((2, 2, 2, 3, 4)) if skill in ("loop", "answer_after_loop") else rng.choice((1, 1, 2))
    if skill == "several_calls" and rng.random() < 0.6:
        count = rng.choice((2, 2, 3))
    fitting, absent = uses[:count], uses[-1]
    episode = offered(rng, fitting, uses[count:-1])
    for _ in range(rng.choice((0, 0, 0, 1, 2))):
        if skill != "loop":
            request(rng, split, episode, fitting, absent, rng.choice(tuple(SKILLS)))
    request(rng, split, episode, fitting, absent, skill)
    if skill not in episode.marks:
        return conversation(rng, split, skill)
    if split is Split.TRAIN:
        episode.marks[skill] = episode.marks[skill][-1:]
    return episode.cut(rng, skill)


def request(rng: Random, split: Split, episode: Episode, fitting: list[Use], absent: Use, skill: str) -> None:
    """One request of the kind that shows the skill, and all that follows from it."""
    use = rng.choice(fitting)
    if skill == "several_calls":
        alike = twice(rng, use)
        if len(alike) > 1 and rng.random() < 0.4:
            for_each(rng, split, episode, use, alike)
        elif len(fitting) > 1 or len(alike) > 1:
            several_at_once(rng, split, episode, fitting if len(fitting) > 1 else alike)
    elif skill in ("loop", "answer_after_loop"):
        if len(fitting) > 1:
            one_after_another(rng, split, episode, rng.sample(fitting, len(fitting)))
    elif skill == "no_tool_fits":
        none_fits(rng, split, episode, absent)
    elif skill == "follow_up" and use.varying is not None:
        one_call(rng, split, episode, use)
        follow_up(rng, split, episode, use, use.varying)
    elif use.asks and rng.random() < 0.4 and alone(episode, use):
        wanted_field(rng, split, episode, use)
    else:
        one_call(rng, split, episode, use, troubled=skill == "try_again")


def alone(episode: Episode, use: Use) -> bool:
    """Tell if no other made-up function of the episode deals with the thing of this one."""
    word = use.thing.split(" ")[-1].lower()
    return bool(word) and sum(word in json.dumps(tool).lower() for tool in episode.tools) == 1


def twice(rng: Random, use: Use) -> list[Use]:
    """The use and the same with one or two other values, or the use alone where none may vary."""
    if use.varying is None:
        return [use]
    old = str(use.varying.value)
    if old not in use.request:
        return [use]
    maker = functions.TEXT_MAKERS.get(use.varying.name, values.span)
    made = [use]
    for _ in range(rng.choice((1, 1, 1, 2))):
        value = maker(rng) if rng.random() < 0.7 else values.span(rng)
        arguments = {**use.arguments, use.varying.name: value}
        made.append(replace(use, request=use.request.replace(old, value), arguments=arguments))
    return made


SKILLS: Final = {
    "choose_function": ("I choose the function that fits.", 10.0),
    "several_calls": ("The user wants several things at once.", 7.0),
    "answer_from_result": ("The tool has answered.", 4.0),
    "try_again": ("The call failed and may be mended.", 4.0),
    "no_tool_fits": ("I look for a function that fits.", 3.0),
    "loop": ("I go on with the next call.", 6.0),
    "answer_after_loop": ("All calls are done.", 2.0),
    "follow_up": ("The user wants the same with another value.", 5.0),
}


def register(skill: str, thought: str, weight: float) -> None:
    """Register the kind of a skill."""

    def generate(rng: Random, split: Split) -> Dialogue:
        return conversation(rng, split, skill)

    kind("open", thought, weight=weight, standalone=True, name=skill, thinks=0.05)(generate)


for one, (why, share) in SKILLS.items():
    register(one, why, share)


@kind("closed", "I choose the function that fits.", weight=4, standalone=True)
def known_function(rng: Random, split: Split) -> Dialogue:
    """A call of a well-known function, asked for in words of its own."""
    use = known_use(rng, split)
    others = [use]
    while len(others) < MOST_TOOLS:
        invented = rng.random() < 0.4
        other = functions.use_of(rng, split, functions.intent(rng, split)) if invented else known_use(rng, split)
        if distinct([*others, other]):
            others.append(other)
    clear = others[1:]
    episode = offered(rng, [use], clear)
    episode.turns.append(user(asked(rng, split, use)))
    episode.says("known_function", call_text(use))
    return episode.cut(rng, "known_function")
