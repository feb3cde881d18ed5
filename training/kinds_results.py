"""Kinds that call everyday tools for ordinary requests and answer from results in every form that people return."""

from dataclasses import replace
from random import Random
from typing import Final

from training import canned, kinds_chat, outcomes, results_forms, results_troubles, values
from training.kinds_agent import AGAIN, BOTH, joined
from training.registry import (
    REGISTRY,
    Dialogue,
    Split,
    apart,
    in_split,
    kind,
    user,
    wordings,
)
from training.results_forms import Told
from training.results_scenes import Use, another, answered, any_result, asked_for, fresh, rivals, round_trip, scene
from training.results_tools import BY_SORT, TOOLS, Made

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
        return answered(rng, split, use, results_troubles.failed(rng, use))
    text = rng.choice(in_split(outcomes.TRANSIENT, split, "error"))
    return answered(rng, split, use, Told(text, use.call))


@kind("open", "The tool found nothing.", weight=0.8, standalone=True, thinks=0.05)
def result_empty(rng: Random, split: Split) -> Dialogue:
    """An empty result."""
    use = fresh(rng, split, (*BY_SORT["record"], *BY_SORT["list"], *BY_SORT["list"], *BY_SORT["text"]))
    return answered(rng, split, use, results_troubles.nothing(rng, use))


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


@kind("open", "The tools have answered.", weight=7, standalone=True, thinks=0.05)
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
@apart
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
        return found.dialogue(rng, f"The {key} is {value}{results_forms.end(value)}")
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
