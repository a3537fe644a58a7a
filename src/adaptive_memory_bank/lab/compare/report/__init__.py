"""The report: one self-contained page with the verdict, the tables, the curves, the mistakes and the configurations."""

from adaptive_memory_bank.lab.compare.report.page import write_report

__all__ = ["write_report"]
