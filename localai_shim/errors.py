"""Our failures -> the SDK's exception classes, with the body that OpenAI would send."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

TOO_LONG = "context_length_exceeded"
"""Code of the error for a text that is longer than the model reads."""
_TYPE_NAMES: dict[type, str] = {
    bool: "a boolean",
    int: "an integer",
    float: "a decimal",
    str: "a string",
    list: "an array",
    dict: "an object",
    type(None): "null",
}


@dataclass(eq=False)
class RequestError(Exception):
    """A request that cannot be served, in the terms of OpenAI's error body.

    Wording, codes and types follow https://platform.openai.com/docs/guides/error-codes and what the API sends.
    """

    message: str
    param: str | None = None
    code: str | None = None
    status: int = 500
    type: str | None = "server_error"
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Of the response, added to those that all have."""

    def __post_init__(self) -> None:
        """Escape lone surrogates in what a caller wrote: no JSON can be made of them."""
        self.message = _sendable(self.message)
        self.param = None if self.param is None else _sendable(self.param)

    def __str__(self) -> str:
        return self.message

    def body(self) -> dict[str, dict[str, str | None]]:
        """The JSON body."""
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code}}


class BadRequest(RequestError):
    """400: a field is wrong."""

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message, param, code, 400, "invalid_request_error")

    @classmethod
    def wrong_type(cls, param: str, expected: str, value: object) -> BadRequest:
        """A field of the wrong type. `expected` with its article, such as 'a string'."""
        got = _TYPE_NAMES.get(type(value), type(value).__name__)
        text = f"Invalid type for '{param}': expected {expected}, but got {got} instead."
        return cls(text, param=param, code="invalid_type")

    @classmethod
    def invalid(cls, param: str, message: str) -> BadRequest:
        """A value that the field cannot have."""
        return cls(message, param=param, code="invalid_value")

    @classmethod
    def refused(cls, param: str, why: str, code: str = "invalid_value") -> BadRequest:
        """A value that cannot be read, or may not be there; `why` without its full stop."""
        return cls(f"Invalid '{param}': {why}.", param=param, code=code)

    @classmethod
    def unsupported_value(cls, param: str, message: str) -> BadRequest:
        """A value that this client, or this model, does not support."""
        return cls(message, param=param, code="unsupported_value")

    @classmethod
    def unknown_value(cls, param: str, value: object, options: Collection[str]) -> BadRequest:
        """A value that is not among the few strings that the field can have."""
        if not isinstance(value, str):  # which may be nested too deeply to be shown
            return cls.wrong_type(param, f"{'one of ' * (len(options) > 1)}{listed(options)}", value)
        return cls.invalid(param, f"Invalid value: {value!r}. Supported values are: {listed(options)}.")

    @classmethod
    def missing(cls, param: str) -> BadRequest:
        """A field that must be there."""
        return cls(f"Missing required parameter: '{param}'.", param=param, code="missing_required_parameter")

    @classmethod
    def mutually_exclusive(cls, params: Sequence[str]) -> BadRequest:
        """Fields of which only one may be there."""
        shown = ", ".join(map(repr, params))
        text = f"Mutually exclusive parameters: {shown}. Ensure you are only providing one of them."
        return cls(text, param=params[-1], code="mutually_exclusive_parameters")

    @classmethod
    def empty_array(cls, param: str) -> BadRequest:
        """An array that must hold something."""
        text = "empty array. Expected an array with minimum length 1, but got an empty array instead."
        return cls(f"Invalid '{param}': {text}", param=param, code="empty_array")

    @classmethod
    def empty_string(cls, param: str) -> BadRequest:
        """A string that must hold something."""
        text = "empty string. Expected a string with minimum length 1, but got an empty string instead."
        return cls(f"Invalid '{param}': {text}", param=param, code="string_below_min_length")

    @classmethod
    def long_array(cls, param: str, most: int, got: int) -> BadRequest:
        """An array with more items than are allowed."""
        text = (
            f"array too long. Expected an array with maximum length {most}, but got an array with length {got} instead."
        )
        return cls(f"Invalid '{param}': {text}", param=param, code="array_above_max_length")

    @classmethod
    def long_string(cls, param: str, most: int, got: int, what: str = "string") -> BadRequest:
        """A string with more characters than are allowed."""
        text = f"Expected a string with maximum length {most}, but got a string with length {got} instead."
        return cls(f"Invalid '{param}': {what} too long. {text}", param=param, code="string_above_max_length")

    @classmethod
    def unknown_parameter(cls, param: str, known: Collection[str], none: str) -> BadRequest:
        """A field that the endpoint does not have, with those that it knows, sorted; `none` if there are none."""
        knows = f"knows: {listed(known)}" if known else none
        text = f"Unknown parameter: '{param}'. This endpoint {knows}."
        return cls(text, param=param, code="unknown_parameter")

    @classmethod
    def too_many_tokens(cls, param: str, message: str) -> BadRequest:
        """A text that is longer than the model reads."""
        return cls(message, param=param, code=TOO_LONG)

    @classmethod
    def unsupported(cls, param: str, why: str) -> BadRequest:
        """A field that OpenAI has and this client does not honour."""
        return cls(f"Unsupported parameter: '{param}'. {why}", param=param, code="unsupported_parameter")


class NotFound(RequestError):
    """404: no such model, endpoint or object."""

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message, param, code, 404, "invalid_request_error")


class TooManyRequests(RequestError):
    """429: the queue is full."""

    def __init__(self, message: str) -> None:
        super().__init__(message, None, "rate_limit_exceeded", 429, "requests")


def _sendable(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()


def listed(options: Collection[str]) -> str:
    """'a', 'b', and 'c'."""
    quoted = [f"'{option}'" for option in options]
    if len(quoted) < 3:
        return " and ".join(quoted)
    return ", ".join(quoted[:-1]) + f", and {quoted[-1]}"
