package main

// ofStores are bugs of stores.
var ofStores = []mutant{}
