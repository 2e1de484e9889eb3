"""Campaigns: a server started, a suite asked of it, the server ended; and so on, each step for itself.

This is what stands beside the coordinator and not in it: a run never starts, stops or reconfigures a server
that is not its own. A step is two children: the server, and `assay run --suite` (or `assay resume`) of this
checkout, which knows nothing of the campaign.
"""
