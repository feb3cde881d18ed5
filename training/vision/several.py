"""Dialogues with several pictures: at once, in turns, and in the results of calls."""

import re
from collections.abc import Callable
from random import Random
from typing import Any, Final

from training.registry import Split, one_of, wordings
from training.vision import wording
from training.vision.dialogues import (
    IMAGE,
    Calls,
    Dialogue,
    Results,
    Retold,
    Turn,
    about_line,
    ask_number,
    ask_word,
    compare,
    with_pictures,
)
from training.vision.questions import (
    ABOUT_SHAPES,
    Asked,
    article,
    behind,
    colour_word,
    describe,
    described,
    pick,
    sentence,
    yes_or_no,
)
from training.vision.scenes import PLURALS, SHAPES, Scene, number, plain, printed, shapes, word

ORDINALS: Final = ("first", "second", "third", "fourth")
NEXT: Final = wordings("""
    And [now|here|this|this one|in this one|in this picture|in this image|this picture|on this one]?
    [What|How] about [this one|this|now|this picture|this image|here|this sign|this photo|this screenshot|that one|the next one|this label|this chart]?
    And [this|here|this sign|this photo|this screenshot|that one|the next|on this photo|in this screenshot|this label|this drawing|what about here|what about this]?
    [This|This one|Here|Now this|Next|Next one|And this one here|The same here|Same here|Again]?
    [The same for|Same question for|Now] this [one|picture|image].
    [And for|And what about] this [one|picture|image]?
""")
EARLIER: Final = wordings("""
    [What|How] about the {ordinal} [one|{noun}]?
    And [in|for|what about|how about] the {ordinal} [one|{noun}]?
    And the {ordinal} [one|{noun}]?
    And what [was|is] it [in|on|for] the {ordinal} [one|{noun}]?
    [The same for|Same question for|Now|Again for] the {ordinal} [one|{noun}].
""")
DESCRIBE_ONE: Final = wordings("""
    [What is|What's] [in|on] the {ordinal}[| one| {noun}]?
    What does the {ordinal}[| one| {noun}] show?
    What [do|can] you see [in|on] the {ordinal}[| one| {noun}]?
    [Describe|Explain|Tell me about] the {ordinal} [one|{noun}].
    What was [in|on|shown in|there to see on] the {ordinal}[| one| {noun}]?
    What did the {ordinal}[| one| {noun}] [show|contain|look like]?
    What did [you|I|we] see [in|on] the {ordinal}[| one| {noun}]?
    [Tell me|Say|Repeat|Remind me] what [was|is] [in|on] the {ordinal} [one|{noun}].
    Which [things|objects|shapes] were [in|on] the {ordinal} [one|{noun}]?
    [List|Name] [everything|all things|the contents|the shapes and colours] [in|of|on] the {ordinal} [one|{noun}].
""")
TAKE: Final = wordings("""
    [Take|Please take|Make|Get|Capture] [a screenshot|a photo|a picture|a snapshot|an image]
    [Look at|Check|Have a look at] [the screen|the page|the camera|the window|the desktop|my screen]
    [Open|Load|Fetch|Show me] [the image|the page|the picture|the file|the photo|the screen]
    Use the [camera|tool|tools|browser]
    [See|Show me|Check] what is on [the screen|the page|the camera]
    [Render|Draw|Plot|Show|Make|Create] [the chart|the plot|the diagram|the sign|the data|the graph|a chart|the label|the card]
    [Take|Please take|Make] [a screenshot|a photo|a picture] [of the page|of the desk|of the door|with the camera|of the window|of the sign]
""")
DESCRIBE_IT: Final = wordings("""
    [describe|explain|summarize] [it|what you see|what is on it|what it shows|the result|its contents|the picture]
    [tell me|say|report] what [you see|is on it|it shows|is there|can be seen|is in it|you find]
    [list|name|tell me] [everything|all things|the shapes|the objects|the shapes and their colours|all that is] [on it|in it|there]
""")
AGAIN: Final = wordings("""
    [Take|Make|Get|Capture] [another screenshot|another photo|another one|a new screenshot|one more|a second one]
    [Look|Check] [again|once more|at the screen again]
    [Do it|Try it] again
    [Once more|Again|Refresh|Now again]
""")
TWICE: Final = wordings("""
    [Take|Make|Get] two [screenshots|photos|pictures|images]
    [Look at|Open|Load] [both|both pictures|the two images|both pages]
    [Compare|Check] [both|the two|both screens]
""")
STARTS: Final = frozenset(
    "Tell Describe Count Read Name Find Identify Locate Give Transcribe Say Explain List Extract Caption".split()  # noqa: SIM905
)
TAKERS: Final = wordings(
    "[take_screenshot|screenshot|take_photo|get_image|capture_screen|look|camera|open_page|snapshot|show_image|"
    "load_picture|get_frame|view_image|see_screen|read_image|fetch_image|picture|computer|render]"
)
OTHERS: Final = wordings(
    "[click|type_text|scroll|search|get_weather|add|send_email|open_url|press_key|wait|get_time|list_files|move]"
)
PARAMETERS: Final = wordings("[screen|url|path|page|name|index|x|y|text|query|city|region|camera|file|id|width]")
PURPOSES: Final = wordings("""
    [Return|Get] [an image|a picture|a photo|a screenshot] of [the screen|the page|the desktop|the camera|a place].
    The [image|picture] is [scaled down|a PNG file|in RGB|small|the latest one].
    [Use it|Call this] [to see what the user sees|when you need to look|before you answer|after each step|only once].
    [Needs|Takes] [a name|an index|a path|an address|nothing].
""")
BESIDES: Final = (
    "Screenshot taken.", "ok", "Done.", "Here is the picture:", "Success", "Image:", "The screenshot:", "OK",
    "Here is the image.", "Taken.", "Screenshot:", "Result:", '{"status": "ok"}', "done",
)  # fmt: skip
SAID: Final = wordings("""
    [Here is|This is|Here comes|See] [the|your] [picture|image|chart|screenshot|photo|result|page|plot|drawing|sign][|:|.]
    [The|A|One] [screenshot|photo|picture|chart|page|image|screen|plot] [was|is] [taken|ready|made|attached|shown below|captured|loaded][|.]
    [Screenshot|Photo|Picture|Chart|Image|Plot|Page|Frame] [taken|saved|rendered|captured|loaded|ready|attached|opened][|.|:|!]
    [Successfully|I have] [taken|rendered|captured|loaded|made] [a screenshot|the chart|the picture|the photo].
    [The call|The tool|The command|The function] [succeeded|returned an image|worked|is done].
    [Width|Size|Took|Page|Time]: [640|128|2|1024|300]
    [Finished|Ready|Complete|Output|Attached|Camera|Screen|Result|Returned|Current view][.|:|]
""")
SAYINGS: Final = ("I will look.", "Let me look.", "I take a screenshot.", "Let me check.", "One moment.", "Once more.")

