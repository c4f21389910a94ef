"""`tcpx-mpi config`: what a compiler needs for the library of sessions, as pkg-config says it."""

from __future__ import annotations

import os
import shlex

import click

from tcpx_mpi.errors import PluginMissing, UsageError
from tcpx_mpi.plugin.find import bundled_dir

#: What the archive needs beside itself.
_OF_THE_ARCHIVE = ("-lstdc++", "-lm", "-pthread", "-ldl")


@click.command("config")
@click.option("--cflags", is_flag=True, help="Print the compiler's options.")
@click.option("--libs", is_flag=True, help="Print the linker's options.")
@click.option("--static", is_flag=True, help="Of the archive, for --libs.")
@click.option("--cmakedir", is_flag=True, help="Print the folder for CMake's tcpx_p2p_DIR.")
def command(cflags: bool, libs: bool, static: bool, cmakedir: bool) -> int:
    """Prints, on one line, what a program in C or C++ is compiled with to use libtcpx_p2p.

    The library, its headers, a CMake package and a pkg-config file are installed with this one.
    """
    if not (cflags or libs or cmakedir):
        raise UsageError("nothing is asked for: give --cflags, --libs or --cmakedir")
    if static and not libs:
        raise UsageError("--static is of --libs: give both")
    include, library = (os.path.join(bundled_dir(), name) for name in ("include", "lib"))
    if not os.path.exists(os.path.join(include, "tcpx_p2p.h")):
        raise PluginMissing(f"tcpx_p2p.h is not in {include}: install tcpx-mpi anew")
    words: list[str] = []
    if cflags:
        words.append(f"-I{include}")
    if libs and static:
        words += [os.path.join(library, "libtcpx_p2p.a"), *_OF_THE_ARCHIVE]
    elif libs:
        words += [f"-L{library}", f"-Wl,-rpath,{library}", "-ltcpx_p2p"]
    if cmakedir:
        words.append(os.path.join(library, "cmake", "tcpx_p2p"))
    click.echo(shlex.join(words))
    return 0
