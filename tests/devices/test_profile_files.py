"""Directories of profiles: nothing in them is ignored in silence, and whatever a file holds, loading works or says why not."""

import copy
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from offline import every_candidate

from portable_probe.program import main
from portable_softmax import Device, ProfileError, profiles
from portable_softmax.devices import profile_files
from portable_softmax.devices.device import merge
from portable_softmax.devices.profiles import match_profile, read_profiles
from portable_softmax.planning.problem import FORMS, Problem
from portable_softmax.planning.reading import as_read

SHIPPED = Path(__file__).parents[2] / "device_profiles"
H200 = (SHIPPED / "nvidia" / "sm90.yaml").read_text()
MINE = H200.replace("  h200:\n    m", "  mine:\n    m")


def directory(root, **files):
    """A directory of files by name, `__` for a slash and `_` for a dot."""
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.fixture
def use(monkeypatch):
    """Makes directories those of PORTABLE_SOFTMAX_PROFILES."""
    return lambda *folders: monkeypatch.setenv("PORTABLE_SOFTMAX_PROFILES", os.pathsep.join(map(str, folders)))


def refused(words):
    return pytest.raises(ProfileError, match=words)


@pytest.mark.parametrize("name", ["nvidia__mine_yaml", "nvidia__mine_yml", "nvidia__mine_YML", "mycluster__mine_yaml"])
def test_yaml_in_a_vendors_folder_is_read(tmp_path, use, name):
    use(directory(tmp_path, **{name: MINE}))
    assert f"{name.partition('__')[0]}/mine" in profiles()


@pytest.mark.parametrize("name", ["mine_yaml", "mine_yml", "nvidia__hopper__mine_yaml"])
def test_yaml_elsewhere_is_not_ignored(tmp_path, use, name):
    use(directory(tmp_path, nvidia__mine_yaml=MINE, **{name: MINE}))
    with refused(r"/mine\.ya?ml: would be ignored here; a profile belongs in its vendor's folder, .*/<vendor>/"):
        profiles()


def test_what_is_hidden_or_no_yaml_is_no_profile(tmp_path, use):
    use(directory(tmp_path, _config_yml="a: b", _git__x_yaml="a", nvidia___mine_yaml="a", nvidia__README_md="a", README_md="a"))
    assert profiles()


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_what_is_no_regular_file_is_not_waited_for(tmp_path, use, make):
    (tmp_path / "nvidia").mkdir()
    make(tmp_path / "nvidia" / "mine.yaml")
    use(tmp_path)
    with refused(r"nvidia/mine\.yaml: cannot be read: is no regular file"):
        profiles()


def test_a_file_that_leads_nowhere(tmp_path, use):
    (tmp_path / "nvidia").mkdir()
    (tmp_path / "nvidia" / "mine.yaml").symlink_to("nowhere")
    use(tmp_path)
    with refused(r"nvidia/mine\.yaml: cannot be read: No such file"):
        profiles()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
@pytest.mark.parametrize("name", ["nvidia", "nvidia/mine.yaml"])
def test_what_may_not_be_read(tmp_path, use, name):
    use(directory(tmp_path, nvidia__mine_yaml=MINE))
    (tmp_path / name).chmod(0)
    with refused(rf"{name}: cannot be read: Permission denied"):
        profiles()
    (tmp_path / name).chmod(0o700)


@pytest.mark.parametrize("loader", [profile_files._QuickLoader, profile_files._StrictLoader])
def test_plain_numbers_are_read(loader):
    assert yaml.load("[0, 132, -5, +7, 1.5, 1.0e+3, '0132']", loader) == [0, 132, -5, 7, 1.5, 1000.0, "0132"]


def test_a_key_is_compared_with_few_others():
    compared = []

    class Key(str):
        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other):
            compared.append(self)
            return str.__eq__(self, other)

    tag = "tag:yaml.org,2002:str"
    pairs = [(yaml.ScalarNode(tag, Key(f"source{number}")), yaml.ScalarNode(tag, "x")) for number in range(500)]
    found = profile_files._StrictLoader("").construct_mapping(yaml.MappingNode("tag:yaml.org,2002:map", pairs))
    assert len(found) == 500
    assert len(compared) < 5 * 500