Repeated = tuple[Callable[[], str], Callable[[Scene], str]]
"""Asks one question, each time in other words, and answers it for any of the scenes."""


def some_scene(rng: Random, split: Split) -> Scene:
    """A scene of any sort."""
    draw, beside = rng.random(), rng.choice((0, 0, 0, 1, 1, 2))
    if draw < 0.62:
        return shapes(rng, split, 1, 5)
    if draw < 0.66:
        return plain(rng)
    return printed(rng, split, [number(rng, split) if draw < 0.78 else word(rng, split)], beside=beside)


def like(rng: Random, split: Split, scene: Scene) -> Scene:
    """Another scene of the same sort."""
    if scene.prints:
        text = number(rng, split) if scene.prints[0].text.isdigit() else word(rng, split)
        return printed(rng, split, [text], beside=rng.choice((0, 0, 0, 1, 1, 2)))
    return shapes(rng, split, 1, 1 if len(scene.things) == 1 else 5)


def any_question(rng: Random, scene: Scene, split: Split) -> Asked:
    """A question about one scene."""
    if scene.prints:
        text, draw = scene.prints[0].text, rng.random()
        if scene.things and draw > 0.75:
            return about_shapes(rng, scene)
        if draw < 0.18:
            return about_line(rng, scene, split)
        return describe(rng, scene) if draw < 0.33 else (ask_number if text.isdigit() else ask_word)(rng, text)
    if not scene.things:
        return behind(rng, scene) if rng.random() < 0.7 else describe(rng, scene)
    return about_shapes(rng, scene)


