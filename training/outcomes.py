"""Results that tools return, and the answers that are given from them."""

import json
import re
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from training import values, verbs, wordlists
from training.functions import spoken
from training.registry import lines, wordings


@dataclass(frozen=True)
class Outcome:
    """A result and the answer to the user; ``field`` is a key of the result that a next call may need."""

    result: str
    answer: str
    field: tuple[str, str] | None = None


FIELDS: Final = (*verbs.TEXT_PARAMETERS, *verbs.WHOLE_PARAMETERS, *verbs.REAL_PARAMETERS)
DONE: Final = lines("""
    ok
    OK
    done
    Done.
    success
    true
    null
    None
    {"ok": true}
    {"success": true}
    {"status": "ok"}
    {"status": "success"}
    {"status": "done"}
    {"result": "ok"}
    {"error": null}
    {}
""")
TRANSIENT: Final = wordings("""
    Error: [timeout|timed out|timed out after 30 s|connection reset|the service is busy|temporarily unavailable|rate limit reached|network unreachable|server overloaded|connection lost|try again|the line was busy][.|, try again|. Please retry.|, try again later|]
    [TimeoutError|ConnectionError|Error 503|Error 429|HTTP 502|RetryError][: the request took too long|: the server did not answer|: busy|: too many requests|: try again|: please retry]
    Error: [503 Service Unavailable|502 Bad Gateway|429 Too Many Requests|504 Gateway Timeout]
    [Temporary failure|Temporary error|Something went wrong|The service did not answer in time|The service is busy|Failed: the line was busy|Internal error][, please try again|. Please try again|, try again|. Try again|. Retry|, retry][.|]
    An error occurred while running the tool. Please try again. Error: [timeout|connection lost|busy|timed out|no answer|temporarily unavailable]
    {"error": "[timeout|busy, try again|temporarily unavailable|timed out|try again|connection reset|please retry|rate limited]"}
    {"status": "error", "message": "[timeout|please retry|busy|try again|temporarily unavailable|connection lost]"}
    {"ok": false, "error": "[try again|timeout|busy|temporarily unavailable|connection reset|please retry]"}
    [Unavailable|Not available|Overloaded] at the moment, [retry|try again|please retry]
""")
FINAL_ERRORS: Final = lines("""
    not found
    permission denied
    access forbidden
    no such {t}
    the {t} does not exist
    the {t} is locked
    not allowed
    the account is closed
    payment required
    already exists
    out of stock
    invalid key
    the {t} was deleted
    not supported
    {w} is missing
    you may not do this
    quota exceeded for this month
""")


def value_of(rng: Random, name: str) -> str | int | float:
    """A value that a field of this name may have."""
    if name in verbs.WHOLE_PARAMETERS:
        return rng.randrange(10 ** rng.choice((1, 2, 3, 4)))
    if name in verbs.REAL_PARAMETERS:
        return round(rng.uniform(0, 1000), rng.choice((1, 2)))
    return values.span(rng)


def shown(value: object) -> str:
    """A value as an answer says it."""
    return "yes" if value is True else "no" if value is False else str(value)


def said(record: dict[str, Any]) -> str:
    """A record as the middle of a sentence: `the size is 3 and the owner is Ann`."""
    return values.enumerated([f"the {spoken(key)} is {shown(value)}" for key, value in record.items()])


def sentence_of(fields: dict[str, Any]) -> str:
    """A record as a sentence."""
    text = said(fields)
    return f"{text[0].upper()}{text[1:]}."


def record(rng: Random, fewest: int, most: int) -> dict[str, Any]:
    """Several fields with values."""
    made: dict[str, Any] = {}
    for _ in range(rng.randint(fewest, most)):
        name = rng.choice(FIELDS) if rng.random() < 0.8 else wordlists.word(rng)
        made[name] = rng.random() < 0.5 if rng.random() < 0.05 else value_of(rng, name)
    return made


def dumped(rng: Random, value: object) -> str:
    """JSON, now and then on several lines or without spaces."""
    form = rng.random()
    if form < 0.8:
        return json.dumps(value, ensure_ascii=False)
    return json.dumps(value, ensure_ascii=False, **({"indent": 2} if form < 0.9 else {"separators": (",", ":")}))


def ended(text: str) -> str:
    """A phrase or a sentence with a capital letter and an end mark."""
    text = text.strip()
    return f"{text[0].upper()}{text[1:]}{'' if text[-1] in '.!?' else '.'}"


def about(subject: str, answer: str) -> str:
    """The answer from one of several results of a function, which names its subject unless there is nothing to say."""
    named = re.search(rf"(?<!\w){re.escape(subject)}(?!\w)", answer)
    told = not subject or named or answer.startswith(("Sorry, that", "I found nothing", "Done."))
    return answer if told else f"{subject}: {answer}"


def found(rng: Random, *, bare: bool = True) -> Outcome:
    """The outcome of a question: a text, a number, a record or a list; a value alone only if ``bare``."""
    form = rng.random()
    if form < 0.1:
        text = wordlists.sentence(rng) + rng.choice(("", "."))
        return Outcome(text, ended(text))
    if form < 0.35 and bare:
        text = rng.choice((values.span, values.code, values.date, lambda r: str(r.randrange(100_000))))(rng)
        # Three words or more are a phrase.
        return Outcome(text, f"The result is {text}." if text.count(" ") < 2 else ended(text))
    if form < 0.75:
        fields = record(rng, 1, 3)
        key, value = next(iter(fields.items()))
        return Outcome(dumped(rng, fields), sentence_of(fields), (key, str(value)))
    if form < 0.95:
        items = [values.span(rng) for _ in range(rng.randint(1, 5))]
        return Outcome(dumped(rng, items), f"I found {len(items)}: {values.enumerated(items)}.")
    return Outcome(rng.choice(("[]", '{"results": []}', "no results", "nothing found", "null")), "I found nothing.")


def done(rng: Random) -> Outcome:
    """The outcome of an action: a bare success, a success with fields, or a sentence."""
    form = rng.random()
    if form < 0.5:
        return Outcome(rng.choice(DONE), "Done.")
    if form < 0.85:
        fields = record(rng, 1, 2)
        key, value = next(iter(fields.items()))
        head = rng.choice(({}, {"ok": True}, {"status": "ok"}, {"status": "success"}, {"success": True}))
        return Outcome(dumped(rng, {**head, **fields}), f"Done. {sentence_of(fields)}", (key, str(value)))
    text = wordlists.sentence(rng) + rng.choice(("", "."))
    return Outcome(text, ended(text))


def asked_field(rng: Random) -> tuple[Outcome, str]:
    """A record of which the user wants one field, and the field's name in words."""
    fields = record(rng, 2, 6)
    key = rng.choice(list(fields))
    answer = f"The {spoken(key)} is {shown(fields[key])}."
    return Outcome(dumped(rng, fields), answer, (key, str(fields[key]))), spoken(key)


def final_error(rng: Random, thing: str) -> Outcome:
    """An error that no second call mends."""
    text = rng.choice(FINAL_ERRORS).format(t=thing, w=wordlists.word(rng))
    result = rng.choice(("Error: {e}", "Error: {e}", "error: {e}", '{"error": "{e}"}', "Failed: {e}",
                         '{"ok": false, "error": "{e}"}', "ValueError: {e}", "404: {e}"))  # fmt: skip
    return Outcome(result.replace("{e}", text), f"Sorry, that did not work: {text}.")
