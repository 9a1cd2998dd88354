"""Planning: a Problem and a Device give a LaunchPlan, by a profile's launch rules. Nothing here imports torch or Triton."""
