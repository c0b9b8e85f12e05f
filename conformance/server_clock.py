"""A wrong clock for a ZooKeeper server. The server's class for the time, `org.apache.zookeeper.common.Time`, is replaced by a class
that adds the value of a system property to the wall time. Elapsed time stays right, as on a machine with a wrong clock.

This module writes the bytes of the class, because a machine with Spark may have no Java compiler and no library that fakes a clock.
"""

from __future__ import annotations

import struct
from pathlib import Path

PROPERTY = "txnsegment.clock.shift"
"""The system property: the shift of the wall time in milliseconds."""
_TIME = "org/apache/zookeeper/common/Time"
_PUBLIC, _STATIC, _SUPER = 0x0001, 0x0008, 0x0020
_JAVA_5 = 49
"""Version of the class file format. Classes of this version need no stack maps, and every Java loads them."""


class _Pool:
    """The constant pool of a class file. Each method but `bytes` returns the number of an entry, and adds the entry if the pool
    does not have it yet. The first number is 1.
    """

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}
        self._data = b""
        self._next = 1

    def add(self, entry: bytes, slots: int = 1) -> int:
        if entry not in self._numbers:
            self._numbers[entry] = self._next
            self._data += entry
            self._next += slots
        return self._numbers[entry]

    def text(self, value: str) -> int:
        return self.add(struct.pack(">BH", 1, len(value)) + value.encode())

    def type(self, name: str) -> int:
        return self.add(struct.pack(">BH", 7, self.text(name)))

    def string(self, value: str) -> int:
        return self.add(struct.pack(">BH", 8, self.text(value)))

    def long(self, value: int) -> int:
        return self.add(struct.pack(">Bq", 5, value), slots=2)

    def method(self, owner: str, name: str, signature: str) -> int:
        named = self.add(struct.pack(">BHH", 12, self.text(name), self.text(signature)))
        return self.add(struct.pack(">BHH", 10, self.type(owner), named))

    def bytes(self) -> bytes:
        return struct.pack(">H", self._next) + self._data


def _time_class() -> bytes:
    """Return the bytes of the class file. The class has the three methods of the original."""
    pool = _Pool()

    def call(code: int, owner: str, name: str, signature: str) -> bytes:
        return struct.pack(">BH", code, pool.method(owner, name, signature))

    static, virtual, special = 0xB8, 0xB6, 0xB7
    elapsed = call(static, "java/lang/System", "nanoTime", "()J")
    elapsed += struct.pack(">BH", 0x14, pool.long(1_000_000)) + b"\x6d"  # ldc2_w, ldiv
    wall = call(static, "java/lang/System", "currentTimeMillis", "()J")
    wall += struct.pack(">BH", 0x13, pool.string(PROPERTY)) + b"\x09"  # ldc_w, lconst_0
    wall += call(static, "java/lang/Long", "getLong", "(Ljava/lang/String;J)Ljava/lang/Long;")
    wall += call(virtual, "java/lang/Long", "longValue", "()J") + b"\x61"  # ladd
    date = struct.pack(">BH", 0xBB, pool.type("java/util/Date")) + b"\x59"  # new, dup
    date += call(static, _TIME, "currentWallTime", "()J") + b"\x1e\x61"  # lload_0, ladd
    date += call(static, _TIME, "currentElapsedTime", "()J") + b"\x65"  # lsub
    date += call(special, "java/util/Date", "<init>", "(J)V")
    methods = [
        ("currentElapsedTime", "()J", elapsed + b"\xad", 0),  # lreturn
        ("currentWallTime", "()J", wall + b"\xad", 0),
        ("elapsedTimeToDate", "(J)Ljava/util/Date;", date + b"\xb0", 2),  # areturn
    ]
    this, above, attribute = pool.type(_TIME), pool.type("java/lang/Object"), pool.text("Code")
    body = b""
    for name, signature, code, arguments in methods:
        held = struct.pack(">HHI", 8, arguments, len(code)) + code + struct.pack(">HH", 0, 0)
        body += struct.pack(">HHHH", _PUBLIC | _STATIC, pool.text(name), pool.text(signature), 1)
        body += struct.pack(">HI", attribute, len(held)) + held
    head = struct.pack(">IHH", 0xCAFEBABE, 0, _JAVA_5) + pool.bytes()
    head += struct.pack(">HHHHHH", _PUBLIC | _SUPER, this, above, 0, 0, len(methods))
    return head + body + struct.pack(">H", 0)


def shifted(folder: Path, seconds: float) -> tuple[str, str]:
    """Write the class into `folder`. Return the entry that must come first in the server's class path, and the option for its Java.
    `seconds`: the error of the clock.
    """
    file = folder / "clock" / f"{_TIME}.class"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(_time_class())
    return str(folder / "clock"), f"-D{PROPERTY}={round(seconds * 1000)}"
