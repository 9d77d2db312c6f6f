package sharding

// This file forgets what was learnt of a store's history that went back, when the
// one that stands is accepted: tokens to come may be lower.

// onHistoryReset forgets all tokens but those of what is held now, which ended with
// the history before: so they are of the one that stands. The table tells of each of
// its parts by itself, so what one has told since is taken up again.
func (c *controller) onHistoryReset() {
	c.highest = 0
	for i := range c.shards {
		s := &c.shards[i]
		s.seen = 0
		if s.term != nil && s.term.CheckAlive() {
			s.seen = s.term.Token()
		}
		rec, known := c.table.Record(i)
		s.do(func() {
			if s.router != nil {
				s.router.Forget(s.seen)
			}
		})
		if known {
			c.onRecord(s, rec, true)
		}
	}
}
