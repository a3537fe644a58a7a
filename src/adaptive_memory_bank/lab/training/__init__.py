"""Trainers on Lightning: `train.run(config)` trains any of the tasks in `tasks.TASKS`."""
