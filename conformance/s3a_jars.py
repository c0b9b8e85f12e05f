"""The jars of Hadoop's file system `s3a`, from Maven's registry, for the tests of `scan` on an object store.

They are those of `spark.jars.packages=org.apache.hadoop:hadoop-aws:VERSION`, but only those modules of the AWS SDK that s3a needs.
Maven downloads them once (19 MB).

    python -m conformance.s3a_jars          # download them now; the exit code is 1 if Maven fails
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Final

from conformance.maven import kept_classpath, kept_in
from metadata.common.errors import ConfigurationError

POM: Final = Path(__file__).parent / "objects" / "pom.xml"
VERSION: Final = re.findall(r"<hadoop\.version>(.*)</hadoop\.version>", POM.read_text(encoding="utf-8"))[0]
"""The version of Hadoop, which must be that of Spark's jars."""
_OF_SPARK: Final = ("netty-", "slf4j-")
"""The beginnings of the names of jars of which Spark has its own versions."""


def s3a_jars() -> list[Path]:
    """Return the jars, for `spark.jars`. Raises ConfigurationError if there is no Maven, or if Maven fails."""
    found = kept_classpath(POM, kept_in("s3a"), f"hadoop-aws {VERSION}").split(os.pathsep)
    return [Path(jar) for jar in found if not Path(jar).name.startswith(_OF_SPARK)]


def main() -> None:
    try:
        sys.stdout.write(f"hadoop-aws {VERSION}: {len(s3a_jars())} jars\n")
    except ConfigurationError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
