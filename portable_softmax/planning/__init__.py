"""Planning: a LaunchPlan for a Problem, computed from a Device's facts and a few measured numbers; without torch and Triton."""
