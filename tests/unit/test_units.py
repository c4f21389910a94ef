"""Text to quantities and back."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tcpx_mpi
from tcpx_mpi.errors import UsageError
from tcpx_mpi.units import (
    GIB,
    KIB,
    MAX_BYTES,
    MIB,
    counted,
    figure,
    format_gb_per_s,
    format_size,
    format_size_option,
    format_time_us,
    gbits_per_s,
    parse_duration,
    parse_size,
)

sizes = st.integers(min_value=0, max_value=MAX_BYTES)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("17", 17),
        ("17b", 17),
        ("4K", 4 * KIB),
        ("4k", 4 * KIB),
        ("1.5M", 3 * MIB // 2),
        ("1G", GIB),
        ("2T", 2048 * GIB),
        ("64KiB", 64 * KIB),
        ("64kib", 64 * KIB),
        ("512 KiB", 512 * KIB),
        (" 1MiB ", MIB),
        (".5K", 512),
        ("0.0009765625K", 1),
        (str(MAX_BYTES), MAX_BYTES),
    ],
)
def test_sizes_are_1024_based_in_either_case(text: str, expected: int) -> None:
    assert parse_size(text) == expected


@pytest.mark.parametrize("text", ["64KB", "64MB", "64gb", "1.5Tb", "64 MB"])
def test_decimal_units_are_refused_with_both_ways_to_write_them(text: str) -> None:
    with pytest.raises(UsageError, match=r"is ambiguous: write .+ or .+iB"):
        parse_size(text)


def test_the_hint_for_an_ambiguous_size_names_the_size_itself() -> None:
    with pytest.raises(UsageError) as error:
        parse_size("64MB")
    assert str(error.value) == "64MB is ambiguous: write 64M or 64MiB (1024-based)"


@pytest.mark.parametrize(
    "text", ["", " ", "K", "-1", "+1", "1e6", "1,5M", "1.M", "4X", "4KiBs", "0x10", "nan", "٤K"]
)
def test_what_is_no_size_is_a_usage_error_of_one_line(text: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_size(text)
    assert "\n" not in str(error.value)


def test_a_fraction_of_a_byte_is_refused() -> None:
    with pytest.raises(UsageError, match="whole number of bytes"):
        parse_size("0.3K")


def test_a_size_that_does_not_fit_64_bits_is_refused() -> None:
    with pytest.raises(UsageError, match="too large"):
        parse_size(str(MAX_BYTES + 1))


@given(sizes)
def test_a_formatted_option_parses_back_to_the_same_bytes(size: int) -> None:
    assert parse_size(format_size_option(size)) == size
    assert len(format_size_option(size)) <= len(str(size))


@given(sizes)
def test_a_size_for_people_parses_back_to_within_half_a_percent(size: int) -> None:
    number, unit = format_size(size).split()
    factor = {"B": 1, "KiB": KIB, "MiB": MIB, "GiB": GIB, "TiB": 1024 * GIB}[unit]
    assert float(number) * factor == pytest.approx(size, rel=0.005)


@pytest.mark.parametrize(
    ("size", "people", "option"),
    [
        (0, "0 B", "0"),
        (17, "17 B", "17"),
        (1023, "1023 B", "1023"),
        (512 * KIB, "512 KiB", "512K"),
        (3 * MIB // 2, "1.5 MiB", "1.5M"),
        (MIB + 1, "1 MiB", "1048577"),
        (100 * GIB, "100 GiB", "100G"),
    ],
)
def test_known_sizes_as_text(size: int, people: str, option: str) -> None:
    assert format_size(size) == people
    assert format_size_option(size) == option


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 30),
        ("30s", 30),
        ("500ms", 0.5),
        ("50us", 5e-05),
        ("2m", 120),
        ("1h", 3600),
        ("0", 0),
        ("1.5 S", 1.5),
    ],
)
def test_durations_in_seconds(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "-1", "1d", "inf", "nan", "1m30s"])
def test_what_is_no_duration_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match="is not a duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("time_ns", "text"),
    [
        (0, "0.00"),
        (1_234_560, "1234.56"),
        (9_999_994, "9999.99"),
        (12_345_600, "12345.6"),
        (99_999_960, "100000"),
        (123_456_789, "123457"),
        (12_345_678_900, "12345679"),
        (math.nan, "N/A"),
        (math.inf, "N/A"),
    ],
)
def test_a_time_keeps_as_many_decimals_as_seven_characters_hold(time_ns: float, text: str) -> None:
    assert format_time_us(time_ns) == text


def test_a_rate_in_bytes_a_nanosecond_is_its_number_of_gb_per_s() -> None:
    assert format_gb_per_s(64e6 / 1e6) == "64.00"
    assert format_gb_per_s(1234.5) == "1234.5"
    assert format_gb_per_s(math.nan) == "N/A"
    assert gbits_per_s(25.0) == 200.0


def test_one_thing_is_in_the_singular() -> None:
    numbers = (counted(0, "rank"), counted(1, "rank"), counted(2000, "rank"))
    assert numbers == ("0 ranks", "1 rank", "2000 ranks")
    assert (counted(1, "launch"), counted(2, "launch")) == ("1 launch", "2 launches")


@pytest.mark.parametrize(("value", "digits", "text"), [
    (2649.4, 3, "2649"), (999.6, 3, "1000"), (999.4, 3, "999"), (12.345, 3, "12.3"),
    (10_485.76, 4, "10486"), (-2649.4, 3, "-2649"), (1e-5, 3, "1e-05"), (2e7, 6, "20000000"),
    (float("nan"), 3, "n/a"), (float("inf"), 3, "n/a"),
])  # fmt: skip
def test_a_figure_has_all_digits_before_its_point(value: float, digits: int, text: str) -> None:
    assert figure(value, digits) == text


def test_a_percentage_has_a_blank_before_its_sign_wherever_it_is_printed() -> None:
    """Python's own format of one has none."""
    package = Path(tcpx_mpi.__file__).parent
    for path in package.rglob("*.py"):
        assert not re.search(r":[^{}\"']*%\}|\d%(?![\w(])", path.read_text()), path
