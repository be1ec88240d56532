"""Each package can be installed alone, from a checkout and from what is built of it."""

from __future__ import annotations

import email.message
import email.parser
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.packages.conftest import ROOT, MakeEnvironment

FOLDERS = {
    "dispatch_core": "packages/dispatch-core",
    "subclass_utils": "packages/subclass-utils",
    "guards": "packages/guards",
    "opspec": "tools/opspec",
}
SIBLINGS = {"subclass_utils": ["dispatch_core"]}
OLD_PIP, NEW_PIP = "23.2.1", None


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Path]]:
    """Build every package, and give the sdist and the wheel of each."""
    found = {}
    for module, folder in FOLDERS.items():
        out = tmp_path_factory.mktemp(module)
        command = [sys.executable, "-m", "build", "--outdir", str(out), str(ROOT / folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        (sdist,) = out.glob("*.tar.gz")
        (wheel,) = out.glob("*.whl")
        found[module] = (sdist, wheel)
    return found


def metadata_of(archive: Path) -> email.message.Message:
    """Read the metadata out of a wheel or an sdist."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            (name,) = (n for n in wheel.namelist() if n.endswith(".dist-info/METADATA"))
            text = wheel.read(name).decode()
    else:
        with tarfile.open(archive) as sdist:
            member = sdist.extractfile(f"{archive.name.removesuffix('.tar.gz')}/PKG-INFO")
            assert member is not None
            text = member.read().decode()
    return email.parser.Parser().parsestr(text)


def strangers_wheel(folder: Path, name: str, version: str) -> None:
    """Write a wheel of a higher version whose import fails, as an index might hold it."""
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    tags = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    with zipfile.ZipFile(folder / f"{module}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{module}/__init__.py", "raise ImportError('a stranger')\n")
        wheel.writestr(f"{info}/METADATA", metadata)
        wheel.writestr(f"{info}/WHEEL", tags)
        wheel.writestr(f"{info}/RECORD", "")


@pytest.mark.parametrize("module", FOLDERS)
def test_plain_install_from_the_checkout(module: str, make_environment: MakeEnvironment) -> None:
    environment = make_environment(torch=module != "opspec")
    environment.pip("install", ROOT / FOLDERS[module])
    environment.pip("check")
    environment.smoke(module)


@pytest.mark.parametrize("pip", [OLD_PIP, NEW_PIP], ids=["old-pip", "new-pip"])
def test_sibling_comes_from_the_checkout_and_not_from_an_index(
    pip: str | None, make_environment: MakeEnvironment, tmp_path: Path
) -> None:
    strangers = tmp_path / "index"
    strangers.mkdir()
    strangers_wheel(strangers, "dispatch-core", "99.0")
    environment = make_environment(torch=True, pip=pip)

    # What pip does where it looks for the name: proof that the index of this test is seen.
    environment.pip("install", "--find-links", strangers, "dispatch-core")
    assert "Version: 99.0" in environment.pip("show", "dispatch-core")
    environment.pip("uninstall", "--yes", "dispatch-core")

    said = environment.pip(
        "install", "-vv", "--find-links", strangers, ROOT / "packages/subclass-utils"
    )
    assert "99.0" not in said
    # Built now, from what lies there now, and not taken from a cache of pip.
    assert "Created wheel for dispatch-core" in said
    assert "/dispatch-core/" not in said.replace(str(ROOT / "packages/dispatch-core/"), "")
    environment.smoke("subclass_utils")


@pytest.mark.parametrize("module", FOLDERS)
@pytest.mark.parametrize("kind", ["sdist", "wheel"])
def test_install_from_what_is_built(
    module: str,
    kind: str,
    built: dict[str, tuple[Path, Path]],
    make_environment: MakeEnvironment,
) -> None:
    which = ["sdist", "wheel"].index(kind)
    environment = make_environment(torch=module != "opspec")
    needed = [built[name][1] for name in SIBLINGS.get(module, [])]
    environment.pip("install", built[module][which], *needed)
    environment.pip("check")
    environment.smoke(module)


@pytest.mark.parametrize("module", FOLDERS)
@pytest.mark.parametrize("kind", ["sdist", "wheel"])
def test_built_metadata(module: str, kind: str, built: dict[str, tuple[Path, Path]]) -> None:
    metadata = metadata_of(built[module][["sdist", "wheel"].index(kind)])
    version = metadata["Version"]
    expected = {
        "dispatch_core": {"torch>=2.13"},
        "subclass_utils": {"torch>=2.13", f"dispatch-core=={version}"},
        "guards": {"torch>=2.13"},
        "opspec": {"pyyaml>=6"},
    }
    assert set(metadata.get_all("Requires-Dist", [])) == expected[module]
    assert metadata["Requires-Python"] == ">=3.10"
    assert metadata["License-Expression"] == "BSD-3-Clause"


@pytest.mark.parametrize("module", FOLDERS)
def test_wheel_holds_every_file_of_the_package(
    module: str, built: dict[str, tuple[Path, Path]]
) -> None:
    source = ROOT / FOLDERS[module] / "src"
    with zipfile.ZipFile(built[module][1]) as wheel:
        packed = set(wheel.namelist())
    files = {
        path.relative_to(source).as_posix()
        for path in source.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {name for name in packed if ".dist-info/" not in name} == files
    assert f"{module}/py.typed" in packed
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in packed)


def test_sibling_of_another_version_is_refused(
    built: dict[str, tuple[Path, Path]], make_environment: MakeEnvironment
) -> None:
    environment = make_environment(torch=True)
    environment.pip("install", built["dispatch_core"][1], built["subclass_utils"][1])
    find = "import importlib.util as u; print(u.find_spec('dispatch_core').origin)"
    place = Path(environment.run("-c", find).strip())
    place.with_name("_version.py").write_text('__version__ = "99.0"\n')
    said = environment.run(
        "-W",
        "ignore",
        "-c",
        "try:\n    import subclass_utils\nexcept ImportError as error:\n    print(error)",
    )
    version = metadata_of(built["subclass_utils"][1])["Version"]
    assert "99.0" in said
    assert version in said
