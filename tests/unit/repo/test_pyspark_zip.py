"""tools/compile_pyspark_zip.py: an archive of sources gets compiled modules, and loses nothing."""

from __future__ import annotations

import zipimport
from pathlib import Path
from zipfile import ZipFile

from tools.compile_pyspark_zip import compile_archive


def test_modules_are_loaded_compiled_and_sources_stay(tmp_path: Path) -> None:
    archive = tmp_path / "pyspark.zip"
    sources = {"one/__init__.py": "", "one/two.py": "ANSWER = 42\n", "one/broken.py": "def\n", "one/data.txt": "words"}
    with ZipFile(archive, "w") as made:
        for name, text in sources.items():
            made.writestr(name, text)
    archive.chmod(0o644)

    assert compile_archive(archive) is True

    with ZipFile(archive) as now:
        assert {name: now.read(name).decode() for name in sources} == sources
        assert sorted(set(now.namelist()) - set(sources)) == ["one/__init__.pyc", "one/two.pyc"]
    importer = zipimport.zipimporter(str(archive))
    assert importer.get_filename("one/two").endswith("two.pyc")
    assert importer.get_code("one/two").co_filename == str(archive / "one" / "two.py"), "as tracebacks name it"
    assert archive.stat().st_mode & 0o777 == 0o644
    assert [path.name for path in tmp_path.iterdir()] == ["pyspark.zip"]

    before = archive.stat().st_ino
    assert compile_archive(archive) is False
    assert archive.stat().st_ino == before
