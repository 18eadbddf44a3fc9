"""The program that evaluates a JMESPath expression on documents, in a process of its own.

It limits its own memory and time before it reads anything, since a short expression can make a
document of any size. Its arguments are the expression, the memory in bytes, and the seconds of
processor time, for all documents and for one. It reads documents (JSON), one a line, and answers
each in a line: ``v`` and a document, ``n`` if there is none, or ``e`` and why.

It is started by its path, so it imports only libraries.
"""

from __future__ import annotations

import resource
import signal
import sys
from collections.abc import Mapping
from typing import Any

import jmespath
import orjson
from jmespath.exceptions import JMESPathError

SIZE_MAX = 8_000_000
"""Maximum bytes of a transformed document: an expression can make it larger than its input."""
VALUES_MAX = 500_000
MESSAGE_LENGTH_MAX = 300
TOO_LARGE = f"it made more than {SIZE_MAX} bytes or {VALUES_MAX} values"


class TooSlowError(Exception):
    """One document took too long."""


def is_small(document: Any) -> bool:
    """Return whether it can be encoded: references to the same list multiply when encoded."""
    left, values, stack = SIZE_MAX, VALUES_MAX, [document]
    while stack and left > 0 and values > 0:
        value = stack.pop()
        values -= 1
        if isinstance(value, str):
            left -= len(value)
        elif isinstance(value, Mapping):
            stack.extend(value.values())
        elif isinstance(value, list):
            stack.extend(value)
    return left > 0 and values > 0


def answer(expression: Any, document: bytes, seconds: float, memory: int) -> bytes:
    """Return the line that answers one document; ``expression`` is compiled."""
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        value = expression.search(orjson.loads(document))
        if value is None:
            return b"n"
        return b"v" + orjson.dumps(value) if is_small(value) else _error(TOO_LARGE)
    except MemoryError:
        return _error(f"it needs more than {memory >> 20} MiB of memory")
    except TooSlowError:
        return _error(f"it needs more than {seconds:g} s for one document")
    except (JMESPathError, ValueError) as error:
        return _error(str(error))
    except (RecursionError, TypeError, ArithmeticError) as error:
        return _error(repr(error))
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def _error(text: str) -> bytes:
    return b"e" + " ".join(text.split())[:MESSAGE_LENGTH_MAX].encode(errors="replace")


def _raise_too_slow(*_: object) -> None:
    raise TooSlowError


def main() -> None:
    """Answer every document."""
    expression, memory, seconds, seconds_each = sys.argv[1:]
    resource.setrlimit(resource.RLIMIT_AS, (int(memory), int(memory)))
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds)))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGVTALRM, _raise_too_slow)
    compiled = jmespath.compile(expression)
    for line in sys.stdin.buffer:
        sys.stdout.buffer.write(answer(compiled, line, float(seconds_each), int(memory)) + b"\n")


if __name__ == "__main__":
    main()
