"""Measuring: speed, fidelity, labels and receipts. Imports `assay`, never `server`."""
