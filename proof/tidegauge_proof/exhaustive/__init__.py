"""Every schedule of a small cluster: breadth-first exploration of the real core and the controller's decisions."""