def about_shapes(rng: Random, scene: Scene) -> Asked:
    """A question about the shapes in a scene."""
    names, weights = list(ABOUT_SHAPES), [weight for _, weight in ABOUT_SHAPES.values()]
    while True:
        asked = ABOUT_SHAPES[rng.choices(names, weights)[0]][0](rng, scene)
        if asked is not None:
            return asked


def repeated(rng: Random, scenes: list[Scene]) -> Repeated:
    """A question that makes sense for each of the scenes."""
    draw, first = rng.random(), scenes[0].prints
    if all(one.prints for one in scenes) and draw < 0.6:
        digits = all(one.prints[0].text.isdigit() for one in scenes)
        kinds = wording.NUMBER + wording.TEXT if digits and first else wording.TEXT
        if rng.random() < 0.12:
            asks = "What {} is the text?|Which {} is it printed in?|What is the {} of the text?"
            return lambda: pick(rng, asks.format(*[colour_word(rng)] * 3)), lambda scene: sentence(
                rng, scene.prints[0].colour
            )
        if not digits and rng.random() < 0.4 and not any(one.prints[0].text.isdigit() for one in scenes):
            kinds = wording.WORD
        return lambda: rng.choice(kinds), lambda scene: scene.prints[0].text
    things = [thing for one in scenes for thing in one.things]
    if draw < 0.5 and all(len(one.things) == 1 and not one.prints for one in scenes):
        if draw < 0.2:
            return lambda: rng.choice(wording.SHAPE_ALONE), lambda scene: sentence(rng, article(scene.things[0].shape))
        return (
            lambda: one_of(rng, wording.COLOUR_ALONE, colour=colour_word(rng)),
            lambda scene: sentence(rng, scene.things[0].colour),
        )
    if things and (not any(one.prints for one in scenes) or 0.6 < draw < 0.7):
        if draw < 0.2:
            name = pick(rng, "shapes|things|objects")
            return lambda: one_of(rng, wording.COUNT, name=name), lambda scene: str(len(scene.things))
        thing = rng.choice(things)
        colour, shape = thing.colour, thing.shape if rng.random() < 0.7 else rng.choice(SHAPES)
        which = rng.random()
        names = PLURALS[shape] if which < 0.5 else f"{colour} shapes" if which < 0.75 else f"{colour} {PLURALS[shape]}"
        wanted = (shape if which < 0.5 or which >= 0.75 else None, colour if which >= 0.5 else None)
        if draw < 0.43:
            return lambda: one_of(rng, wording.COUNT, name=names), lambda scene: str(scene.count(*wanted))
        if draw < 0.7:
            name = shape if which < 0.5 else f"{colour} shape" if which < 0.75 else f"{colour} {shape}"
            return (
                lambda: one_of(rng, wording.EXISTS, a=article(name), name=name, names=names),
                lambda scene: yes_or_no(scene.count(*wanted) > 0),
            )
    if draw < 0.75:
        return (
            lambda: one_of(rng, wording.BACKGROUND, colour=colour_word(rng)),
            lambda scene: sentence(rng, scene.background),
        )
    return lambda: wording.description(rng), described


def ordinal(rng: Random, at: int, count: int) -> str:
    """A word for one of so many pictures."""
    names = [ORDINALS[at]] * 2
    if at == count - 1 and count > 1:
        names += ["last", "latest"]
    if at == count - 2:
        names.append("previous")
    return rng.choice(names)


def noun(rng: Random) -> str:
    """A word for a picture."""
    return rng.choice(("picture", "picture", "image", "screenshot", "photo", "one"))


def at_picture(rng: Random, question: str, which: str) -> str:
    """The question with the picture that it is about."""
    place = f"the {which} {noun(rng)}"
    made, found = re.subn(
        r"\b(the|this|that|my) (whole )?(picture|image|photo|screenshot|chart|drawing|graphic)\b",
        place,
        question,
        count=1,
    )
    if found:
        return made
    kept = question if question.startswith(("OCR", "I ")) else question[0].lower() + question[1:]
    forms = [f"In {place}: {kept}", f"{place.capitalize()}: {kept}", f"Look at {place}. {question}"]
    if not re.search(r"\b(here|there|this|that|it)\b", question) and "OCR" not in question:
        end = question[-1] if question[-1] in ".?" else ""
        forms += [f"{question.rstrip('.?')} in {place}{end}"] * 2
    return rng.choice(forms)


