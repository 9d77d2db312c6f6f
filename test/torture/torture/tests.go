package torture

// Violation is a rule that was broken.
type Violation struct {
	Rule, Text string
	// Slow: all that was wrong is that something took too long, as it does on a machine that does
	// other things, too.
	Slow bool
}

// Found counts violations that Planted brought about.
type Found struct {
	Overlaps int // I1: passes under a token, after some under a higher one
	Late     int // I3: passes after the end of a term
	Stale    int // writes that the fenced journal should have refused
}
