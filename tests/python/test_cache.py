"""The package in a Python of its own: where compiled kernels are kept, and which compiler makes them."""

import ctypes
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import flash_ladder

if why := flash_ladder._core.why_not("cpu"):
    pytest.skip(why, allow_module_level=True)


def python(code, **variables):
    """What another Python says that has the package, and these variables of the environment."""
    done = subprocess.run([sys.executable, "-c", "import sys; sys.path[:] = " + repr(sys.path) + "\n" + code],
                          env={**os.environ, **variables}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return done.stdout + done.stderr


def test_without_a_place_for_kernels_the_variable_is_named():
    for variables in ({"FLASH_LADDER_CACHE": "/dev/null/cache"},
                      {"FLASH_LADDER_CACHE": "", "XDG_CACHE_HOME": "", "HOME": "/dev/null"}):
        said = python("import flash_ladder", **variables)
        assert re.search("CannotRun: no place for compiled kernels: .*FLASH_LADDER_CACHE names another folder", said), said


def test_its_files_in_python_may_be_elsewhere(tmp_path):
    """After `pip install -e` they are in their source folder, and what is compiled is not."""
    (tmp_path / "flash_ladder").mkdir()
    for file in Path(flash_ladder.__file__).parent.glob("*.py"):
        shutil.copy(file, tmp_path / "flash_ladder")
    said = python(f"""
import importlib.util
class Finder:
    def find_spec(name, path=None, target=None):
        if name == "flash_ladder._core":
            return importlib.util.spec_from_file_location(name, {flash_ladder._core.__file__!r})
sys.meta_path.insert(0, Finder)
sys.path.insert(0, {str(tmp_path)!r})
import numpy as np, flash_ladder
q = np.ones((1, 1, 9, 64), np.float16)
print(flash_ladder.__file__, (flash_ladder.attention(q, q, q, stage=5) == 1).all())
""")
    assert said.split() == [str(tmp_path / "flash_ladder" / "__init__.py"), "True"], said


def test_a_cache_that_others_may_write_to_is_refused(tmp_path):
    """Their libraries would run here."""
    open_to_all, version = tmp_path / "open", flash_ladder._home.BUILD.name
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    said = python("import flash_ladder", FLASH_LADDER_CACHE=str(open_to_all))
    assert f"CannotRun: no place for compiled kernels: others may write to {open_to_all}, and" in said, said
    open_to_all.chmod(0o755)
    (open_to_all / version).mkdir()
    (open_to_all / version).chmod(0o770)
    said = python("import flash_ladder", FLASH_LADDER_CACHE=str(open_to_all))
    assert f"others may write to {open_to_all / version}, and" in said, said
    new = tmp_path / "new" / "cache"
    assert python("import flash_ladder", FLASH_LADDER_CACHE=str(new)) == ""
    assert {path.stat().st_mode & 0o777 for path in (new, new / version)} == {0o700}
    if os.geteuid() == 0:
        os.chown(new, 12345, -1)
        said = python("import flash_ladder", FLASH_LADDER_CACHE=str(new))
        assert f"{new} belongs to another user, whose code would run here. FLASH_LADDER_CACHE names another" in said, said


def test_what_is_damaged_in_the_cache_is_made_again(problem, tmp_path):
    np.save(tmp_path / "q.npy", problem[1])
    code = f"""
import ctypes, numpy as np, flash_ladder
q = np.load({str(tmp_path / "q.npy")!r})
print(abs(flash_ladder.attention(q, q, q, stage=0).astype(float)).sum())
source = {str(tmp_path / "answer.cpp")!r}
open(source, "w").write('extern "C" int answer() {{ return 42; }}')
print(ctypes.CDLL(str(flash_ladder._home.compiled(source, [], ""))).answer())
"""
    run = lambda: python(code, FLASH_LADDER_CACHE=str(tmp_path / "cache"))
    expected = run()
    assert len(expected.split()) == 2, expected
    build, = (tmp_path / "cache").iterdir()
    kernel, answer = build / "kernels" / "00_naive" / "cpu.so", next(build.glob("answer-*.so"))
    assert not list(build.rglob("*.o")) and not list(build.rglob("*.gch"))
    whole = kernel.read_bytes()
    wrong = bytearray(whole)
    wrong[len(wrong) // 2] ^= 1
    for content in whole[:5000], b"", bytes(len(whole)), bytes(wrong):
        for library in kernel, answer:
            library.unlink()
            library.write_bytes(content)
        assert run() == expected
        assert kernel.read_bytes() == whole and len(answer.read_bytes()) > 5000
    for record in kernel.with_name("cpu.so.made"), answer.with_suffix(".made"), build / "kernels.json":
        record.write_bytes(b"")
    assert run() == expected


def test_versions_that_are_no_longer_used_are_removed(tmp_path):
    old, used, other = (tmp_path / name for name in ("0123456789ab", "ba9876543210", "notes"))
    for folder in old, used, other:
        folder.mkdir()
        (folder / "kernels.json").write_text("{}")
    for folder in old, other:
        os.utime(folder / "kernels.json", (0, 0))
    assert python("import flash_ladder", FLASH_LADDER_CACHE=str(tmp_path)) == ""
    assert {path.name for path in tmp_path.iterdir()} == {flash_ladder._home.BUILD.name, used.name, other.name}


@pytest.mark.parametrize("compiler, said", [
    ("/no/such/g++", r"/no/such/g\+\+ does not work as the compiler of kernels \(exit code 127\): CXX names another one"),
    ("false", r"false does not work as the compiler of kernels \(exit code 1\): CXX names another one"),
    ("full", r"full cannot write what it makes: No space left on device")])
def test_what_a_compiler_lacks_is_named(problem, tmp_path, compiler, said):
    full = tmp_path / "full"
    full.write_text('#!/bin/sh\necho "fatal error: error writing to -: No space left on device" >&2\nexit 1\n')
    full.chmod(0o755)
    got = python("import numpy, flash_ladder\nq = numpy.zeros((1, 1, 9, 64), 'float16')\nflash_ladder.attention(q, q, q)",
                 CXX=str(full) if compiler == "full" else compiler, FLASH_LADDER_CACHE=str(tmp_path / "cache"))
    assert re.search(f"CannotRun: .*{said}", got), got


def test_templates_that_another_library_has_shown_to_all(tmp_path):
    """PyTorch's libraries have std::regex's functions, of another compiler, and may be loaded for all."""
    package = Path(flash_ladder.__file__).parent
    said = subprocess.run(["nm", "-D", "--defined-only", package / "libflash_ladder.so"], stdout=subprocess.PIPE, text=True)
    functions = re.findall(r" W (\w*regex\w*)$", said.stdout, re.MULTILINE)
    assert functions
    source, library = tmp_path / "other.s", tmp_path / "libother.so"
    source.write_text("\n".join(f".globl {name}\n{name}:" for name in functions) +
                      "\nud2\n.section .note.GNU-stack,\"\",@progbits\n")
    subprocess.run(["g++", "-shared", "-o", library, source], check=True)
    said = python(f"import ctypes; ctypes.CDLL({str(library)!r}, ctypes.RTLD_GLOBAL)\n"
                  "import flash_ladder; print(len(flash_ladder.stages()))")
    assert said.split() == [str(len(flash_ladder.stages()))], said


@pytest.mark.parametrize("compiler", ["launcher g++", "clang++"])
def test_another_compiler(problem, compiler, tmp_path):
    """In a program such as ccache, and of a family with other options."""
    if not shutil.which(compiler.split()[-1]):
        pytest.skip(f"there is no {compiler}")
    launcher = tmp_path / "launcher"
    launcher.write_text('#!/bin/sh\nexec "$@"\n')
    launcher.chmod(0o755)
    np.save(tmp_path / "q.npy", problem[1])
    said = python(f"""
import numpy as np, flash_ladder
q = np.load({str(tmp_path / "q.npy")!r})
for backend in "cpu", "checked":
    print(np.abs(flash_ladder.attention(q, q, q, stage=0, backend=backend).astype(float)).sum())
import ctypes
source = {str(tmp_path / "answer.cpp")!r}
open(source, "w").write('extern "C" int answer() {{ return 42; }}')
print(ctypes.CDLL(str(flash_ladder._home.compiled(source, [], ""))).answer())
""", CXX=compiler.replace("launcher", str(launcher)), FLASH_LADDER_CACHE=str(tmp_path / "cache"))
    q = problem[1]
    expected = np.abs(flash_ladder.attention(q, q, q, stage=0).astype(float)).sum()
    assert said.split() == [str(expected)] * 2 + ["42"], said


def test_a_library_is_compiled_once_for_what_it_is_made_of(tmp_path):
    source = tmp_path / "answer.cpp"

    def compiled(answer, made_for="1"):
        return flash_ladder._home.compiled(str(source), [f"-DANSWER={answer}"], made_for)

    source.write_text('extern "C" int answer() { return ANSWER; }')
    with ThreadPoolExecutor(4) as threads:
        library, = set(threads.map(lambda _: compiled(42), range(4)))
    assert ctypes.CDLL(str(library)).answer() == 42
    written = library.stat().st_mtime_ns
    assert compiled(42) == library and library.stat().st_mtime_ns == written
    others = [compiled(43), compiled(42, "2")]
    source.write_text('extern "C" int answer() { return -ANSWER; }')
    others.append(compiled(42))
    assert [ctypes.CDLL(str(other)).answer() for other in others] == [43, 42, -42]
    assert len({library, *others}) == 4
    with pytest.raises(flash_ladder.CannotRun, match="^answer.cpp does not compile:"):
        compiled("?")
