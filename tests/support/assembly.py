"""Accesses and loops of compiled kernels."""

import re

PTX_ACCESS = r"\b((?:ld|st)\.global[\w.:]*?(?:\.v(\d))?\.[bfu](\d+))\b"
AMD_ACCESS = r"\b((?:buffer|global|flat)_(?:load|store)_(?:d16_)?(?:hi_)?(\w+?)(?:_d16(?:_hi)?)?)\s"
AMD_BYTES = {"byte": 1, "ubyte": 1, "short": 2, "ushort": 2, "dword": 4, "dwordx2": 8, "dwordx4": 16}
# Reads that no cache of a multiprocessor answers, and writes of words.
READS = {
    "ptx": r"\bld\.volatile\.global|\batom\.\S*\.or\.",
    "amdgcn": r"_load_.*\b(glc|sc1|SCOPE_DEV|SCOPE_SYS)\b|_atomic_or.*\b(glc|sc0|TH_ATOMIC_RETURN)\b",
}
WRITES = {"ptx": r"\batom\.\S*\.exch\.", "amdgcn": r"_atomic_swap"}
BRANCH = r"\b(?:bra(?:\.uni)?|s_c?branch\w*)\s+(\S*BB\d+_\d+)"


def loops(text):
    """Returns the outermost loops of assembly: the lines from a label to the last branch back to it."""
    lines = [line.strip() for line in text.splitlines()]
    labels = {match[1]: number for number, line in enumerate(lines) if (match := re.match(r"(\S*BB\d+_\d+):", line))}
    branches = ((labels[match[1].rstrip(";")], end) for end, line in enumerate(lines) if (match := re.search(BRANCH, line)))
    spans = []
    for start, end in sorted((start, end) for start, end in branches if start <= end):
        if spans and start <= spans[-1][1]:
            start, end = spans[-1][0], max(end, spans.pop()[1])
        spans.append((start, end))
    return [lines[start : end + 1] for start, end in spans]


def polling_loops(compiled):
    """Returns the loops that read words again and write none. A kernel with such a loop has the fallback."""
    kind = "ptx" if "ptx" in compiled.asm else "amdgcn"
    reading = [loop for loop in loops(compiled.asm[kind]) if not any(re.search(WRITES[kind], line) for line in loop)]
    return [loop for loop in reading if any(re.search(READS[kind], line) for line in loop)]


def whiles(ttir):
    """(condition, body) of each loop that is not counted, in Triton's own language."""
    return re.findall(r"scf\.while (.*?)\} do \{(.*?)scf\.yield", ttir, re.DOTALL)


def is_bounded(condition, body, most):
    """True if a loop ends, whatever else holds, once a number that it raises by one is `most`."""
    counted = re.search(rf"(%\S+) = arith\.cmpi slt, (%\S+), %c{most}_i32\S* : i32", condition)
    ends = re.search(r"(%\S+) = arith\.andi (%\S+), (%\S+) : i1.*\n\s*scf\.condition\((%\S+)\)", condition)
    return bool(
        counted
        and ends
        and ends[1] == ends[4]
        and counted[1] in ends.groups()[1:3]
        and re.search(rf"arith\.addi {re.escape(counted[2])}, %c1_i32\S* : i32", body)
    )


def access_widths(asm):
    """(instruction, bytes) of every access to global memory in PTX or AMD assembly."""
    if "ptx" in asm:
        widths = [(text, int(count or 1) * int(bits) // 8) for text, count, bits in re.findall(PTX_ACCESS, asm["ptx"])]
    else:
        accesses = re.findall(AMD_ACCESS, asm["amdgcn"])
        widths = [(text, AMD_BYTES.get(kind) or int(re.sub(r"\D", "", kind)) // 8) for text, kind in accesses]
    assert widths, "a softmax reads and writes global memory"
    return widths
