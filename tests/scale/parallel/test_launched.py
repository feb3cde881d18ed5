"""Under mlx.launch one process goes on with the program as the client; the others follow it, and end with it."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

from localai_shim import LocalOpenAI
from tests.scale.parallel.groups import folder_of, running

PROGRAM = """
import sys
from localai_shim import LocalOpenAI
print("begins", flush=True)
with LocalOpenAI(model=sys.argv[1], tensor_parallel=int(sys.argv[2]), max_retries=0) as client:
    answer = client.chat.completions.create(
        model="any", messages=[{"role": "user", "content": "Count."}], max_tokens=8, temperature=0
    )
    print("answer", ascii(answer.choices[0].message.content), flush=True)
"""


def launched(folder: Path, program: Path, processes: int, size: int) -> str:
    """Output of a program that mlx.launch has started so many times, for a group of this size."""
    program.write_text(PROGRAM)
    [script] = entry_points(group="console_scripts", name="mlx.launch")
    run = f"import sys; from {script.module} import {script.attr} as run; sys.argv[0] = 'mlx.launch'; run()"
    how = ["-n", str(processes), "--backend", "ring", "--python", sys.executable, "--"]
    command = [sys.executable, "-c", run, *how, str(program), str(folder), str(size)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=120, cwd=Path(__file__).parents[3]
    )
    return done.stdout + done.stderr


def test_one_process_goes_on_and_answers_like_one_that_is_alone(tmp_path: Path) -> None:
    folder = folder_of("qwen3")
    with running(folder):  # imports what models need, while nobody else imports
        pass
    with LocalOpenAI(model=folder, keep_alive=0) as client:
        alone = client.chat.completions.create(
            model="any", messages=[{"role": "user", "content": "Count."}], max_tokens=8, temperature=0
        )
    written = launched(folder, tmp_path / "program.py", 2, 2)
    assert written.count("begins") == 2
    assert [line for line in written.splitlines() if line.startswith("answer")] == [
        f"answer {alone.choices[0].message.content!a}"
    ]


def test_a_group_of_another_size_is_refused(tmp_path: Path) -> None:
    folder = folder_of("qwen3", num_attention_heads=6, num_key_value_heads=3)
    written = launched(folder, tmp_path / "program.py", processes=2, size=3)
    assert "mlx.launch has started 2 processes, and tensor_parallel is 3" in written
