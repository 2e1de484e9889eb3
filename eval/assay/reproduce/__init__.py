"""Asking a server again what a run asked, and comparing its answers with those that the run recorded.

It opens sockets, so it is no part of the audit, and it writes nothing into the run. That the answers are
equal shows that this server, now, says what the record says; that they differ shows that the record, the
server or the arithmetic below it is another one, and not which. Whether the record is what the run wrote is
the audit's question.
"""
