"""Planning: a Problem and a Device give a LaunchPlan, computed from facts and a few measured numbers. Nothing here imports torch or Triton."""
