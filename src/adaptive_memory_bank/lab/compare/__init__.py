"""Comparisons: plan the trainings, run them, judge the results, show them.

- plan: `config` (what to compare), `plan` (the list of trainings)
- run: `runner` (trains what is missing), `pool` (worker processes), `worker` (one of them)
- judge: `reading` (folders of runs), `comparison` (runs sorted), `statistics`, `ceiling` (fresh memory), `verdict`
- show: `table` (the terminal), `report` (one HTML page)
"""
