"""What goes wrong in a load test, on purpose and seeded: outages, partial views, bad legs."""
