package main

// ofSingletons are bugs of singletons.
var ofSingletons = []mutant{}
