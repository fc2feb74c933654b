"""A cluster that goes on for hours, with all that befalls it: `python -m tests.endurance`. Is memory flat?"""
