package main

import "slices"

// mutants are planted one at a time.
var mutants = slices.Concat(core, ofEngine, ofRenewal, ofStores, ofObserved, ofHistory, ofSingletons, ofHandovers, ofSharding, ofShards, ofNodes, ofMail, ofInput, ofContract, ofOwn, ofRuns, ofSequencers, ofSettings, ofPostgres, ofSQLite, ofReactor)
