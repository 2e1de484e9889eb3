"""The verbs of the `assay` command, one module each; `assay.cli` imports the one asked for."""
