"""Assembly text as instructions, labels, the kernel's descriptor and the layout of its arguments.

LLVM's "User Guide for AMDGPU Backend" describes the directives: `.amdhsa_kernel` holds the descriptor, and the YAML between
`.amdgpu_metadata` and its end holds the arguments.
"""

import re
from dataclasses import dataclass, field

from amdgcn_cpu.faults import UnknownInstruction

# Directives in a function that are not instructions: debug lines, call frames, alignment; up to Triton 3.7, the descriptor.
_SILENT = re.compile(r"\.(loc|amdhsa_\w+|end_amdhsa_kernel|file|cfi_\w+|p2align|long|section|text|globl|type|size)\b")
# Instructions without a list of operands: waits and hints for the scheduler.
_DEPTHS = {"[": 1, "(": 1, "]": -1, ")": -1}
_FREE_TEXT = re.compile(r"s_(delay_alu|waitcnt|waitcnt_depctr|wait_alu|sendmsg)$")


@dataclass(frozen=True)
class Instruction:
    """An instruction as it is written.

    Args:
        line: number of its line in the text, from 1 on.
        text: the line without its comment.
        mnemonic: the first word.
        operands: the operands in order.
        modifiers: words after the operands: `offset:16` is {"offset": "16"}, `glc` is {"glc": ""}.
        second: the second half of a dual instruction (VOPD).
    """

    line: int
    text: str
    mnemonic: str
    operands: tuple[str, ...]
    modifiers: dict[str, str] = field(default_factory=dict)
    second: "Instruction | None" = None

    def unknown(self, why: str) -> UnknownInstruction:
        """Returns the error of an instruction that cannot run, with the reason and its place."""
        return UnknownInstruction(f"{why}: line {self.line}: {self.text}")


@dataclass(frozen=True)
class Argument:
    """Place of an argument in the kernel's argument memory, and LLVM's word for its kind."""

    offset: int
    size: int
    kind: str


@dataclass(frozen=True)
class Assembly:
    """The parsed text of a kernel.

    Args:
        arch: gfx942 and so on.
        wave_size: lanes of a wave.
        instructions: the instructions in order.
        labels: for each label, the index of the instruction after it.
        descriptor: values of the .amdhsa_ directives that are numbers, by name.
        arguments: arguments of the kernel, with the hidden ones.
    """

    arch: str
    wave_size: int
    instructions: tuple[Instruction, ...]
    labels: dict[str, int]
    descriptor: dict[str, int]
    arguments: tuple[Argument, ...]


def parse(text: str) -> Assembly:
    """Parses the text of one kernel.

    Raises:
        UnknownInstruction: there is an unknown directive between instructions, or there is no kernel.
    """
    target = re.search(r'\.amdgcn_target\s+"[^"]*-(gfx\w+)', text)
    kernel = re.search(r"^\s*\.amdhsa_kernel (\S+)$(.*?)\.end_amdhsa_kernel", text, re.MULTILINE | re.DOTALL)
    if not target or not kernel:
        raise UnknownInstruction("the text names no target, or describes no kernel")
    descriptor = {name: int(value, 0) for name, value in re.findall(r"\.amdhsa_(\w+) (\d\w*)$", kernel[2], re.MULTILINE)}
    wave_size = 32 if descriptor.get("wavefront_size32") else 64
    instructions, labels = _function(text, kernel[1])
    if not instructions:
        raise UnknownInstruction(f"the kernel {kernel[1]} has no instructions")
    return Assembly(target[1], wave_size, tuple(instructions), labels, descriptor, _arguments(text))


def _arguments(text: str) -> tuple[Argument, ...]:
    matches = re.findall(r"\.offset:\s+(\d+)\s+\.size:\s+(\d+)\s+\.value_kind:\s+(\S+)", text)
    return tuple(Argument(int(offset), int(size), kind) for offset, size, kind in matches)


def _function(text: str, name: str) -> tuple[list[Instruction], dict[str, int]]:
    instructions: list[Instruction] = []
    labels: dict[str, int] = {}
    inside = False
    for number, whole in enumerate(text.splitlines(), 1):
        line = whole.split(";")[0].split("//")[0].strip()
        if line == f"{name}:":
            inside = True
        elif line.startswith(".Lfunc_end"):
            inside = False
        elif inside and line.endswith(":"):
            labels[line[:-1]] = len(instructions)
        elif inside and line.startswith("."):
            if not _SILENT.match(line):
                raise UnknownInstruction(f"unknown directive: line {number}: {line}")
        elif inside and line:
            instructions.append(_instruction(number, line))
    return instructions, labels


def _instruction(number: int, line: str) -> Instruction:
    if "::" in line:
        first, second = (_instruction(number, half.strip()) for half in line.split("::"))
        return Instruction(number, line, first.mnemonic, first.operands, first.modifiers, second)
    mnemonic, _, rest = line.replace("\t", " ").partition(" ")
    if _FREE_TEXT.match(mnemonic):
        return Instruction(number, line, mnemonic, (rest.strip(),))
    *operands, last = _split(rest.strip(), ",")
    operand, *words = _split(last, " ")
    pairs = (word.partition(":") for word in words if word)
    operands += [operand] if operand else []
    return Instruction(number, line, mnemonic, tuple(operands), {key: value for key, _, value in pairs})


def _split(text: str, separator: str) -> list[str]:
    """Splits text at separators outside brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += _DEPTHS.get(character, 0)
        if character == separator and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]
