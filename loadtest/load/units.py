"""Times and sizes as people read them."""

_BYTE_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def duration_text(duration_s: float) -> str:
    """`42 s`, `12 min 5 s`, `3 h 20 min`."""
    whole = round(duration_s)
    if whole < 60:
        return f"{whole} s"
    minutes, seconds = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {seconds} s"
    return f"{minutes // 60} h {minutes % 60} min"


def size_text(size_bytes: float) -> str:
    """`850 B`, `1.2 MB`."""
    for unit in _BYTE_UNITS:
        if size_bytes < 1000 or unit == _BYTE_UNITS[-1]:
            break
        size_bytes /= 1000
    return f"{size_bytes:.0f} {unit}" if unit == "B" or size_bytes >= 100 else f"{size_bytes:.1f} {unit}"


def ms_text(value_ms: float) -> str:
    """Three significant figures, in milliseconds: `0.412`, `12.3`, `1,240`."""
    if value_ms >= 100:
        return f"{value_ms:,.0f}"
    return f"{value_ms:.1f}" if value_ms >= 10 else f"{value_ms:.2f}" if value_ms >= 1 else f"{value_ms:.3f}"
