"""Errors and empty results of everyday tools in every form, and the answers that are given from them."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

from training.functions import spoken
from training.registry import lines, wordings
from training.results_forms import Told, listing

if TYPE_CHECKING:
    from training.results_scenes import Use

NOTHING: Final = wordings("""
    <>
    {}
    ""
    null
    None
    ()
    [No|no] results[.| found.| found]
    [Nothing found|Nothing was found|nothing found|No matches|No match found|No records found|0 rows|0 results|(0 rows)|(empty)|No data|Empty result][.|]
    {"results": <>}
    {"results": <>, "total": 0}
    {"[data|items|hits|matches|rows]": <>[|, "count": 0|, "total": 0]}
    {'results': <>}
    {"total": 0}
    {"result": null}
    {"data": null}
    [Your search|The search|The query] returned [no results|nothing].
    name,value
    | name | value |\\n| --- | --- |
""")
REASONS: Final = lines("""
    {s} not found
    no such {k}: {s}
    unknown {k}: {s}
    unknown {k} {s}
    the {k} {s} does not exist
    invalid {k}
    permission denied
    access denied
    not authorized
    invalid API key
    missing parameter: {k}
    quota exceeded
    the account is locked
    not supported
    {k} is not valid
    could not find {s}
    you are not allowed to do this
    the service was closed
    file is read-only
    payment required
    division by zero
    disk full
    the license has expired
    wrong password
    no access to {s}
    unexpected value for {k}
    {k} not found
""")
GENERAL_REASONS: Final = tuple(reason for reason in REASONS if "{s}" not in reason)
ERRORS: Final = wordings("""
    [Error|ERROR|error|Failed|Failure|Fatal|fatal]: {e}[|.]
    [ValueError|KeyError|RuntimeError|LookupError|PermissionError|FileNotFoundError|ToolError|HTTPError|APIError|Exception]: {e}
    [HTTP 404|HTTP 403|HTTP 400|Error 404|Error 403|Error 400|404|403|401|400]: {e}[|.]
    {E}[|.]
    {"error": "[{e}|{E}]"}
    {"error": {"message": "[{e}|{E}]"}}
    {"error": {"code": [404|403|400], "message": "[{e}|{E}]"}}
    {"success": false, "[message|error|reason]": "[{e}|{E}]"}
    {"ok": false, "[message|error|reason]": "[{e}|{E}]"}
    {"status": "[error|failed]", "[message|error|detail]": "[{e}|{E}]"}
    {"code": [404|403|400], "message": "[{e}|{E}]"}
    {"detail": "[{e}|{E}]"}
    {'error': '{e}'}
    {'success': False, 'message': '[{e}|{E}]'}
    Traceback (most recent call last):\\n  File "[tool.py|main.py|app.py]", line [12|31|87|204], in [run|call|get]\\n[ValueError|KeyError|RuntimeError|LookupError]: {e}
    [Tool|Function|Call] failed: {e}[|.]
    status=error, message={e}
    <error>{e}</error>
""")


def failed(rng: Random, use: Use) -> Told:
    """An error that no second call mends, in any form."""
    slot = use.varying.slot if use.varying else rng.choice(list(use.given)) if use.given else "request"
    subject = listing(use.given[slot]) if slot in use.given else ""
    reason = (
        rng.choice(REASONS if use.varying else GENERAL_REASONS)
        .replace("{s}", subject)
        .replace("{k}", spoken(use.names.get(slot, slot)))
    )
    template = rng.choice(ERRORS).replace("\\n", "\n")
    if '"' in reason or "'" in reason:
        template = "Error: {e}"
    capital = reason[0].upper() + reason[1:]
    text = capital if "{E}" in template else reason
    return Told(
        template.replace("{e}", reason).replace("{E}", capital), f"Sorry, that did not work: {text}.", form="error"
    )


def nothing(rng: Random, use: Use) -> Told:
    """An empty result."""
    text = rng.choice(NOTHING).replace("\\n", "\n").replace("<>", "[]")
    if use.tool.sort == "list" and rng.random() < 0.3:
        thing = spoken(use.tool.names[0]).split(" ")[-1]
        text = f"No {thing if thing.endswith('s') else 'matching entries'} found."
    elif rng.random() < 0.05:
        text = ""
    return Told(text, "I found nothing.", form="empty")
