package console

import (
	"bytes"
	"cmp"
	"compress/flate"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/boundary"
)

const (
	maxViewers   = 256              // streams of a handler
	chunkSize    = 64 << 10         // bytes that a viewer reads within writeTimeout, or is cut off
	writeTimeout = 10 * time.Second //
	pingInterval = 15 * time.Second // authorization is asked for as often
	figurePause  = time.Second      // between patches of a member in which figures alone changed
	figureRate   = 50_000           // bytes a second that such patches of a member have at most
	maxStreamed  = 500              // events: the newest. GET api/v1/events has the others
)

// steady is a member without its numbers, which change all the time. Tokens and times are strings.
func steady(body []byte) []byte {
	kept, quoted := make([]byte, 0, len(body)), false
	for i := 0; i < len(body); i++ {
		c := body[i]
		if c == '"' {
			quoted = !quoted
		}
		if quoted || c < '+' || c > '9' {
			kept = append(kept, c)
		}
		if c == '\\' { // the next may be a quote
			i++
		}
	}
	return kept
}

// hub follows the source while there are viewers. A viewer that reads slowly gets the latest of each
// member; nothing is queued for it.
type hub struct {
	ctx  context.Context
	src  source
	done sync.WaitGroup // of following

	mu      sync.Mutex
	viewers int
	life    context.Context // of following; nil, or done: the hub does not follow
	stop    context.CancelFunc
	members map[string]member // of the Snapshot
	version int               // of the members; 0: there are none yet
	news    chan struct{}     // closed with the next version
}

// member is a top-level member of the Snapshot as it was told last.
type member struct {
	text
	steady  []byte
	at      time.Time
	version int
}

// text is sent to many viewers.
type text struct {
	body json.RawMessage
	zip  func() []byte // deflated and flushed, once: such blocks make a stream in any order
}

func textOf(body []byte) text {
	return text{body, sync.OnceValue(func() []byte {
		var b bytes.Buffer
		z, _ := flate.NewWriter(&b, flate.BestSpeed)
		_, _ = z.Write(body)
		_ = z.Flush()
		return b.Bytes()
	})}
}

// wait returns when nothing is followed any more, once ctx has ended.
func (h *hub) wait() {
	h.mu.Lock()
	h.viewers = maxViewers // no more
	h.mu.Unlock()
	h.done.Wait()
}

// join returns for how long a new viewer may read. It returns nil if there are too many.
func (h *hub) join() context.Context {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.viewers >= maxViewers || h.ctx.Err() != nil {
		return nil
	}
	h.viewers++
	if h.life == nil || h.life.Err() != nil {
		life, end := context.WithCancel(h.ctx)
		h.life, h.stop, h.members, h.version, h.news = life, end, map[string]member{}, 0, make(chan struct{})
		h.done.Go(func() {
			defer end() // viewers come again, and try again
			h.follow(life)
		})
	}
	return h.life
}

func (h *hub) leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.viewers--; h.viewers == 0 {
		h.stop()
	}
}

// since returns the members that are newer than a version, the latest version, and what is closed with
// the next.
func (h *hub) since(version int) (news map[string]text, latest int, next <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	news = map[string]text{}
	for name, m := range h.members {
		if m.version > version {
			news[name] = m.text
		}
	}
	return news, h.version, h.news
}

func (h *hub) follow(ctx context.Context) {
	var s Snapshot
	var err error
	for last := s.At; err == nil; last = s.At {
		s, err = boundary.Get(func() (Snapshot, error) { return h.src.Snapshot(ctx, time.Time{}) })
		if err == nil && s.At.After(last) {
			h.publish(ctx, s)
		}
		err = cmp.Or(err, boundary.Pause(ctx, soonest))
	}
	if ctx.Err() == nil {
		log.Printf("holdfast console: %v", err)
	}
}

// publish tells viewers what is new in s.
func (h *hub) publish(ctx context.Context, s Snapshot) {
	s.Events = s.Events[max(0, len(s.Events)-maxStreamed):]
	s.Timeline.From, s.Timeline.To = s.Timeline.From.Truncate(time.Minute), s.Timeline.To.Truncate(time.Minute)
	whole, _ := json.Marshal(s)
	var members map[string]json.RawMessage
	_ = json.Unmarshal(whole, &members)
	h.mu.Lock()
	defer h.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	now, fresh := time.Now(), 0
	for name, body := range members {
		was, rest := h.members[name], steady(body)
		due := was.at.Add(figurePause + time.Duration(len(body))*time.Second/figureRate)
		if name != "at" && bytes.Equal(rest, was.steady) && (now.Before(due) || bytes.Equal(body, was.body)) {
			continue
		}
		h.members[name] = member{textOf(body), rest, now, h.version + 1}
		fresh++
	}
	if fresh > 1 { // than the time
		h.version++
		close(h.news)
		h.news = make(chan struct{})
	}
}

// stream serves Server-Sent Events until the viewer leaves, does not read, or may not read any more.
func (h *handler) stream(w http.ResponseWriter, r *http.Request, user string) error {
	life := h.hub.join()
	if life == nil {
		w.Header().Set("Retry-After", "10")
		return refuse("unavailable", "at most %d streams are open at a time", maxViewers)
	}
	defer h.hub.leave()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	out, zip := http.NewResponseController(w), zips(w, r)
	put := func(body []byte) (err error) {
		for part := range slices.Chunk(body, chunkSize) {
			_ = out.SetWriteDeadline(time.Now().Add(writeTimeout)) // if w can't, only the viewer is held up
			_, wrong := w.Write(part)
			err = errors.Join(err, wrong, out.Flush())
		}
		return err
	}
	if zip {
		_, _ = w.Write([]byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255}) // the head of a gzip stream
	}
	send := func(event string, members map[string]text) error {
		var all []byte
		say := func(s string) {
			if zip { // a stored block, as RFC 1951 has it
				n := uint16(len(s))
				all = append(all, 0, byte(n), byte(n>>8), byte(^n), byte(^n>>8))
			}
			all = append(all, s...)
		}
		next := "retry: 3000\nevent: " + event + "\ndata: {"
		for name, t := range members {
			say(fmt.Sprintf("%s%q:", next, name))
			if next = ","; zip {
				all = append(all, t.zip()...)
			} else {
				all = append(all, t.body...)
			}
		}
		say("}\n\n")
		if zip {
			say("") // an empty block has readers give out what there is
		}
		return put(all)
	}
	ping := time.NewTicker(pingInterval)
	defer ping.Stop()
	for version, err := 0, error(nil); err == nil; {
		news, latest, next := h.hub.since(version)
		if event := "patch"; latest > version {
			if version == 0 {
				event = "snapshot"
				may, _ := json.Marshal(h.capabilities(r, user))
				news["capabilities"] = textOf(may)
			}
			err = send(event, news)
			version = latest
		}
		select {
		case <-next:
		case now := <-ping.C:
			if _, no := h.authorize(r, Access{Action: "read"}); no != nil {
				return nil
			}
			err = errors.Join(err, send("ping", map[string]text{"at": textOf([]byte(now.UTC().Format(`"` + time.RFC3339Nano + `"`)))}))
		case <-r.Context().Done():
			return nil
		case <-life.Done():
			return nil
		}
	}
	return nil
}
