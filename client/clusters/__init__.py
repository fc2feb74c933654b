"""Which servers there are: cluster files and what they say, the view of them, and how views change.

`cluster` reads and writes files, `view` says which servers a topic has, `views` how one view follows another.
"""
