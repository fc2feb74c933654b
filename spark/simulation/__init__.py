"""The 2004 note at its own scale: 100,000 servers, K = 1000, K' = 3, nine in ten of them up.

scene.py      what is simulated: one scheme under one condition
scenes.py     all scenes, and how large they are
chance.py     random numbers of a block, distinct draws
outages.py    which servers are up
placement.py  which servers a topic has, on the real ring or on an ideal one
block.py      one block, from random numbers to counts
kernel.py     S, CH and RCH: what became of the messages of a block
scattered.py  the same of R
counts.py     whole numbers that a block gives, which add up
theory.py     what kcast.hashring.model says of a scene
results.py    added counts -> the table "simulation"
judgement.py  that table -> the table "note": which of the note's claims hold
evidence.py   what the simulation found, for the judgement
claims_*.py   the claims, one by one
run.py        blocks on Spark
"""
