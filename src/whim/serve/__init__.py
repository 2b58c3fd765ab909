"""The online service: decisions and rewards over HTTP, and a log that is the truth.

``wire`` what is said, ``encode`` contexts into vectors, ``fold`` a space as the fold of its log,
``space`` its live side, ``store`` the log on disk, ``pages`` snapshots, ``engine`` all of them.
"""
