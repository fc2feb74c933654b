"""Numbers as people read them, and charts: as SVG, for reports and the demo, and with characters."""
