#!/usr/bin/env python3
"""Copies a library with each `cpuid` replaced by `ud2`, for src/cpuid.rs, which answers in its place that there is no
AVX-512. Both are two bytes. Where the instructions are is read off a disassembly (binutils), since the two bytes also occur
inside of other instructions.

usage: mask_cpuid.py LIBRARY COPY
"""

import re
import subprocess
import sys

library, copy = sys.argv[1:]
data = bytearray(open(library, "rb").read())
# Sections with code: address and place in the file.
sections = []
for line in subprocess.run(["objdump", "-h", library], capture_output=True, text=True, check=True).stdout.splitlines():
    fields = line.split()
    if len(fields) == 7 and fields[0].isdigit():
        size, address, offset = (int(fields[i], 16) for i in (2, 3, 5))
        sections.append((address, size, offset))
found = 0
with subprocess.Popen(["objdump", "-d", "--no-show-raw-insn", library], stdout=subprocess.PIPE, text=True) as lines:
    for line in lines.stdout:
        match = re.match(r"\s*([0-9a-f]+):\s+cpuid\s*$", line)
        if match is None:
            continue
        at = int(match.group(1), 16)
        start, _, offset = next(s for s in sections if s[0] <= at < s[0] + s[1])
        place = offset + at - start
        assert data[place : place + 2] == b"\x0f\xa2", hex(at)
        data[place : place + 2] = b"\x0f\x0b"
        found += 1
assert found > 0, "no cpuid in the library"
open(copy, "wb").write(data)
