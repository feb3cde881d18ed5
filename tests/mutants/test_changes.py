from __future__ import annotations

from pathlib import Path

from tests.mutants.changes import Source, changes


def made_of(folder: Path, code: str) -> list[tuple[str, str, str]]:
    """The kind of each change, the text before, and the text after."""
    path = folder / "module.py"
    path.write_text(code, encoding="utf-8")
    source = Source(path)
    return [(change.kind, source.of(change.node), change.text) for change in changes(source)]


def test_each_kind_of_code_has_its_changes(tmp_path: Path) -> None:
    code = """
def bounded(values, limit, *, strict=True):
    found = []
    for value in values:
        if not value or value < limit:
            continue
        found.append(min(value, limit))
    return found


async def ended(table, rows):
    table.total += len(rows) * 2
    table.last = table.get("last", 0)
    await rows.close()
    return None
"""
    assert made_of(tmp_path, code) == [
        ("and/or", "not value or value < limit", "not value and value < limit"),
        ("not", "not value", "(value)"),
        ("compare", "value < limit", "value <= limit"),
        ("continue", "continue", "break"),
        ("drop statement", "found.append(min(value, limit))", "pass"),
        ("arguments", "min(value, limit)", "min(limit, value)"),
        ("return None", "return found", "return None"),
        ("drop statement", "table.total += len(rows) * 2", "pass"),
        ("arithmetic", "len(rows) * 2", "len(rows) + 2"),
        ("constant", "2", "3"),
        ("drop statement", 'table.last = table.get("last", 0)', "pass"),
        ("default", "0", "None"),
        ("constant", "0", "1"),
        ("drop release", "await rows.close()", "pass"),
    ]


def test_docstrings_logs_exceptions_and_annotations_stay(tmp_path: Path) -> None:
    code = '''
limit = 1 + 1


def read(number):
    """Read 1 + 1 of them."""
    logger.info("read %d of %d", number + 1, number)
    warnings.warn(f"number {number - 1} is low", stacklevel=2)
    assert number > 1
    found: tuple[1, 2] = number
    if number:
        raise ValueError("number", number + 1)
    raise TypeError(f"{number + 1} is no number")
'''
    assert made_of(tmp_path, code) == []


def test_words_are_not_subtracted_and_kinds_of_arguments_not_exchanged(tmp_path: Path) -> None:
    code = """
def told(name):
    if isinstance(name, str) and zip(name, name, strict=True):
        greeted = "hello " + name
"""
    assert [kind for kind, _, _ in made_of(tmp_path, code)] == ["and/or"]


def test_a_change_after_letters_of_several_bytes_is_in_its_place(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text('def smile(n):\n    "ü"; return ("é", n - 1)\n', encoding="utf-8")
    source = Source(path)
    texts = [source.changed(change) for change in changes(source) if change.kind == "arithmetic"]
    assert texts == ['def smile(n):\n    "ü"; return ("é", n + 1)\n']
