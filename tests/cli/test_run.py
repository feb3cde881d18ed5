"""`localai-shim run`: programs run as Python runs them, and their requests to OpenAI are answered here."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from localai_shim.cli.main import main
from localai_shim.cli.run import find_program
from tests.scripts import run

PRINTS = """
import openai, os, sys
{more}
def ask():
    client = openai.OpenAI(api_key=os.environ["OPENAI_API_KEY"])
    return client.responses.create(model="gpt-4o", input="What is 2 + 3?", temperature=0).output_text

def main():
    here = sys.modules["__main__"]
    print(here.__name__, here.__dict__ is globals(), sys.argv[1:], os.path.basename(sys.argv[0]))
    print(ask(), flush=True)
"""
SCRIPT = PRINTS.format(more="import threading") + (
    """
if __name__ == "__main__":
    main()
    print(os.path.basename(__file__), os.path.basename(sys.path[0]), __package__)
    thread = threading.current_thread()
    threading.Thread(target=lambda: (thread.join(), print(ask(), flush=True))).start()
    sys.exit(3)
"""
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a script, a package, and the metadata of an installed program."""
    (tmp_path / "ask.py").write_text(SCRIPT)
    package, metadata = tmp_path / "asker", tmp_path / "asker-1.0.dist-info"
    package.mkdir()
    metadata.mkdir()
    (package / "__init__.py").write_text("")
    (package / "app.py").write_text(PRINTS.format(more=""))
    (package / "__main__.py").write_text("from .app import main\nprint(__package__, __name__)\nmain()\n")
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: asker\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[console_scripts]\nask-it = asker.app:main\n")
    return tmp_path


def run_in(folder: Path, *arguments: str, warm: str | None = "mlx") -> CompletedProcess[str]:
    """Run the command in a process, in a folder whose programs are installed."""
    code = f"""
import os, sys
os.chdir({str(folder)!r})
sys.path.insert(1, {str(folder)!r})
from localai_shim.cli.main import main
sys.exit(main({["run", *arguments]!r}))
"""
    return run(code, warm=warm, OPENAI_API_KEY="")


def lines(done: CompletedProcess[str]) -> list[str]:
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_a_script_runs_as_main_with_its_arguments_and_ends_with_its_status(folder: Path) -> None:
    done = run_in(folder, str(folder / "ask.py"), "--model", "x", "-m", "y")
    assert lines(done) == [
        "__main__ True ['--model', 'x', '-m', 'y'] ask.py",
        "2 + 3 = 5.",
        f"ask.py {folder.name} None",
        "2 + 3 = 5.",  # a thread that goes on when the script has ended
    ]
    assert done.returncode == 3


def test_a_module_runs_by_its_name(folder: Path) -> None:
    done = run_in(folder, "-m", "asker", "--help", "-m", "--", "x")
    assert lines(done) == ["asker __main__", "__main__ False ['--help', '-m', '--', 'x'] __main__.py", "2 + 3 = 5."]
    assert done.returncode == 0


def test_an_installed_program_runs_by_its_name(folder: Path) -> None:
    done = run_in(folder, "--max-rows", "2", "--", "ask-it", "--max-rows")
    assert lines(done) == ["__main__ False ['--max-rows'] ask-it", "2 + 3 = 5."]
    assert done.returncode == 0


FAILS = """
def fails():
    raise {error}

fails()
"""


@pytest.mark.parametrize(
    ("error", "status", "shown"),
    [("KeyError('no such city')", 1, "KeyError: 'no such city'"), ("KeyboardInterrupt", 130, "KeyboardInterrupt")],
)
def test_an_exception_is_shown_as_python_shows_it(folder: Path, error: str, status: int, shown: str) -> None:
    script = folder / "fails.py"
    script.write_text(FAILS.format(error=error))
    done = run_in(folder, str(script))
    assert (done.returncode, done.stdout) == (status, "")
    frames = [line.strip() for line in done.stderr.splitlines() if line.startswith("  File")]
    assert frames == [f'File "{script}", line 5, in <module>', f'File "{script}", line 3, in fails']
    assert done.stderr.startswith("Traceback (most recent call last):\n")
    assert done.stderr.endswith(f"{shown}\n")


REACHES_OUT = """
import socket
with socket.create_server(("127.0.0.1", 0)) as server:
    socket.create_connection(server.getsockname()).close()
try:
    socket.create_connection(("192.0.2.1", 443), 0.1)
except Exception as error:
    print(type(error).__name__, error)
"""


def test_block_network_refuses_other_machines(folder: Path) -> None:
    script = folder / "reaches_out.py"
    script.write_text(REACHES_OUT)
    done = run_in(folder, "--block-network", str(script))
    assert lines(done) == [
        "NetworkUnreachableError The program reached out to 192.0.2.1:443, which --block-network forbids",
        f"  at {script}:6 in <module>",
    ]


# -- programs that are not there ------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [[], ["--"], ["-m"], ["--max-rows", "2"]])
def test_a_program_has_to_be_named(arguments: Sequence[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", *arguments]) == 2
    assert "name a program to run" in capsys.readouterr().err


def test_a_program_that_is_not_there_is_an_error_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["run", "absent.py"]) == 1
    assert capsys.readouterr().err == (
        "localai-shim run: There is no script 'absent.py', and no program of this name in this environment.\n"
    )


def test_a_folder_and_a_program_of_another_environment_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    with pytest.raises(FileNotFoundError, match=r"'folder' is a folder"):
        find_program("folder")
    other = tmp_path / "bin" / "other-program"
    other.parent.mkdir()
    other.write_text("#!/usr/bin/env python\n")
    other.chmod(0o755)
    monkeypatch.setenv("PATH", str(other.parent))
    with pytest.raises(FileNotFoundError, match=f"is '{other}', .*pip of {sys.executable}"):
        find_program("other-program")
