"""Fetches some files of a source distribution, without building it: some need a compiler or torch to say their version.

`pip download` builds the metadata first, so this asks pip for the address alone. Index, certificates and proxies are
those of pip's own configuration.

    python sdist.py NAME VERSION FOLDER PATTERN ...

A pattern is matched against paths below the archive's top folder.
"""

from __future__ import annotations

import io
import sys
import tarfile
from pathlib import Path, PurePosixPath

from pip._internal.commands import create_command


def fetch(name: str, version: str) -> bytes:
    """The archive of a package's version.

    Raises:
        SystemExit: the index has none.
    """
    command = create_command("download")
    options, _ = command.parse_args(["--quiet", "--no-binary", ":all:"])
    with command.main_context():
        session = command.get_default_session(options)
        finder = command._build_package_finder(options, session)
        links = [found.link for found in finder.find_all_candidates(name) if str(found.version) == version]
        if not links:
            raise SystemExit(f"pip finds no source distribution of {name} {version}")
        response = session.get(links[0].url_without_fragment)
        response.raise_for_status()
        if links[0].has_hash:
            links[0].as_hashes().check_against_chunks([response.content])
        return bytes(response.content)


def unpack(archive: bytes, folder: Path, patterns: list[str]) -> None:
    """Write the files that match a pattern into a folder.

    Raises:
        SystemExit: a pattern matches nothing.
    """
    left = set(patterns)
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        for member in files:
            path = PurePosixPath(member.name.partition("/")[2])
            matching = {pattern for pattern in patterns if member.isfile() and path.match(pattern)}
            if matching:
                member.name = str(path)
                files.extract(member, folder, filter="data")
                left -= matching
    if left:
        raise SystemExit(f"the archive has no {', '.join(sorted(left))}")


if __name__ == "__main__":
    _, name, version, folder, *patterns = sys.argv
    unpack(fetch(name, version), Path(folder), patterns)
