"""Numbers in words, and charts: as SVG for reports and the demo, and with characters for terminals."""