def _about_one(rng: Random, scenes: list[Scene], split: Split, repeat: Repeated | None) -> tuple[str, str]:
    """A question about one of the pictures that were shown, the last one if it does not say which."""
    count, before = len(scenes), rng.random() < 0.4
    if repeat is not None and count > 1 and rng.random() < 0.5:
        at = rng.randrange(count - 1) if rng.random() < 0.8 else count - 1
        return one_of(rng, EARLIER, ordinal=ordinal(rng, at, count), noun=noun(rng)), repeat[1](scenes[at])
    draw, at = rng.random(), rng.randrange(count)
    if draw < 0.2:
        return one_of(rng, DESCRIBE_ONE, ordinal=ordinal(rng, at, count), noun=noun(rng)), described(scenes[at])
    if draw < 0.42:
        asked = any_question(rng, scenes[-1], split)
        return asked.question, asked.answer
    asked = any_question(rng, scenes[at], split)
    question = at_picture(rng, asked.question, ordinal(rng, at, count))
    return wording.past(question) if before else question, asked.answer


def _scenes(rng: Random, split: Split, count: int) -> list[Scene]:
    """So many scenes, often all of one sort."""
    first = shapes(rng, split, 1, 1) if rng.random() < 0.12 else some_scene(rng, split)
    alike = rng.random() < 0.65
    return [first, *(like(rng, split, first) if alike else some_scene(rng, split) for _ in range(count - 1))]


DESCRIBED = "There is {t}.|I see {t}.|I can see {t}.|The picture shows {t}.|It shows {t}.|This is {t}.|{t}|It is a picture of {t}."
NUMBERED = "There are {t}.|I count {t}.|{t}.|{t} in total.|I see {t}."
NAMED = "It is {t}.|It's {t}.|{t}|The answer is {t}.|That is {t}.|{T}!"
AGREED = "{T}, that is right.|{T}|{T}!|{t}|{T}, I am sure."
READ = 'It says {t}.|It reads {t}.|"{t}"|The text is {t}.|{t}.|I read "{t}".'


def retold(rng: Random, turns: list[Turn]) -> tuple[Turn, ...]:
    """The turns, of which earlier answers are now and then those of another model."""
    made = list(turns)
    for place, (question, answer) in enumerate(turns[:-1]):
        if isinstance(answer, str) and rng.random() < 0.35:
            text = answer.rstrip(".")
            if text.isdigit():
                forms = NUMBERED
            elif text in ("Yes", "No"):
                forms = AGREED
            elif not answer.endswith("."):
                forms = READ
            else:
                forms = DESCRIBED if " on a" in text else NAMED
                text = text[0].lower() + text[1:]
                text = text.split(" on a")[0] if rng.random() < 0.6 else text
            said = pick(rng, forms).format(t=text, T=text[0].upper() + text[1:])
            made[place] = (question, Retold(said))
    return tuple(made)


def in_turns(rng: Random, split: Split, most: int = 4) -> Dialogue:
    """A picture in each of several turns, and questions about these in between and after them."""
    scenes = _scenes(rng, split, min(most, rng.choice((2, 2, 2, 3, 3, 4))))
    repeat = repeated(rng, scenes)
    turns: list[Turn] = [(with_pictures(rng, repeat[0]()), repeat[1](scenes[0]))]
    known: Repeated | None = repeat
    for i, scene in enumerate(scenes[1:], 1):
        if rng.random() < 0.15:
            turns.append(_about_one(rng, scenes[:i], split, known))
            known = None
        if rng.random() < 0.75:
            question = rng.choice(NEXT) if known and rng.random() < 0.7 else repeat[0]()
            turns.append((with_pictures(rng, question), repeat[1](scene)))
            known = repeat
        else:
            asked = any_question(rng, scene, split)
            turns.append((with_pictures(rng, asked.question), asked.answer))
            known = None
    for _ in range(rng.choice((0, 1, 1, 2))):
        turns.append(_about_one(rng, scenes, split, known))
        known = None
    return Dialogue("pictures in turns", tuple(scenes), retold(rng, turns))