def test_profiles_in_a_zip(tmp_path):
    """A wheel on sys.path: the package is imported, and its profiles are no files."""
    archive = tmp_path / "package.whl"
    with zipfile.ZipFile(archive, "w") as file:
        for path in (SHIPPED.parent / "portable_softmax").rglob("*.py"):
            file.write(path, path.relative_to(SHIPPED.parent))
    code = f"import sys; sys.path.insert(0, {str(archive)!r}); import portable_softmax as p; print(p.__file__); p.profiles()"
    outcome = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert outcome.stdout.startswith(str(archive))
    assert "ProfileError: the package's own profiles are not in" in outcome.stderr
    assert "PORTABLE_SOFTMAX_PROFILES" not in outcome.stderr.splitlines()[-1]


def test_a_product_is_described_once_in_a_directory(tmp_path, use):
    use(directory(tmp_path, nvidia__a_yaml=MINE, nvidia__b_yaml=MINE))
    with refused(r"nvidia/b\.yaml: nvidia/h100-sxm is described in .*nvidia/a\.yaml too"):
        profiles()


def test_an_architecture_is_described_once_in_a_directory(tmp_path, use):
    head, _, _ = H200.partition("products:")
    use(directory(tmp_path, nvidia__a_yaml=head, nvidia__a_yml=head))
    with refused(r"nvidia/a\.yml: nvidia/a is described in .*nvidia/a\.yaml too"):
        profiles()


def test_a_product_is_not_called_like_another_file(tmp_path, use):
    use(directory(tmp_path, nvidia__mine_yaml=H200.partition("products:")[0], nvidia__z_yaml=MINE))
    with refused(r"nvidia/z\.yaml: nvidia/mine is described in .*nvidia/mine\.yaml too"):
        profiles()


def test_vendors_may_call_products_alike(tmp_path, use):
    use(directory(tmp_path, nvidia__a_yaml=MINE, mycluster__a_yaml=MINE))
    assert {"nvidia/mine", "mycluster/mine"} <= set(profiles())


def test_a_vendors_folder_is_for_one_backend(tmp_path, use):
    use(directory(tmp_path, nvidia__mine_yaml=(SHIPPED / "amd" / "gfx942.yaml").read_text()))
    with refused(r"nvidia/mine\.yaml: backend: 'hip' in the folder of a vendor with 'cuda' \(.*/nvidia/.*\.yaml\)"):
        profiles()


def test_of_several_directories_the_last_one_wins(tmp_path, use):
    one, two = (
        directory(
            tmp_path / str(count),
            nvidia__a_yaml=H200.replace("{value: 132, source: h200}", f"{{value: {count}, source: h200}}"),
        )
        for count in (1, 2)
    )
    for order, count in (((one, two), 2), ((two, one), 1), ((one, "", one), 1)):
        use(*order)
        assert match_profile("cuda", "90", "NVIDIA H200").hardware.multiprocessor_count == count
        assert Device.from_profile("nvidia/h200").hardware.multiprocessor_count == count


def test_the_shipped_directory_may_be_named_again(use):
    shipped = set(profiles())
    use(SHIPPED)
    assert set(profiles()) == shipped


