"""Texts with short judgments of them in fields, and questions with the fields that agents want of an answer."""

import json
from random import Random
from typing import Any, Final

from training import kinds_facts, wordlists
from training.kinds_lookup import placed
from training.registry import Dialogue, Split, in_split, lines, loose, system, user, wordings
from training.shapes import MAKERS, filled, styled

GOOD: Final = wordlists.listed("great good wonderful excellent lovely amazing fantastic nice perfect brilliant awesome")
BAD: Final = wordlists.listed("bad terrible awful horrible poor disappointing boring broken useless ugly")
GOOD_TEXTS: Final = wordings("""
    I [love|like|enjoy|adore] [this|the|my new|your] {n}[.|!]
    [The|This|My|Your] {n} [is|was] [really |so |very |]{g}[.|!]
    [What a|Such a] {g} {n}[.|!]
    [Best {n} ever|I am very happy|I would buy it again|Thank you, {g} work|It works well|I recommend it][.|!]
""")
BAD_TEXTS: Final = wordings("""
    I [hate|dislike|cannot stand] [this|the|my new|your] {n}[.|!]
    [The|This|My|Your] {n} [is|was] [really |so |very |]{b}[.|!]
    [What a|Such a] {b} {n}[.|!]
    [Worst {n} ever|I am very angry|I want my money back|Never again|It does not work|It broke after a day|I am sad][.|!]
""")
PLAIN_TEXTS: Final = wordings("""
    [The|This] {n} [arrived on Monday|is in the kitchen|has four parts|costs ten euros|is made of wood|was built in 1990].
    [I bought a {n}|We saw a {n}|The {n} opens at nine|There is a {n} in the garden|The meeting is on Friday].
""")
LABELS: Final = (("positive", "negative", "neutral"), ("Positive", "Negative", "Neutral"),
                 ("POSITIVE", "NEGATIVE", "NEUTRAL"), ("positive", "negative", "neutral"), ("good", "bad", "neutral"))  # fmt: skip
TASKS: Final = lines("""
    Classify the sentiment.
    What is the sentiment of this text?
    Analyze the sentiment:
    Sentiment?
    Is this positive or negative?
    Classify this review.
    Classify the following text.
    Rate the mood of this text.
    Positive, negative or neutral?
    You classify texts.
    Analyze this.
    Label the message.
    Tell me the sentiment
    How does the customer feel?
""")


def in_order(rng: Random, record: dict[str, Any]) -> dict[str, Any]:
    """Some of the fields, most often in their order."""
    keys = [key for place, key in enumerate(record) if not place or rng.random() < 0.75]
    if rng.random() < 0.2:
        rng.shuffle(keys)
    style = rng.randrange(13) if rng.random() < 0.25 else 0
    return {styled(style, key): record[key] for key in keys}


def sentiment(rng: Random, split: Split) -> Dialogue:
    """The sentiment of a text, by its words."""
    which = rng.randrange(3)
    forms = (GOOD_TEXTS, BAD_TEXTS, PLAIN_TEXTS)[which]
    pools = [forms, *rng.choice(((), (), (forms,), (PLAIN_TEXTS,)))]
    rng.shuffle(pools)
    said = [filled(rng, rng.choice(pool).replace("{g}", rng.choice(GOOD)).replace("{b}", rng.choice(BAD)))
            for pool in pools]  # fmt: skip
    label = rng.choice(LABELS)[which]
    share = round(rng.uniform(0.8, 1), 2)
    key = rng.choice(("sentiment", "sentiment", "sentiment", "label", "mood", "class", "category", "result", "feeling"))
    score = rng.choice(("score", "confidence", "confidence", "probability", "certainty"))
    more: dict[str, Any] = {"is_positive": which == 0, "reason": f"The text says: {' '.join(said)}", "text": " ".join(said),
                            "stars": (rng.choice((4, 5)), rng.choice((1, 2)), 3)[which], "language": "English"}  # fmt: skip
    extra = {name: more[name] for name in rng.sample(list(more), rng.choice((0, 0, 1, 2)))}
    answer = in_order(rng, {key: label, score: share, **extra})
    text = " ".join(said)
    wish = rng.choice(in_split(TASKS, split, "classify"))
    form = rng.random()
    if form < 0.2:
        return Dialogue((user(text),), (json.dumps(answer),), forced=True)
    if form < 0.45:
        return Dialogue((system(wish), user(text)), (json.dumps(answer),), forced=True)
    return Dialogue((user(placed(rng, text, wish)),), (json.dumps(answer),), forced=True)


