"""Which servers there are: cluster files and what they say (`facts`), and how that changes.

`cluster` reads and writes files, `watch` sees one change. `view` says which servers a topic has, `views` how
one view follows another. `contexts` are the names that users give to clusters.
"""
