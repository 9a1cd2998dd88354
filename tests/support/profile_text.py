"""A small profile, and what is changed in it: the tests of profiles' own rules need none of the shipped ones."""

import copy

import yaml

from portable_softmax.devices.profiles import read_profiles

TEXT = """\
backend: cuda
architecture: Example
arch: "90"
extends: nvidia/estimated
multiprocessor: SM
first_triton: 3.2.0
sources: {mine: {verified: measured, title: one card on 2026-11-21}}
hardware:
  warp_size: {value: 32, source: mine}
  partitions_per_multiprocessor: {value: 4, source: mine}
  registers_per_multiprocessor: {value: 65536, source: mine}
  register_granule: {value: 8, source: mine}
  max_registers_per_thread: {value: 255, source: mine}
  max_threads_per_program: {value: 1024, source: mine}
  max_warps_per_multiprocessor: {value: 64, source: mine}
  max_programs_per_multiprocessor: {value: 32, source: mine}
  shared_memory_per_program_max: {value: 4096, source: mine}
  shared_memory_per_multiprocessor: {value: 8192, source: mine}
  shared_memory_granule: {value: 128, source: mine}
launch:
  polls: {value: 256, source: mine}
products:
  card:
    matches: [NVIDIA Card]
    hardware: {multiprocessor_count: {value: 132, source: mine}}
"""
MISSING = object()


def edited(*changes):
    """Returns the text with other values: changes are a path with dots, or a list's index, and a value, or MISSING."""
    content = copy.deepcopy(yaml.safe_load(TEXT))
    for path, value in zip(changes[::2], changes[1::2], strict=True):
        *way, last = path.split(".")
        holder = content
        for key in way:
            holder = holder.setdefault(key, {}) if isinstance(holder, dict) else holder[int(key)]
        if value is MISSING:
            del holder[last]
        else:
            holder[int(last) if isinstance(holder, list) else last] = value
    return yaml.dump(content, sort_keys=False)


def fact(value, source="mine"):
    """Returns a fact as a file holds it."""
    return {"value": value, "source": source}


def written(folder, text, name="nvidia/example.yaml"):
    """Returns the path of a file with that text."""
    path = folder / name
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(text)
    return path


def read(folder, text):
    """Returns the profiles of a file with that text."""
    return read_profiles([written(folder, text)])
