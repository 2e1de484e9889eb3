"""The hosts of repositories by what `datasets.lock` calls them."""

from __future__ import annotations

from collections.abc import Mapping

from assay.data.github import GitHub
from assay.data.modelscope import ModelScope
from assay.data.pins import RepositorySource
from assay.data.repository import Host

HOSTS: Mapping[RepositorySource, type[Host]] = {"modelscope": ModelScope, "github": GitHub}