def equation(rng: Random) -> tuple[str, list[tuple[str, str]], str]:
    """A question of arithmetic, its steps and the answer."""
    a, b, x = rng.randint(2, 9), rng.randint(1, 30), rng.randint(1, 12)
    if rng.random() < 0.5:
        c = a * x + b
        ask = rng.choice(("How can I solve {e}?", "Solve {e}", "Solve {e} for x.", "{e}", "What is x in {e}?",
                          "solve {e}", "Find x: {e}"))  # fmt: skip
        first = rng.choice((f"Subtract {b} from both sides.", f"Subtract {b} on both sides", f"Take away {b}."))
        second = rng.choice((f"Divide both sides by {a}.", f"Divide by {a}."))
        steps = [(first, f"{a}x = {c - b}"), (second, f"x = {x}")]
        return ask.replace("{e}", f"{a}x + {b} = {c}"), steps, f"x = {x}"
    sign, total, verb = rng.choice((("+", a + b, "Add"), ("-", b - a, "Subtract"), ("*", a * b, "Multiply")))
    left = f"{b} {sign} {a}"
    ask = rng.choice(("What is {e}?", "Calculate {e}.", "{e}", "{e} = ?", "How much is {e}?", "Compute {e}"))
    return (
        ask.replace("{e}", left),
        [(f"Subtract {a} from {b}." if sign == "-" else f"{verb} {b} and {a}.", f"{left} = {total}")],
        str(total),
    )


def steps_of(rng: Random) -> tuple[str, dict[str, Any]]:
    """A question of arithmetic and the steps of its answer."""
    text, steps, answer = equation(rng)
    first = rng.choice(("explanation", "explanation", "thought", "step", "description", "text"))
    second = rng.choice(("output", "output", "result", "equation", "value"))
    listed: list[Any] = [{first: one, second: result} for one, result in steps]
    if rng.random() < 0.25:
        listed = [one for one, _ in steps]
    key = rng.choice(("final_answer", "final_answer", "answer", "result", "solution"))
    return text, {rng.choice(("steps", "steps", "reasoning", "work")): listed, key: answer}


def thoughts_of(rng: Random) -> tuple[str, dict[str, Any]]:
    """A question of fact, with the fields that agents want of an answer."""
    question = kinds_facts.any_question(rng)
    think = rng.choice(("thought", "reasoning", "thinking", "explanation", "rationale", "analysis"))
    topic = question.text.rstrip("?.")
    why = rng.choice((f"The question is: {topic}.", question.full, "I know this.", "The user asks for a fact.",
                      "This is easy.", f"I think about it. {question.full}", "The user wants to know something."))  # fmt: skip
    answer = rng.choice((question.short, question.full))
    fields: dict[str, Any] = {
        think: why, rng.choice(("answer", "answer", "response", "final_answer", "reply", "text")): answer,
        "confidence": round(rng.uniform(0.5, 1), rng.choice((1, 2))), "sources": [], "done": True, "next_step": None,
        "follow_up": rng.choice(("Do you want to know more?", "What else?", "Can I help you with more?")),
    }  # fmt: skip
    keys = list(fields)[: rng.choice((2, 2, 3))] + rng.sample(list(fields)[3:], rng.choice((0, 0, 1, 2)))
    if rng.random() < 0.25:
        keys = list(fields)[1:2] + keys[2:]
    if rng.random() < 0.15:
        return loose(rng, question.text), {"question": question.text, "answer": answer}
    return loose(rng, question.text), {key: fields[key] for key in keys}


