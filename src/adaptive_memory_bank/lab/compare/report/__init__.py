"""Show: the report, one self-contained page with verdict, tables, curves, mistakes and configurations."""

from adaptive_memory_bank.lab.compare.report.page import write_report

__all__ = ["write_report"]
