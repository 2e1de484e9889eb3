"""Running a profile: plan, freeze, probe, launch, watch, record."""
