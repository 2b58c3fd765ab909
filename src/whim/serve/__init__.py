"""The online service: decisions and rewards over HTTP, and a log that is the source of truth.

From the ground up, each layer importing only those before it: ``wire`` (what callers send and
get) and ``settings``; ``log`` (rows on disk, one writer process); ``state`` (a space as made from
its log, and the ``Engine`` over all of them); ``jobs`` (worker processes, exports, what-ifs,
webhooks); ``http`` (routes, keys, metrics, and the ``Service`` that holds it all); ``dashboard``
(what people see); ``app`` and ``server`` (all of it as a process).
"""
