package memnet

import "time"

// pipe is the queue of one link between two lives. All of it is under Net.mu.
type pipe struct {
	net    *Net
	ends   ends
	wire   *wire
	frames []frame
	bytes  int         // of frames
	user   int         // how many of frames are user messages
	busy   bool        // a goroutine drains
	timer  *time.Timer // starts the drain when the first frame is due
}

// send queues f or says why not; the caller makes it a dead letter then.
func (me *node) send(e ends, f frame) (ok bool) {
	if me.comesAbout(e) { // what was sent before is lost
		tell([]notice{{me, watch{addr: e.to}}})
	}
	n := me.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if me.dead {
		n.stats.Unheard++
		return false
	}
	size, w := f.size(), n.wire(e)
	n.stats.Sent++
	n.stats.BytesSent += uint64(size)
	kind := n.kinds[f.typeName]
	n.kinds[f.typeName] = Traffic{kind.Messages + 1, kind.Bytes + size}
	if w.cut || n.nodes[e.to] == nil {
		n.stats.Refused++
		if me.links[e.to] != trying {
			me.links[e.to] = trying
			time.AfterFunc(triesFor, func() { me.tried(e.to) })
		}
		return false
	}
	me.links[e.to] = used
	if !f.system && n.lose != nil && n.lose(e.from, e.to) {
		n.stats.Lost++
		return true
	}
	p := n.pipes[e]
	if p == nil {
		p = &pipe{net: n, ends: e, wire: w}
		n.pipes[e] = p
	}
	if !p.fits(f.system) {
		n.stats.Overflown++
		return false
	}
	if f.watch != nil {
		me.watches[*f.watch] = struct{}{}
	}
	f.from = me
	p.push(f)
	return true
}

// comesAbout reports whether a message makes a link that others could not make.
func (me *node) comesAbout(e ends) bool {
	n := me.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if me.dead || me.links[e.to] != trying || n.wire(e).cut || n.nodes[e.to] == nil {
		return false
	}
	me.links[e.to] = used
	return true
}

// fits reports whether there is room. System messages have a bound of their own.
func (p *pipe) fits(system bool) bool {
	if system {
		return len(p.frames)-p.user < p.net.queue
	}
	return p.user < p.net.queue
}

// push queues f.
func (p *pipe) push(f frame) {
	size, w := f.size(), p.wire
	p.frames = append(p.frames, f)
	p.bytes += size
	if !f.system {
		p.user++
	}
	w.messages++
	w.bytes += uint64(size)
	w.peakMessages = max(w.peakMessages, len(p.frames))
	w.peakBytes = max(w.peakBytes, p.bytes)
	if !w.stalled {
		p.plan(len(p.frames) - 1)
	}
	p.kick()
}

// plan says when the frames from the i-th on leave and arrive.
func (p *pipe) plan(i int) {
	shape := p.wire.shape
	leaves, due := time.Now(), time.Time{}
	for ; i < len(p.frames); i++ {
		f := &p.frames[i]
		if i > 0 {
			leaves, due = later(leaves, p.frames[i-1].leaves), p.frames[i-1].due
		}
		if shape.Bandwidth > 0 {
			leaves = leaves.Add(time.Duration(f.size()) * time.Second / time.Duration(shape.Bandwidth))
		}
		travels := shape.Delay
		if shape.Jitter > 0 {
			travels += time.Duration(p.wire.random.Int64N(int64(shape.Jitter)))
		}
		f.leaves, f.due = leaves, later(due, leaves.Add(travels))
	}
}

// left is how many frames had left in full at a moment.
func (p *pipe) left(at time.Time) int {
	for i, f := range p.frames {
		if f.leaves.IsZero() || f.leaves.After(at) {
			return i
		}
	}
	return len(p.frames)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// again goes by a new plan: the first frame may be due at another time.
func (p *pipe) again() {
	p.disarm()
	p.kick()
}

// held reports whether nothing may arrive now.
func (p *pipe) held() bool { return p.wire.stalled || p.net.frozen[p.ends.to] }

// kick starts a drain unless one runs, or a timer is going to start it.
func (p *pipe) kick() {
	if p.busy || p.timer != nil || len(p.frames) == 0 || p.held() {
		return
	}
	p.busy = true
	go p.drain()
}

// drain delivers frames in order until none is due.
func (p *pipe) drain() {
	for {
		f, to, ok := p.next()
		if !ok {
			return
		}
		to.deliver(f)
	}
}

// next takes the first frame, or ends the drain.
func (p *pipe) next() (f frame, to *node, ok bool) {
	n := p.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(p.frames) == 0 || p.held() {
		p.busy = false
		return frame{}, nil, false
	}
	if wait := time.Until(p.frames[0].due); wait > 0 {
		p.busy = false
		var t *time.Timer
		t = time.AfterFunc(wait, func() {
			n.mu.Lock()
			defer n.mu.Unlock()
			if p.timer == t {
				p.timer = nil
				p.kick()
			}
		})
		p.timer = t
		return frame{}, nil, false
	}
	f = p.frames[0]
	p.frames[0] = frame{}
	p.frames = p.frames[1:]
	p.bytes -= f.size()
	if !f.system {
		p.user--
	}
	return f, n.nodes[p.ends.to], true
}

// clear drops every frame.
func (p *pipe) clear() {
	p.frames, p.bytes, p.user = nil, 0, 0
	p.disarm()
}

// disarm stops the timer.
func (p *pipe) disarm() {
	if p.timer != nil {
		p.timer.Stop()
		p.timer = nil
	}
}