def at_once(rng: Random, split: Split, most: int = 4) -> Dialogue:
    """Several pictures in one turn, and questions about one of these."""
    scenes = _scenes(rng, split, min(most, rng.choice((2, 2, 3, 3, 4))))
    count = len(scenes)
    turns: list[Turn] = []
    repeat: Repeated | None = repeated(rng, scenes) if rng.random() < 0.6 else None
    for i in range(rng.choice((1, 2, 2, 3))):
        if rng.random() < 0.06:
            question = pick(rng, "How many pictures are there?|How many images do you see?|Count the pictures.")
            answer = str(count)
            repeat = None
        elif i == 0 and repeat is not None:
            at = rng.randrange(count)
            question, answer = at_picture(rng, repeat[0](), ordinal(rng, at, count)), repeat[1](scenes[at])
        elif i == 0 and rng.random() < 0.12:
            at = rng.randrange(count)
            question = one_of(rng, DESCRIBE_ONE, ordinal=ordinal(rng, at, count), noun=noun(rng))
            answer = described(scenes[at])
        elif i == 0:
            at = rng.randrange(count)
            asked = any_question(rng, scenes[at], split)
            question, answer = at_picture(rng, asked.question, ordinal(rng, at, count)), asked.answer
        else:
            question, answer = _about_one(rng, scenes, split, repeat)
            repeat = None
        turns.append((with_pictures(rng, question, count) if i == 0 else question, answer))
    return Dialogue("pictures at once", tuple(scenes), tuple(turns))


def function(rng: Random, name: str) -> dict[str, Any]:
    """A made-up function as the request describes it."""
    properties: dict[str, Any] = {}
    for key in rng.sample(PARAMETERS, rng.choice((0, 0, 1, 1, 2))):
        properties[key] = {"type": rng.choice(("string", "string", "integer", "number"))}
        if rng.random() < 0.4:
            properties[key]["description"] = pick(rng, f"The {key}|Which {key}|The {key} to use")
    text = name.replace("_", " ").capitalize()
    purpose = pick(rng, f"{text}.|{text}|Return an image.|Take a screenshot.||Show the screen.|{text} and return it.")
    if rng.random() < 0.25:
        purpose = " ".join(rng.sample(PURPOSES, rng.choice((1, 2, 3, 4))))
    parameters: dict[str, Any] = {"type": "object", "properties": properties}
    if properties and rng.random() < 0.6:
        parameters["required"] = list(properties)[:1]
    if rng.random() < 0.2:
        parameters["additionalProperties"] = False
    return {"name": name, "description": purpose, "parameters": parameters}


