package main

// ofHistory are bugs where a store's history goes back.
var ofHistory = []mutant{}