def text_about(rng: Random) -> tuple[str, dict[str, Any]]:
    """A text and short fields about it: the first sentence, names, a title, a verdict."""
    who = rng.sample(wordlists.NAMES, 2)
    noun, adjective = rng.choice(wordlists.NOUNS), rng.choice(wordlists.ADJECTIVES)
    first = rng.choice((f"{who[0]} and {who[1]} {rng.choice(('found', 'bought', 'lost', 'saw'))} a {adjective} {noun}.",
                        f"{who[0]} gave {who[1]} a {adjective} {noun}.", f"The {noun} is {adjective}, says {who[0]}."))  # fmt: skip
    names = [name for name in who if name in first]
    rest = [MAKERS["sentence"](rng).rstrip(".") + "." for _ in range(rng.randint(0, 3))]
    text = " ".join([first, *rest])
    verdict = rng.random() < 0.5
    fields: dict[str, Any] = {
        "summary": first, "title": f"The {adjective.capitalize()} {noun.capitalize()}", "characters": names,
        "topic": noun, "keywords": [noun, adjective], "language": "English", "sentences": 1 + len(rest),
        "names": names, "main_point": first, "verdict": "pass" if verdict else "fail", "approved": verdict,
        "category": rng.choice(("story", "news", "other")), "reasoning": rng.choice((first, "The text is short.")),
        "is_question": False, "urgent": False, "first_sentence": first, "people": names,
    }  # fmt: skip
    wish = rng.choice(("Summarize this.", "Summarize the text.", "What is this about?", "Analyze the text.", "Judge this.",
                       "Review this text.", "Give me a summary.", "Evaluate the answer.", "tl;dr", "Read this."))  # fmt: skip
    chosen = rng.sample(list(fields), rng.randint(1, 4))
    return placed(rng, text, wish) if rng.random() < 0.8 else text, {key: fields[key] for key in chosen}


SPAM: Final = wordings("""
    [You have won|Claim|Get] a [free|{a}] {n}[, click here|, call now|]!
    [Cheap|Free] {n}[, click here|, buy now|, only today]!
""")
URGENT: Final = wordings("""
    [Urgent:|This is urgent,|Emergency:] the {n} [is broken|does not work|is on fire|is gone][.|!]
    [Please fix the {n} immediately|I need the {n} as soon as possible|Help, the {n} is broken][.|!]
""")
QUESTIONS: Final = wordings("""
    [Where is|When does he bring|Who has|How much is|Do you like|Can I see] the {a} {n}?
""")


def judged(rng: Random) -> tuple[str, dict[str, Any]]:
    """A message, with flags and classes that its words tell."""
    which = rng.randrange(4)
    text = filled(rng, rng.choice((SPAM, URGENT, QUESTIONS, PLAIN_TEXTS)[which]))
    fields: dict[str, Any] = {
        "is_spam": which == 0, "urgent": which == 1, "is_question": which == 2, "spam": which == 0,
        "priority": ("low", "high", "medium", "low")[which], "is_urgent": which == 1, "needs_answer": which in (1, 2),
        "category": ("spam", "problem", "question", "other")[which], "type": ("spam", "problem", "question", "other")[which],
        "label": ("spam", "ham", "ham", "ham")[which], "intent": ("advert", "report", "question", "statement")[which],
        "confidence": round(rng.uniform(0.8, 1), 2), "reason": f"The message says: {text}",
    }  # fmt: skip
    wish = rng.choice(("Classify the message.", "Is this spam?", "Triage this.", "Classify this ticket.", "Judge the message.",
                       "What kind of message is this?", "Label this.", "Route this message.", "Check this."))  # fmt: skip
    chosen = rng.sample(list(fields), rng.randint(1, 3))
    return placed(rng, text, wish) if rng.random() < 0.8 else text, {key: fields[key] for key in chosen}
