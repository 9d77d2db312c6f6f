package lease

// heard is what a follower was told of names.
type heard struct {
	stands map[string]mark
	// The highest tokens of what is gone: an older history shows itself when a name
	// comes again under one that is not above. Names that are never held again are
	// forgotten, a generation of goneAtOnce at a time.
	gone, goneBefore map[string]mark
}

// mark is one ownership of a name, without its name. The zero mark is what is no record.
type mark struct {
	token Token
	nonce uint64
}

func markOf(r Record) mark { return mark{r.Token, r.Nonce} }

// goneAtOnce bounds a generation of what is gone: of the latest so many names that were
// deleted, and at most twice as many, the tokens are remembered.
const goneAtOnce = 4096

func (d *heard) forget() { *d = heard{stands: map[string]mark{}} }

// last is the latest ownership of a name that was told of; zero if none is remembered.
func (d *heard) last(name string) mark {
	for _, of := range []map[string]mark{d.stands, d.gone, d.goneBefore} {
		if m := of[name]; m.token != 0 {
			return m
		}
	}
	return mark{}
}

func (d *heard) put(name string, m mark) {
	if m.token == 0 { // what is no record says nothing of tokens
		d.bury(name, d.last(name))
	}
	d.stands[name] = m
}

func (d *heard) delete(name string) {
	d.bury(name, d.stands[name])
	delete(d.stands, name)
}

func (d *heard) bury(name string, m mark) {
	if m.token == 0 {
		return
	}
	if len(d.gone) >= goneAtOnce {
		d.gone, d.goneBefore = nil, d.gone
	}
	if d.gone == nil {
		d.gone = map[string]mark{}
	}
	d.gone[name] = m
}
