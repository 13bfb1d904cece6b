"""Numbers as a reader wants them: digits as far as the error allows, and no further."""

import math


def plus_minus(value: float, error: float | None) -> str:
    """Return "value ± error", the error to two digits and the value to as many places.

    Examples
    --------
    >>> plus_minus(64.0926, 0.1312), plus_minus(1027.02, 4.67), plus_minus(-1.5e-5, 2.3e-6)
    ('64.09 ± 0.13', '1,027.0 ± 4.7', '-1.50e-05 ± 2.3e-06')
    >>> plus_minus(4.0, 0.0), plus_minus(72.29, None), plus_minus(float("nan"), None)
    ('4 ± 0', '72.29', 'undefined')
    """
    if math.isnan(value):
        return "undefined"
    if error is None:
        return significant(value)
    if error == 0:
        return f"{value:.6g} ± 0"
    places = 1 - math.floor(math.log10(float(f"{error:.1e}")))
    if places > 6 and value == 0:
        return f"0 ± {error:.1e}"
    if places > 6:
        magnitude = math.floor(math.log10(max(abs(value), error)))
        return f"{value:.{max(magnitude + places, 0)}e} ± {error:.1e}"
    places = max(places, 0)
    return f"{value:,.{places}f} ± {error:,.{places}f}"


def interval_text(low: float, high: float) -> str:
    """Return "low to high" with as many places as the width deserves.

    Examples
    --------
    >>> interval_text(63.7658, 64.4213), interval_text(-0.0021895, 0.0048752), interval_text(3, 3)
    ('63.77 to 64.42', '-0.0022 to 0.0049', '3 to 3')
    """
    if high == low:
        return f"{low:.6g} to {high:.6g}"
    places = 1 - math.floor(math.log10((high - low) / 2))
    if places > 6:
        return f"{low:.3e} to {high:.3e}"
    places = max(places, 0)
    return f"{low:,.{places}f} to {high:,.{places}f}"


def significant(value: float, digits: int = 4) -> str:
    """Return a number to `digits` significant digits, in powers of ten only when very small or large.

    Examples
    --------
    >>> significant(1.4880303904e-43), significant(64.0), significant(80431.4), significant(0.0)
    ('1.488e-43', '64', '80,431', '0')
    """
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    magnitude = math.floor(math.log10(abs(value)))
    if not -4 <= magnitude < 12:
        return f"{value:.{digits - 1}e}"
    text = f"{value:,.{max(digits - 1 - magnitude, 0)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
