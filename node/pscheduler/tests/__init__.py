"""The languages of pScheduler's tests: options, specs, participants, durations, results."""
