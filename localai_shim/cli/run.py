"""Run a program whose requests to OpenAI a local model answers.

PROGRAM is a script, a module (-m NAME), or a program that is installed in this environment, such as llm. It runs in
this process with a placeholder key. Nothing reaches OpenAI. Options come before PROGRAM.
"""

from __future__ import annotations

import argparse
import importlib.util
import io
import os
import shutil
import sys
import sysconfig
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from importlib.metadata import EntryPoint, entry_points
from types import CodeType, TracebackType

from ..replacing.network import PACKAGE
from .shared import INTERRUPTED, add_model, given_options, open_client


@dataclass(frozen=True, slots=True)
class Program:
    """A program that was found.

    Attributes:
        path: the first of its arguments.
        folder: where it looks for modules first.
        load: returns its code, once `sys.argv` and `sys.path` are those of the program.
    """

    path: str
    folder: str
    load: Callable[[types.ModuleType], CodeType]


def find_program(name: str) -> Program:
    """Find a script by its path, or a console script of this environment by its name.

    Raises:
        FileNotFoundError: there is no such program in this environment.
    """
    found = [] if os.sep in name or name.endswith(".py") else list(entry_points(group="console_scripts", name=name))
    if found:
        return _console_script(found[0])
    installed = os.path.join(sysconfig.get_path("scripts"), name)
    if os.path.isfile(name):
        return _script(name)
    if os.path.isdir(name):
        raise FileNotFoundError(f"'{name}' is a folder. Pass a script, or a module as `-m NAME`.")
    if os.path.isfile(installed) and _is_python(installed):
        return _script(installed)
    elsewhere = shutil.which(name)
    if elsewhere is not None:
        raise FileNotFoundError(
            f"'{name}' is '{elsewhere}', which is not a Python program of this environment. Install it next to "
            f"localai-shim, with the pip of {sys.executable}."
        )
    raise FileNotFoundError(f"There is no script '{name}', and no program of this name in this environment.")


def find_module(name: str) -> Program:
    """Find a module by its name, as `python -m` does. It is imported when the program runs."""

    def load(main: types.ModuleType) -> CodeType:
        spec = _runnable(name)
        code: CodeType | None = spec.loader.get_code(spec.name)  # type: ignore[union-attr]
        if code is None:
            raise ImportError(f"The module '{name}' has no Python code.", name=name)
        main.__spec__, main.__package__, main.__file__ = spec, spec.parent, spec.origin
        main.__loader__ = spec.loader
        sys.argv[0] = spec.origin or name
        return code

    return Program("-m", os.getcwd(), load)


def _runnable(name: str) -> ModuleSpec:
    """The module that runs for a name: that of a package is `__main__`."""
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            name = f"{name}.__main__"
            spec = importlib.util.find_spec(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # the module exists, and imports one that does not
        spec = None
    if spec is None or spec.loader is None or not hasattr(spec.loader, "get_code"):
        raise ModuleNotFoundError(f"No module named '{name}'", name=name)
    return spec


def _script(path: str) -> Program:
    def load(main: types.ModuleType) -> CodeType:
        with io.open_code(os.path.abspath(path)) as file:
            code = compile(file.read(), path, "exec")
        main.__file__ = path
        return code

    return Program(path, os.path.dirname(os.path.realpath(path)), load)


def _console_script(entry: EntryPoint) -> Program:
    folder = sysconfig.get_path("scripts")
    path = os.path.join(folder, entry.name)
    text = f"import sys\nfrom {entry.module} import {entry.attr.partition('.')[0]}\nsys.exit({entry.attr}())\n"

    def load(main: types.ModuleType) -> CodeType:
        main.__file__ = path
        return compile(text, path, "exec")

    return Program(path, folder, load)


def _is_python(path: str) -> bool:
    """True if the first line of a file names a Python interpreter."""
    with open(path, "rb") as file:
        first = file.readline(1000)
    return first.startswith(b"#!") and b"python" in first


# -- running it -----------------------------------------------------------------------------------------------------


def run_program(program: Program, arguments: Sequence[str]) -> int:
    """Run a program in this process, as its `__main__`; returns its exit status.

    An exception is shown as Python shows it, without lines of this package.

    Raises:
        SystemExit: the program's own.
    """
    main = types.ModuleType("__main__")
    main.__builtins__ = sys.modules["builtins"]  # type: ignore[attr-defined]
    sys.modules["__main__"] = main
    sys.argv = [program.path, *arguments]
    sys.path[0] = program.folder
    try:
        exec(program.load(main), main.__dict__)
    except Exception as error:
        _show(error)
        return 1
    except KeyboardInterrupt as error:
        _show(error)
        return INTERRUPTED
    return 0


def _show(error: BaseException) -> None:
    """Show an exception that ended the program."""
    trace = error.__traceback__
    while trace is not None and _is_inner(trace):
        trace = trace.tb_next
    sys.excepthook(type(error), error.with_traceback(trace), trace)


def _is_inner(trace: TracebackType) -> bool:
    """True for lines of this package, and of Python's import system below them."""
    return trace.tb_frame.f_code.co_filename.startswith((PACKAGE, "<frozen importlib"))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe what is run."""
    parser.usage = "localai-shim run [OPTION ...] (PROGRAM | -m MODULE) [ARGUMENT ...]"
    add_model(parser, "--model")
    parser.add_argument(
        "--block-network", action="store_true", help="refuse all connections to other machines while the program runs"
    )
    parser.add_argument(
        "-m", dest="module", nargs=argparse.REMAINDER, metavar="MODULE", help="run a module by its name"
    )
    parser.add_argument(
        "program", nargs=argparse.REMAINDER, metavar="PROGRAM", help="a script or an installed program; its arguments"
    )


def run(given: argparse.Namespace) -> int:
    """Run the program until it ends."""

    # Behind `-m`, argparse takes `--` and what follows for the program's.
    words = given.module and given.module + given.program
    name, *arguments = words or _without_dashes(given.program) or [""]
    if not name:
        sys.stderr.write("localai-shim run: name a program to run, such as script.py, -m MODULE, or llm\n")
        return 2
    program = find_module(name) if given.module else find_program(name)
    client = open_client("run", given.model, given_options(given))

    from ..replacing.network import begin, refuse_all
    from ..replacing.program import Replacement

    # Neither ends with this function: threads and exit handlers of the program come later.
    Replacement(client, is_owned=True)
    if given.block_network:
        begin(refuse_all)
    return run_program(program, arguments)


def _without_dashes(program: list[str]) -> list[str]:
    return program[1:] if program[:1] == ["--"] else program
