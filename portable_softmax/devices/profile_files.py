"""Files of a directory of profiles, read strictly. Each complaint names the file, the key or line, and the reason."""

import difflib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec
import yaml

from portable_softmax.devices.file_schema import Extension, Product, ProfileFile
from portable_softmax.devices.policy import Cost, Grid, LaunchPolicy
from portable_softmax.devices.schema import Fact, HardwareFacts, Source
from portable_softmax.errors import ProfileError

_PACKAGED = Path(__file__).parents[1] / "device_profiles"  # place of the profiles in a wheel
SHIPPED = _PACKAGED if _PACKAGED.is_dir() else Path(__file__).parents[2] / "device_profiles"
SUFFIXES = (".yaml", ".yml")
NUMBER = re.compile(r"[-+]?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")  # numbers that YAML and people read alike
PLACES = {  # what a complaint calls each group of keys
    "a file": ProfileFile,
    "a file that extends another": Extension,
    "`hardware`": HardwareFacts,
    "`launch`": LaunchPolicy,
    "`cost`": Cost,
    "a product": Product,
    "a source": Source,
    "a fact": Fact,
}
FIELDS = sorted({field for struct in (*PLACES.values(), Grid) for field in struct.__struct_fields__})
CHOICES = {
    field: get_args(kind)
    for struct in (Source, Grid)
    for field, hint in get_type_hints(struct).items()
    for kind in (hint, *get_args(hint))
    if get_origin(kind) is Literal
}
NAMED = {"sources": Source, "products": Product}  # mappings whose keys msgspec leaves out of a path


def profile_files(directory: Path) -> Iterator[Path]:
    """Yields the files DIR/<vendor>/NAME.yaml (or .yml), sorted. Hidden files and folders are skipped.

    Raises:
        ProfileError: the directory or a folder in it cannot be read, or there is YAML elsewhere in it.
    """
    for vendor in _entries(directory):
        if _is_yaml(vendor):
            raise _misplaced(vendor, directory)
        for entry in _entries(vendor) if vendor.is_dir() else ():
            if _is_yaml(entry):
                yield entry
            elif entry.is_dir() and (deeper := next(filter(_is_yaml, _entries(entry)), None)):
                raise _misplaced(deeper, directory)


def read_file(path: Path) -> ProfileFile | Extension:
    """Reads one file and checks each value by itself. Returns an Extension if the file names what it extends.

    Raises:
        ProfileError: the file cannot be read, is empty, is not YAML of plain data, or a value is missing or out of range.
    """
    try:
        if path.exists() and not path.is_file():  # a pipe would be waited for without end
            raise ProfileError(f"{path}: cannot be read: is no regular file")
        content = yaml.load(path.read_text(encoding="utf-8"), _QuickLoader if SHIPPED in path.parents else _StrictLoader)
    except OSError as error:
        raise ProfileError(f"{path}: cannot be read: {error.strerror}") from error
    except RecursionError as error:
        raise ProfileError(f"{path}: is nested too deeply") from error
    except yaml.MarkedYAMLError as error:
        line = "" if error.problem_mark is None else f"line {error.problem_mark.line + 1}: "
        raise ProfileError(f"{path}: {line}{error.problem}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ProfileError(f"{path}: {error}") from error
    if content is None:
        raise ProfileError(f"{path}: is empty")
    try:
        if isinstance(content, dict) and "extends" in content:
            return msgspec.convert(content, Extension)
        return msgspec.convert(content, ProfileFile)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:  # half of a surrogate pair, which a YAML escape can make
        raise ProfileError(f"{path}: {_explained(content, str(error))}") from error


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    except OSError as error:
        raise ProfileError(f"{folder}: cannot be read: {error.strerror}") from error


def _is_yaml(path: Path) -> bool:
    return path.suffix.lower() in SUFFIXES


def _misplaced(path: Path, directory: Path) -> ProfileError:
    return ProfileError(f"{path}: would be ignored here; a profile belongs in its vendor's folder, {directory}/<vendor>/")


def _explained(content: Any, complaint: str) -> str:
    """Returns msgspec's complaint with the name of the product or source, and with a hint if text was read as a number."""
    if "[...]" in complaint:
        complaint = next(_inside(content), complaint)
    if re.match(r"Expected `str`, got `(int|float|bool|date|datetime)`", complaint):
        complaint += "; in quotes it is text"
    if re.match(r"Expected `object`, got `(int|float)`", complaint) and ".hardware." in complaint:
        complaint += "; a fact is {value: ..., source: NAME}"
    if field := re.match(r"Object contains unknown field `(.+?)`", complaint):
        near = difflib.get_close_matches(field[1], FIELDS, 1)
        if near == [field[1]]:
            places = [place for place, struct in PLACES.items() if field[1] in struct.__struct_fields__]
            complaint += f"; it is a key of {' and of '.join(places)}"
        elif near:
            complaint += f"; did you mean {near[0]}?"
    if (key := re.search(r"^Invalid enum value.*?(\w+)(\[\.\.\.\])?`$", complaint)) and key[1] in CHOICES:
        complaint += f"; it is one of {', '.join(map(str, CHOICES[key[1]]))}"
    return complaint


def _inside(content: Mapping[str, Any]) -> Iterator[str]:
    """Yields complaints about each product and source by itself. msgspec calls all of them `$.products[...]`."""
    for group, kind in NAMED.items():
        members = content.get(group)
        for name, value in members.items() if isinstance(members, dict) else ():
            try:
                msgspec.convert(value, kind)
            except (msgspec.ValidationError, UnicodeEncodeError) as error:
                words, _, inner = str(error).partition(" - at `$")
                yield f"{words} - at `$.{group}.{name}{inner.removesuffix('`')}`"


class _Strict:
    """Builds plain data with text as keys, and refuses duplicate keys."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Turns exceptions that yaml does not catch, for values like 2026-13-45, 0x_ or `!!bool maybe`, into errors of yaml.

        Refuses numbers that YAML 1.1 does not read as they look: 0132 as octal, 1:30 in sixties.
        """
        try:
            found = super().construct_object(node, deep)  # type: ignore[misc]
        except (ValueError, LookupError, AttributeError, OverflowError) as error:
            raise _error(f"cannot be read as {node.tag.rpartition(':')[2]}: {error}", node) from error
        if type(found) in (int, float) and not NUMBER.fullmatch(node.value):
            raise _error(f"{node.value!r} is {found} to YAML; write the number in decimal digits, or text in quotes", node)
        return found

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Refuses keys that are not text, and duplicate keys: yaml would silently let the second win."""
        keys = [key for key, _ in node.value] if isinstance(node, yaml.MappingNode) else []
        met: set[str] = set()
        for key in keys:
            if key.tag not in ("tag:yaml.org,2002:str", "tag:yaml.org,2002:merge"):
                raise _error(f"the key {key.value!r} is not text to YAML; put it in quotes", key)
            if key.value in met:
                raise _error(f"found the key {key.value!r} twice", key)
            met.add(key.value)
        return super().construct_mapping(node, deep)  # type: ignore[misc,no-any-return]


class _StrictLoader(_Strict, yaml.SafeLoader):
    """Reads any file."""


class _QuickLoader(_Strict, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Reads this package's own files by libyaml. It is faster, but deeply nested lists overflow its stack."""


def _error(problem: str, node: yaml.Node) -> yaml.constructor.ConstructorError:
    return yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
