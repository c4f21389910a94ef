"""`tcpx_mpi.nixl`: which NIXL it takes, and where it sends it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tcpx_mpi.errors import PluginMissing, UsageError
from tcpx_mpi.nixl import Wheel, enable, plugin_dir
from tcpx_mpi.nixl.wheel import installed_wheel, require_tested


def wheel(version: str, plugins: Path | None = None) -> Wheel:
    return Wheel("nixl-cu12", version, "nixl_cu12", plugins)


@pytest.fixture
def has_wheel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """NIXL 1.5.1 with one backend of its own; the folder of it."""
    own = tmp_path / "wheel"
    own.mkdir()
    (own / "libplugin_UCX.so").touch()
    monkeypatch.setattr("tcpx_mpi.nixl.wheel.installed_wheel", lambda: wheel("1.5.1", own))
    return own


def test_the_directory_has_the_backend_and_nothing_else() -> None:
    assert [file.name for file in plugin_dir().iterdir()] == ["libplugin_TCPX.so"]


@pytest.mark.parametrize("version", ["1.0.0", "1.0.1", "1.3.2", "1.5.1", "1.5.2rc1"])
def test_versions_of_the_tested_range_are_taken(version: str) -> None:
    assert require_tested(wheel(version)).version == version


@pytest.mark.parametrize("version", ["0.9.0", "0.10.1", "1.6.0", "2.0"])
def test_a_version_outside_of_it_is_refused_with_what_to_install(version: str) -> None:
    with pytest.raises(UsageError, match=f"nixl-cu12 {version}: .*pip install 'nixl-cu12>=1.0,<1"):
        require_tested(wheel(version))


def test_without_nixl_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tcpx_mpi.nixl.wheel._WHEELS", {"no-such-nixl": "none"})
    with pytest.raises(PluginMissing, match=r"pip install 'tcpx-mpi\[nixl\]'"):
        installed_wheel()


@pytest.mark.usefixtures("has_wheel")
def test_enable_sets_what_nixl_and_the_backend_read(tmp_path: Path) -> None:
    plugin = tmp_path / "libnccl-net.so"
    plugin.touch()
    environ: dict[str, str] = {}
    assert enable(plugin, environ=environ) == plugin_dir()
    assert environ["NIXL_PLUGIN_DIR"] == str(plugin_dir())
    assert environ["TCPX_NIXL_PLUGIN"] == str(plugin)
    enable(environ=environ)  # a second time is right, too


def test_backends_of_the_wheel_are_linked_beside(has_wheel: Path) -> None:
    folder = enable(beside=["UCX"], environ={})
    links = {file.name: file.resolve() for file in folder.iterdir()}
    assert links["libplugin_UCX.so"] == has_wheel / "libplugin_UCX.so"
    assert links["libplugin_TCPX.so"].parent == plugin_dir().resolve()


@pytest.mark.parametrize("below", [".venv/lib/site-packages", ".cache/.a/site", "plain/site"])
def test_a_wheel_below_a_hidden_folder_has_its_backends_linked_beside(
    below: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / below
    # As the wheel has them: the folder of its build, hidden, and that of its libraries.
    files = [
        f"{folder}/{file}"
        for folder, plugins in ((".nixl_cu12.mesonpy.libs", "plugins"), ("nixl_cu12.libs", "nixl"))
        for file in ("libnixl.so", f"{plugins}/libplugin_UCX.so", f"{plugins}/libplugin_POSIX.so")
    ]
    info = "nixl_cu12-1.5.1.dist-info"
    for name in (*files, f"{info}/METADATA", f"{info}/RECORD"):
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).touch()
    (site / info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: nixl-cu12\nVersion: 1.5.1\n"
    )
    (site / info / "RECORD").write_text("".join(f"{name},,\n" for name in files))
    monkeypatch.syspath_prepend(str(site))
    folder = enable(beside=["UCX"], environ={})
    assert {file.name for file in folder.iterdir()} == {"libplugin_TCPX.so", "libplugin_UCX.so"}
    own = site / "nixl_cu12.libs"
    assert (folder / "libplugin_UCX.so").resolve() == own / "nixl" / "libplugin_UCX.so"
    assert (folder.parent / "libnixl.so").resolve() == own / "libnixl.so"


@pytest.mark.usefixtures("has_wheel")
@pytest.mark.parametrize(
    ("arguments", "environ", "text"),
    [
        ({}, {"NIXL_PLUGIN_DIR": "/nowhere"}, "/nowhere is no directory"),
        ({}, {"NIXL_PLUGIN_DIR": "/usr"}, "/usr has no libplugin_TCPX.so"),
        ({"beside": ["MOON"]}, {}, "has no backend MOON"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_set(
    arguments: dict[str, list[str]], environ: dict[str, str], text: str
) -> None:
    before = dict(environ)
    with pytest.raises(UsageError, match=text):
        enable(environ=environ, **arguments)
    assert environ == before


@pytest.mark.usefixtures("has_wheel")
def test_a_plugin_that_is_no_file_is_missing() -> None:
    with pytest.raises(PluginMissing, match=r"/nowhere/net\.so: no such file"):
        enable("/nowhere/net.so", environ={})
