"""The 2004 note at its own scale: 100,000 servers, K = 1000, K' = 3, nine in ten of them up.

scenes.py     what is simulated: each scheme under each condition, and how large that is
random_draws.py  random numbers of a block, distinct draws
placement.py  which servers a topic has, on the real ring or on an ideal one
kernel.py     one block, from random numbers to counts
counts.py     whole numbers that a block gives, which add up
theory.py     what kcast.hashring.model says of a scene
claims.py     the note's claims, one by one
results.py    added counts -> the tables "simulation" and "note"
run.py        all blocks on Spark
"""
