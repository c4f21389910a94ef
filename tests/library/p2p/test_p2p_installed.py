"""The library as it is installed: what it needs, what it exports, the examples compiled from it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from build_native import configure, make, required_tools
from build_tools import find_tool
from p2p_drivers import compile_program, package_flags

from tcpx_mpi.plugin.find import bundled_dir

EXAMPLES = Path(__file__).parents[3] / "examples"
LIBRARY = Path(bundled_dir()) / "lib" / "libtcpx_p2p.so.1"
ALL_RIGHT = "8000024 bytes there and back: all right\n"


def config(*options: str) -> list[str]:
    """What `tcpx-mpi config` prints."""
    done = subprocess.run(
        [sys.executable, "-m", "tcpx_mpi", "config", *options],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def ran(program: Path, **variables: str) -> str:
    done = subprocess.run(
        [str(program)],
        env={**os.environ, "NCCL_SOCKET_IFNAME": "lo", **variables},
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def reads(tool: str, *arguments: str) -> str:
    """What a tool of binutils says."""
    path = find_tool(tool)
    if path is None:
        pytest.skip(f"needs compiler: {tool} not found")
    return subprocess.run(
        [path, *arguments], capture_output=True, text=True, check=True, timeout=60
    ).stdout


@pytest.mark.parametrize("kind", ["c", "cc"])
def test_an_example_compiled_by_pkg_config_moves_every_byte(kind: str, tmp_path: Path) -> None:
    source = EXAMPLES / f"p2p_two_processes.{kind}"
    assert ran(compile_program(source, tmp_path / "two", package_flags("--cflags", "--libs")))
    assert ran(tmp_path / "two") == ALL_RIGHT


def test_config_says_what_pkg_config_says_and_links_the_archive(tmp_path: Path) -> None:
    assert [Path(w[2:]).resolve() for w in config("--cflags")] == [
        Path(w[2:]).resolve() for w in package_flags("--cflags")
    ]
    assert config("--libs")[-1] == package_flags("--libs")[-1] == "-ltcpx_p2p"
    flags = config("--cflags", "--libs", "--static")
    program = compile_program(EXAMPLES / "p2p_two_processes.c", tmp_path / "two", flags)
    assert "tcpx_p2p" not in reads("readelf", "-d", str(program))
    assert ran(program, LD_LIBRARY_PATH=bundled_dir()) == ALL_RIGHT


def test_no_library_wants_room_in_static_tls() -> None:
    """NIXL's and PyTorch's programs have little left, and then could not load it."""
    libraries = [*Path(bundled_dir()).glob("*.so"), *Path(bundled_dir()).glob("nixl_plugins/*.so")]
    assert len(libraries) > 15
    assert not [each for each in libraries if "STATIC_TLS" in reads("readelf", "-d", str(each))]


def test_cmake_finds_both_kinds_of_the_library(tmp_path: Path) -> None:
    cmake = required_tools()
    (tmp_path / "CMakeLists.txt").write_text(f"""
        cmake_minimum_required(VERSION 3.22)
        project(user C CXX)
        find_package(tcpx_p2p 0.1 REQUIRED)
        add_executable(shared {EXAMPLES}/p2p_two_processes.cc)
        target_compile_features(shared PRIVATE cxx_std_17)
        target_link_libraries(shared PRIVATE tcpx_p2p::tcpx_p2p)
        add_executable(whole {EXAMPLES}/p2p_two_processes.c)
        target_link_libraries(whole PRIVATE tcpx_p2p::tcpx_p2p_static)
    """)
    (folder,) = config("--cmakedir")
    configure(cmake, tmp_path, tmp_path / "build", f"-Dtcpx_p2p_DIR={folder}")
    make(cmake, tmp_path / "build", "shared", "whole")
    assert ran(tmp_path / "build" / "shared") == ALL_RIGHT
    assert ran(tmp_path / "build" / "whole", LD_LIBRARY_PATH=bundled_dir()) == ALL_RIGHT


def test_it_needs_the_c_and_cpp_libraries_and_nothing_else() -> None:
    dynamic = reads("readelf", "-d", str(LIBRARY))
    needed = re.findall(r"\(NEEDED\).*\[(.*?)\]", dynamic)
    allowed = r"lib(stdc\+\+|gcc_s|c|m|dl|pthread|rt)\.so\.\d+|ld-linux.*"
    assert [name for name in needed if not re.fullmatch(allowed, name)] == []
    assert re.findall(r"\(SONAME\).*\[(.*?)\]", dynamic) == ["libtcpx_p2p.so.1"]
    assert "TEXTREL" not in dynamic
    assert "RPATH" not in dynamic
    assert "RUNPATH" not in dynamic


def test_it_exports_what_its_headers_declare_and_nothing_else() -> None:
    shown = reads("nm", "-DC", "--defined-only", str(LIBRARY)).splitlines()
    names = [re.sub(r"@@.*", "", line.split(maxsplit=2)[2]) for line in shown]
    ours = re.compile(
        r"tcpx_p2p_\w+|TCPX_P2P_1|((typeinfo|typeinfo name|vtable) for )?tcpx_p2p::.*"
    )
    assert [name for name in names if not ours.fullmatch(name)] == []
    assert not [name for name in names if "State::" in name]
    header = (Path(bundled_dir()) / "include" / "tcpx_p2p.h").read_text()
    declared = set(re.findall(r"^TCPX_P2P_C_API [^(]*?(tcpx_p2p_\w+)\(", header, re.MULTILINE))
    assert {name for name in names if name.startswith("tcpx_p2p_")} == declared
    assert len(declared) == 29


def test_config_without_a_question_is_refused() -> None:
    for options, said in (([], "nothing is asked for"), (["--static", "--cflags"], "of --libs")):
        done = subprocess.run(
            [sys.executable, "-m", "tcpx_mpi", "config", *options],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 2
        assert said in done.stderr
