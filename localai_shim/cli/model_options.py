"""The model that a command runs, and the clients' own options for it."""

from __future__ import annotations

import argparse
from typing import cast, get_args

from ..options import OWN, TYPES, LoadOptions, LocalOptions, RunOptions, SearchOptions

NAMES = (*LoadOptions.__annotations__, *SearchOptions.__annotations__, *RunOptions.__annotations__)
_TURNED_OFF = ("local_models",)  # switches that are on by default


def add_model(parser: argparse.ArgumentParser, *flags: str) -> None:
    """Add the model, as an argument that may be left out or under these flags, and all options of clients."""
    help = "folder, GGUF file, Hub ID, name of a model on this machine, or builtin:vision; by default the bundled model"
    if flags:
        parser.add_argument(*flags, dest="model", metavar="MODEL", help=help)
    else:
        parser.add_argument("model", nargs="?", metavar="MODEL", help=help)
    group = parser.add_argument_group("options of the model")
    for name in NAMES:
        flag, option, kinds = "--" + name.replace("_", "-"), OWN[name], {TYPES[name], *get_args(TYPES[name])}
        help = option.doc.replace("`", "").replace("%", "%%")
        if name in _TURNED_OFF:
            group.add_argument(
                f"--no-{flag[2:]}", action="store_false", dest=name, default=None, help=f"do not: {help}"
            )
            continue
        if bool in kinds:
            group.add_argument(flag, action="store_true", default=None, help=help)
            continue
        kind = int if int in kinds else float if float in kinds else str
        group.add_argument(flag, type=kind, choices=option.choices or None, metavar=_metavar(name, kind), help=help)


def _metavar(name: str, kind: type) -> str:
    if kind is int or kind is float:
        return "N" if kind is int else "SECONDS"
    return "PATH" if name.endswith(("path", "dir")) else "NAME" if name.endswith(("format", "revision")) else "HOW"


def given_options(arguments: argparse.Namespace) -> LocalOptions:
    """The options that were given."""
    found = {name: getattr(arguments, name) for name in NAMES if getattr(arguments, name) is not None}
    return cast(LocalOptions, found)  # argparse has read them by their types
