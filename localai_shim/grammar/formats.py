"""Regular expressions for JSON Schema's `format`."""

from __future__ import annotations

_MONTH_DAY = (
    r"(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|02-(?:0[1-9]|1\d|2[0-8]))"
)
_DATE = rf"[12]\d{{3}}-{_MONTH_DAY}"
_TIME = r"(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,9})?(?:Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)"
_HOURS = r"T(?:\d+H(?:\d+M)?(?:\d+S)?|\d+M(?:\d+S)?|\d+S)"
_DAYS = r"(?:\d+Y(?:\d+M(?:\d+D)?)?|\d+M(?:\d+D)?|\d+D)"
_LABEL = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
_HOSTNAME = rf"{_LABEL}(?:\.{_LABEL})*"
_BYTE = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
_GROUP = r"[0-9a-fA-F]{1,4}"
_ATOM = r"[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]+"
_PATH = r"(?:[a-zA-Z0-9._~!$&'()*+,;=:@-]|%[0-9a-fA-F]{2})*"

# What JSON Schema's `format` asks for: RFC 3339, 5321, 1123, 2673, 4291, 4122 and 3986, at times a little less than
# they allow (no leap days, leap seconds or quoted mailboxes), so that every validator agrees.
FORMATS = {
    "date": _DATE,
    "time": _TIME,
    "date-time": rf"{_DATE}T{_TIME}",
    "duration": rf"P(?:{_DAYS}(?:{_HOURS})?|{_HOURS}|\d+W)",
    "email": rf"{_ATOM}(?:\.{_ATOM})*@{_HOSTNAME}",
    "hostname": _HOSTNAME,
    "ipv4": rf"{_BYTE}(?:\.{_BYTE}){{3}}",
    "ipv6": "|".join(
        [rf"(?:{_GROUP}:){{7}}{_GROUP}", "::"]
        + [rf"(?:{_GROUP}:){{{n}}}(?::{_GROUP}){{1,{7 - n}}}" for n in range(1, 7)]
        + [rf"(?:{_GROUP}:){{1,7}}:", rf":(?::{_GROUP}){{1,7}}"]
    ),
    "uuid": r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}",
    "uri": rf"[a-zA-Z][a-zA-Z0-9+.-]*://{_HOSTNAME}(?::\d{{1,5}})?(?:/{_PATH})*(?:\?{_PATH})?(?:#{_PATH})?",
}
