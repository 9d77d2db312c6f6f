package main

// ofShards are bugs of what is remembered, and of nodes that join and leave.
var ofShards = []mutant{}