def test_the_probe_says_once_what_is_wrong(tmp_path, use, capsys):
    use(directory(tmp_path, nvidia__mine_yaml=MINE.replace("warp_size: {value: 32", "warp_size: {value: 33")))
    assert main(["profiles"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err == f"ProfileError: {tmp_path}/nvidia/mine.yaml: 33 is not a power of two - at `$.hardware.warp_size`\n"


def paths(content, path=()):
    """The path of each value in a file."""
    yield path
    members = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, value in members:
        yield from paths(value, (*path, key))


FILES = sorted(SHIPPED.glob("*/*.yaml"))
CONTENTS = {path: yaml.safe_load(path.read_text()) for path in FILES}
NUMBERS = st.one_of(st.sampled_from([-1, 0, 1, 2, 3, 32, 33, 64, 1024, 2**20, 2**21, 2**63]), st.integers())
HOSTILE = st.recursive(
    st.one_of(
        NUMBERS, st.none(), st.booleans(), st.floats(), st.text(), st.dates(), st.binary(), st.sampled_from(["(", "a{1,0}"])
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.one_of(st.text(), st.integers()), inner, max_size=3)
    ),
    max_leaves=4,
)
SETTINGS = {"deadline": None, "suppress_health_check": [HealthCheck.function_scoped_fixture]}


def attempt(function, *arguments):
    """Returns (what a function returns, the words of its ProfileError); any other exception is a failure."""
    try:
        return function(*arguments), None
    except ProfileError as error:
        return None, str(error)


def load(path):
    """The devices of a file: it works, or it is said of the file why not, or of a product what it lacks."""
    found, words = attempt(read_profiles, path)
    assert words is None or re.match(re.escape(f"{path}: ") + "...", words)
    for profile in found or ():
        device, words = attempt(merge, profile, None, None)
        assert words is None or "neither the profile nor the runtime gives" in words
        if device:
            yield device


@settings(max_examples=100, **SETTINGS)
@given(data=st.data())
def test_hostile_values(tmp_path, data):
    path = tmp_path / "mutated.yaml"
    content = copy.deepcopy(CONTENTS[data.draw(st.sampled_from(FILES))])
    for _ in range(data.draw(st.integers(1, 3))):
        *way, last = data.draw(st.sampled_from([each for each in paths(content) if each]))
        holder = content
        for key in way:
            holder = holder[key]
        if data.draw(st.booleans()):
            holder[last] = data.draw(HOSTILE)
        else:
            del holder[last]
    path.write_text(yaml.dump(content, allow_unicode=data.draw(st.booleans())), encoding="utf-8")
    list(load(path))


@settings(max_examples=100, **SETTINGS)
@given(data=st.data())
def test_hostile_text(tmp_path, data):
    path = tmp_path / "mutated.yaml"
    text = data.draw(st.sampled_from(FILES)).read_bytes()
    start = data.draw(st.integers(0, len(text)))
    end = start + data.draw(st.integers(0, 20))
    patch = st.one_of(
        st.binary(max_size=10), st.sampled_from([b"!!set {a}", b"!!python/name:os.x", b"*a", b"&a", b"<<: [1]", b"2026-13-45"])
    )
    path.write_bytes(text[:start] + data.draw(patch) + text[end:])
    list(load(path))


def power_of_two(value):
    return value is None or value.bit_count() == 1


@settings(max_examples=150, **SETTINGS)
@given(data=st.data())
def test_what_loads_gives_launches_that_triton_has(tmp_path, data):
    """Launches of numbers that are all in range: programs of a power of two of warps, tiles of a power of two of rows."""
    path = tmp_path / "mutated.yaml"
    content = copy.deepcopy(CONTENTS[data.draw(st.sampled_from(FILES))])
    rows = content["launch"].get("numbers", [])
    told = [fact for group in ("hardware", "launch") for fact in content[group].values() if isinstance(fact, dict)]
    chosen = [(fact, "value") for fact in told] + [(row, key) for row in rows for key in row]
    numbers = [(holder, key) for holder, key in chosen if isinstance(holder[key], int)]
    for holder, key in data.draw(st.lists(st.sampled_from(numbers), min_size=1, max_size=3)):
        holder[key] = data.draw(st.one_of(st.integers(0, 22).map(lambda power: 2**power), st.integers(1, 5000)))
    path.write_text(yaml.dump(content))
    sizes = st.sampled_from([1, 5, 781, 4096, 50257, 2**20])
    for device in load(path):
        problem = Problem(
            data.draw(sizes),
            data.draw(sizes),
            "float32",
            "float32",
            1,
            True,
            data.draw(st.sampled_from(FORMS)),
            data.draw(st.booleans()),
        )
        for tiling in every_candidate(as_read(problem, device), device):
            assert power_of_two(tiling.num_warps), tiling
            assert power_of_two(tiling.tile_rows), tiling


@pytest.mark.parametrize("path", sorted(SHIPPED.glob("*/*.yaml")), ids=lambda path: path.stem)
def test_shipped_files_are_the_same_to_both_loaders(path):
    quick, strict = (
        yaml.load(path.read_text(), loader) for loader in (profile_files._QuickLoader, profile_files._StrictLoader)
    )
    assert quick == strict


def test_the_quick_loader_is_as_strict():
    for text, words in (
        ("a: 1\na: 2", "found the key 'a' twice"),
        ("1: a", "the key '1' is not text"),
        ("a: 0x_", "cannot be read"),
    ):
        with pytest.raises(yaml.YAMLError, match=words):
            yaml.load(text, profile_files._QuickLoader)
