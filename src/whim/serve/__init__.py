"""The online service: decisions and rewards over HTTP, and a log that is the truth.

``wire`` what is said, ``encode`` contexts into vectors, ``fold`` a space as the fold of its log,
``space`` its live side, ``store`` the log on disk, ``ids`` those it has seen, ``pages`` snapshots,
``retention`` what may go, ``behind`` folding in any process, ``engine`` all of them.

``routes`` what surrounds a handler, ``guard`` who may pass, ``handlers`` and ``personalizer`` what
routes do, ``openapi`` their document, ``host`` the engine on an event loop, ``clerk`` and ``desk``
the process that folds, ``page`` what people see, ``app`` and ``server`` all of it as a process.
"""
