package main

// ofSharding are bugs of regions and coordinators.
var ofSharding = []mutant{}