def _call(rng: Random, made: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """A call of a function with arguments of its types."""
    arguments: dict[str, Any] = {}
    for key, schema in made["parameters"]["properties"].items():
        texts = ("main", "https://example.com", "left", "a.png", "home")
        arguments[key] = rng.choice(texts) if schema["type"] == "string" else rng.randint(0, 900)
    return made["name"], arguments


def _result(rng: Random) -> str:
    """A result with a picture."""
    draw = rng.random()
    text, space = said(rng), rng.choice(("", "", "\n", " "))
    if draw < 0.4:
        return IMAGE
    if draw < 0.72:
        return f"{text}{space}{IMAGE}"
    return f"{IMAGE}{space}{text}" if draw < 0.95 else f"{text}{space}{IMAGE}{space}{said(rng)}"


def said(rng: Random) -> str:
    """A text that stands beside a picture and tells nothing of what is in it."""
    draw = rng.random()
    if draw < 0.35:
        return rng.choice(BESIDES)
    if draw < 0.75:
        return rng.choice(SAID)
    stem = rng.choice(("photo", "image", "screenshot", "chart", "plot", "img", "screen", "frame", "out", "picture"))
    file = f"{stem}{rng.choice(('', '_', '-'))}{rng.randint(1, 40)}.{rng.choice(('png', 'jpg', 'png', 'webp'))}"
    if draw < 0.85:
        return rng.choice((file, f"Saved as {file}", f"Saved {file}.", f"File: {file}", f"/tmp/{file}"))
    key = rng.choice(("status", "result", "state", "success", "message", "file", "width", "title"))
    value = rng.choice(('"ok"', '"done"', "true", f'"{file}"', str(rng.randint(1, 999)), '"success"', "null"))
    more = f', "file": "{file}"' if rng.random() < 0.3 else ""
    return f'{{"{key}": {value}{more}}}'


def _taking(rng: Random, take: str, question: str) -> str:
    """An order to take a picture, with what is asked about it."""
    if not question:
        return f"{take}{rng.choice((' and', ', then', ' and then', ' and please'))} {rng.choice(DESCRIBE_IT)}."
    if rng.random() < 0.35:
        question = re.sub(
            r"\b(in|on) (the|this|that|my) (picture|image|photo|screenshot)\b",
            rng.choice((r"\1 it", "on it")),
            question,
        )
    first = question.split()[0]
    if first in STARTS and rng.random() < 0.6:
        return f"{take}{rng.choice((' and', ', then', ' and then'))} {question[0].lower()}{question[1:]}"
    draw = rng.random()
    return f"{take}. {question}" if draw < 0.75 else f"{question} {take}." if draw < 0.85 else question


def with_calls(rng: Random, split: Split, most: int = 4) -> Dialogue:
    """Pictures in the results of calls; the question stands before the call or comes after it."""
    taker = function(rng, rng.choice(TAKERS))
    others = [function(rng, rng.choice(OTHERS))] if rng.random() < 0.35 else []
    tools = [taker, *others]
    rng.shuffle(tools)
    scenes = _scenes(rng, split, min(most, rng.choice((1, 1, 2, 2, 2, 3, 4))))
    turns: list[Turn] = []
    shown: list[Scene] = []

    def calls(count: int = 1, made: dict[str, Any] = taker) -> Calls:
        return Calls(tuple(_call(rng, made) for _ in range(count)), rng.choice(SAYINGS) if rng.random() < 0.15 else "")

    if len(scenes) > 1 and rng.random() < 0.15:
        pair, asked = compare(rng, split)
        question = f"{rng.choice(TWICE)}. {asked.question}"
        if rng.random() < 0.6:
            turns += [(question, calls(2)), (Results((_result(rng), _result(rng))), asked.answer)]
        else:
            turns += [(question, calls()), (Results((_result(rng),)), calls())]
            turns.append((Results((_result(rng),)), asked.answer))
        shown, scenes = list(pair), list(pair)
    repeat = repeated(rng, scenes)
    known: Repeated | None = None
    while len(shown) < len(scenes):
        scene = scenes[len(shown)]
        take = rng.choice(TAKE if not shown else TAKE + AGAIN + AGAIN)
        draw = rng.random()
        if draw < 0.12:
            # "Once more." alone could mean the question before.
            question, answer, known = f"{rng.choice(TAKE)}.", described(scene), None
        elif known and draw < 0.4:
            same = pick(rng, "And now?|What about now?|And now?|The same question.")
            question, answer = f"{rng.choice(AGAIN)}. {same}", repeat[1](scene)
        elif draw < 0.7:
            question, answer, known = _taking(rng, take, repeat[0]()), repeat[1](scene), repeat
        elif draw < 0.8:
            question, answer, known = _taking(rng, take, ""), described(scene), None
        else:
            asked = any_question(rng, scene, split)
            question, answer, known = _taking(rng, take, asked.question), asked.answer, None
        if others and rng.random() < 0.3:
            done = pick(rng, "ok|Done.|Clicked.|true|42|Opened.")
            turns += [(question, calls(made=others[0])), (Results((done,)), calls())]
        else:
            turns.append((question, calls()))
        if known is repeat and len(shown) + 1 < len(scenes) and rng.random() < 0.25:  # It looks again by itself.
            shown.append(scene)
            turns.append((Results((_result(rng),)), calls()))
            answer = repeat[1](scenes[len(shown)])
        shown.append(scenes[len(shown)])
        if rng.random() < 0.1:  # As some programs show what a function drew.
            turns += [(Results((said(rng),)), None), (rng.choice(("", said(rng))) + IMAGE, answer)]
        else:
            turns.append((Results((_result(rng),)), answer))
    for _ in range(rng.choice((0, 0, 1, 2))):
        turns.append(_about_one(rng, scenes, split, known))
        known = None
    chosen = tuple({"type": "function", "function": one} for one in tools) if rng.random() < 0.8 else ()
    return Dialogue("pictures in tool results", tuple(scenes), tuple(turns), tools=chosen)
