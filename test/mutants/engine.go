package main

// ofEngine are bugs of the lease engine.
var ofEngine = []mutant{}
