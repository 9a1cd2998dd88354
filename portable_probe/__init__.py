"""Reports devices, plans and kernels: facts with their sources, launches with reasons, resources and occupancy."""
