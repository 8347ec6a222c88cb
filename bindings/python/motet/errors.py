"""What can go wrong, as exceptions that carry the place."""

from __future__ import annotations

from typing import Optional, Tuple


class MotetError(Exception):
    """An error of libmotet. Places that are unknown are None.

    `str(error)` is the text with its place in front, as the command prints it.
    """

    def __init__(
        self,
        text: str,
        *,
        status: int = 0,
        rule: Optional[str] = None,
        rank: Optional[int] = None,
        instruction: Optional[int] = None,
        microbatch: Optional[int] = None,
        file: Optional[str] = None,
        line: Optional[int] = None,
        key: Optional[str] = None,
    ) -> None:
        super().__init__(text)
        self.text = text
        self.status = status
        #: The broken rule of the verifier or of the algebra: see docs/errors/, a page each.
        self.rule = rule
        self.rank = rank
        #: Index in the rank's instruction list.
        self.instruction = instruction
        self.microbatch = microbatch
        self.file = file
        #: From 1.
        self.line = line
        #: Configuration key, region or key path at fault.
        self.key = key

    def __str__(self) -> str:
        place = []
        if self.file is not None:
            place.append(self.file)
        if self.line is not None:
            place.append(f"line {self.line}")
        if self.key is not None and self.key not in self.text:
            place.append(self.key)
        if self.rule is not None:
            place.append(f"[{self.rule}]")
        for name in ("rank", "instruction", "microbatch"):
            value = getattr(self, name)
            if value is not None:
                place.append(f"{name} {value}")
        return ": ".join(place + [self.text])


class ArgumentError(MotetError, ValueError):
    """An argument or option makes no sense."""


class ParseError(MotetError, ValueError):
    """Text or file content is malformed."""


class FileError(MotetError, OSError):
    """The operating system refused to read or write."""


class OutOfMemoryError(MotetError, MemoryError):
    """Memory could not be had."""


class LimitError(MotetError, ValueError):
    """A size or count is beyond what can be represented."""


class IllegalError(MotetError, ValueError):
    """A schedule, cut or plan is well formed but breaks the rule `rule`."""


class RefusedError(MotetError, ValueError):
    """The verifier refused a program: it breaks the rule `rule`.

    `cycle` has pairs (rank, instruction), each of which waits for the next one and the last for the first; it is
    empty unless the rule is "progress".
    """

    cycle: Tuple[Tuple[int, int], ...] = ()


class UnsupportedError(MotetError, NotImplementedError):
    """Well formed and meaningful, but not to be had."""


class FailedError(MotetError, RuntimeError):
    """A failure while running."""


BY_STATUS = {
    -1: ArgumentError,
    -2: ParseError,
    -3: FileError,
    -4: OutOfMemoryError,
    -5: LimitError,
    -6: IllegalError,
    -7: RefusedError,
    -8: UnsupportedError,
    -9: FailedError,
    -10: FailedError,
}
