package memnet

import "time"

// pipe is the queue of one link. All of it is under Net.mu.
type pipe struct {
	net    *Net
	link   link
	frames []frame
	user   int         // how many of frames are user messages
	busy   bool        // a goroutine drains
	timer  *time.Timer // starts the drain when the first frame is due
}

// send queues f or says why not; the caller makes it a dead letter then.
func (me *node) send(l link, f frame) (ok bool) {
	n := me.net
	n.mu.Lock()
	defer n.mu.Unlock()
	n.stats.Sent++
	if me.dead || n.cut[l] || n.nodes[l.to] == nil {
		n.stats.Refused++
		return false
	}
	if f.watch != nil {
		me.watches[*f.watch] = struct{}{}
	}
	if !f.system && n.lose != nil && n.lose(l.from, l.to) {
		n.stats.Lost++
		return true
	}
	p := n.pipes[l]
	if p == nil {
		p = &pipe{net: n, link: l}
		n.pipes[l] = p
	}
	held := p.user
	if f.system {
		held = len(p.frames) - p.user
	}
	if held >= n.queue {
		n.stats.Overflown++
		if f.watch != nil {
			delete(me.watches, *f.watch)
		}
		return false
	}
	f.from = me
	f.due = time.Now().Add(n.delays[l])
	p.frames = append(p.frames, f)
	if !f.system {
		p.user++
	}
	p.kick()
	return true
}

// kick starts a drain unless one runs, or a timer is going to start it.
func (p *pipe) kick() {
	if p.busy || p.timer != nil || len(p.frames) == 0 || p.net.frozen[p.link.to] {
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
	if len(p.frames) == 0 || n.frozen[p.link.to] {
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
	if !f.system {
		p.user--
	}
	return f, n.nodes[p.link.to], true
}

// clear drops every frame.
func (p *pipe) clear() {
	p.frames, p.user = nil, 0
	if p.timer != nil {
		p.timer.Stop()
		p.timer = nil
	}
}
