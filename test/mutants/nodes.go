package main

// ofNodes are bugs at the border of a node.
var ofNodes = []mutant{}
