package console

import (
	"bytes"
	"compress/flate"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	maxViewers   = 256                    // streams of a handler
	queueSize    = 32                     // messages that a viewer may be behind
	chunkSize    = 64 << 10               // bytes that a viewer reads within writeTimeout, or is cut off
	writeTimeout = 5 * time.Second        //
	pingInterval = 15 * time.Second       // authorization is asked for as often
	patchPause   = 500 * time.Millisecond // between patches
	linger       = 15 * time.Second       // of the hub, after the last viewer left
	figurePause  = time.Second            // between patches of a member in which figures alone changed
	figureRate   = 50_000                 // bytes a second that such patches of a member have at most
	maxStreamed  = 500                    // events: the newest. GET api/v1/events has the others
)

// message is one event of the stream. It is encoded once for all viewers.
type message struct {
	text func() []byte
	zip  func() []byte // deflated and flushed: such blocks make a stream in any order
}

func newMessage(id, event string, data any) *message {
	m := &message{text: sync.OnceValue(func() []byte {
		body, _ := json.Marshal(data)
		return fmt.Appendf(nil, "id: %s\nevent: %s\ndata: %s\n\n", id, event, body)
	})}
	m.zip = sync.OnceValue(func() []byte { return deflated(m.text()) })
	return m
}

func deflated(text []byte) []byte {
	var b bytes.Buffer
	z, _ := flate.NewWriter(&b, flate.BestSpeed)
	_, _ = z.Write(text)
	_ = z.Flush()
	return b.Bytes()
}

// hub follows the source while there are viewers.
type hub struct {
	ctx  context.Context
	src  source
	boot string
	done sync.WaitGroup // of following

	mu      sync.Mutex
	viewers map[chan *message]bool
	stop    context.CancelFunc // of following; nil: the hub does not follow
	whole   *message           // the last Snapshot; nil: none yet
	number  int
}

func newHub(ctx context.Context, src source) *hub {
	return &hub{ctx: ctx, src: src, boot: rand.Text()[:8], viewers: map[chan *message]bool{}}
}

// wait returns when nothing is followed any more, once ctx has ended.
func (h *hub) wait() {
	h.mu.Lock()
	h.endLocked()
	h.mu.Unlock()
	h.done.Wait()
}

// join returns the messages of a new viewer, which is cut off when the channel is closed. It
// returns nil if there are too many.
func (h *hub) join() chan *message {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.viewers) >= maxViewers || h.ctx.Err() != nil {
		return nil
	}
	v := make(chan *message, queueSize)
	h.viewers[v] = true
	if h.stop == nil {
		ctx, cancel := context.WithCancel(h.ctx)
		h.stop = cancel
		h.done.Go(func() { h.follow(ctx) })
	}
	if h.whole != nil {
		v <- h.whole
	}
	return v
}

func (h *hub) leave(v chan *message) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if delete(h.viewers, v); len(h.viewers) > 0 {
		return
	}
	time.AfterFunc(linger, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if len(h.viewers) == 0 {
			h.endLocked()
		}
	})
}

// endLocked ends all streams, and following the source.
func (h *hub) endLocked() {
	for v := range h.viewers {
		delete(h.viewers, v)
		close(v)
	}
	if h.stop != nil {
		h.stop()
	}
	h.stop, h.whole = nil, nil
}

func (h *hub) follow(ctx context.Context) {
	sent, last := map[string]member(nil), time.Time{}
	_ = guarded(func() error {
		return h.src.Changes(ctx, func(s Snapshot) {
			select {
			case <-time.After(patchPause - time.Since(last)):
				sent = h.publish(ctx, s, sent)
			case <-ctx.Done():
			}
			last = time.Now()
		})
	})
	h.mu.Lock()
	defer h.mu.Unlock()
	if ctx.Err() == nil {
		h.endLocked() // viewers come again, and try again
	}
}

// member is a top-level member of the Snapshot as it was sent last.
type member struct {
	value reflect.Value
	size  int
	at    time.Time
}

// publish sends s, or what changed since sent, and returns what is sent now.
func (h *hub) publish(ctx context.Context, s Snapshot, sent map[string]member) map[string]member {
	s.Capabilities = Capabilities{Actions: []string{}}
	s.Events = s.Events[max(0, len(s.Events)-maxStreamed):]
	timeless := s
	timeless.Timeline.From, timeless.Timeline.To = time.Time{}, time.Time{}
	now, patch, next := time.Now(), map[string]any{"at": s.At}, map[string]member{}
	for i := range reflect.TypeFor[Snapshot]().NumField() {
		name, _, _ := strings.Cut(reflect.TypeFor[Snapshot]().Field(i).Tag.Get("json"), ",")
		value, was := reflect.ValueOf(timeless).Field(i), sent[name]
		due := figurePause + time.Duration(was.size)*time.Second/figureRate
		switch next[name] = was; {
		case name == "at":
		case sent != nil && same(value, was.value) &&
			(now.Sub(was.at) < due || reflect.DeepEqual(value.Interface(), was.value.Interface())):
		default:
			body, _ := json.Marshal(reflect.ValueOf(s).Field(i).Interface())
			next[name], patch[name] = member{value, len(body), now}, json.RawMessage(body)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if ctx.Err() != nil || len(patch) == 1 {
		return next
	}
	h.number++
	id := fmt.Sprintf("%s-%d", h.boot, h.number)
	h.whole = newMessage(id, "snapshot", s)
	m := h.whole
	if sent != nil {
		m = newMessage(id, "patch", patch)
	}
	for v := range h.viewers {
		select {
		case v <- m:
		default: // it does not read
			delete(h.viewers, v)
			close(v)
		}
	}
	return next
}

// same reports whether two values differ in figures alone, which change all the time: in fractions,
// counts that may be unknown, and counts by name.
func same(a, b reflect.Value) bool {
	switch a.Kind() {
	case reflect.Float64:
		return true
	case reflect.Pointer:
		if a.IsNil() || b.IsNil() || a.Type().Elem().Kind() != reflect.Struct {
			return a.IsNil() == b.IsNil()
		}
		return same(a.Elem(), b.Elem())
	case reflect.Map:
		return a.Type().Elem().Kind() != reflect.String || reflect.DeepEqual(a.Interface(), b.Interface())
	case reflect.Slice:
		for i := range min(a.Len(), b.Len()) {
			if !same(a.Index(i), b.Index(i)) {
				return false
			}
		}
		return a.Len() == b.Len()
	case reflect.Struct:
		if t, ok := a.Interface().(time.Time); ok {
			return t.Equal(b.Interface().(time.Time))
		}
		for i := range a.NumField() {
			if !same(a.Field(i), b.Field(i)) {
				return false
			}
		}
		return true
	}
	return a.Equal(b)
}

// stream serves Server-Sent Events until the viewer leaves, does not read, or may not read any more.
func (h *handler) stream(w http.ResponseWriter, r *http.Request, user string) error {
	v := h.hub.join()
	if v == nil {
		w.Header().Set("Retry-After", "10")
		return refuse("unavailable", "at most %d streams are open at a time", maxViewers)
	}
	defer h.hub.leave(v)
	head, out, zip := w.Header(), http.NewResponseController(w), wantsGzip(r)
	head.Set("Content-Type", "text/event-stream")
	head.Set("X-Accel-Buffering", "no")
	head.Set("Vary", "Accept-Encoding")
	first := []byte("retry: 3000\n\n")
	if zip {
		head.Set("Content-Encoding", "gzip")
		first = append([]byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255}, deflated(first)...)
	}
	write := func(b []byte) (err error) {
		for part := range slices.Chunk(b, chunkSize) {
			_ = out.SetWriteDeadline(time.Now().Add(writeTimeout)) // if w can't, a full queue cuts it off
			_, wrong := w.Write(part)
			err = errors.Join(err, wrong, out.Flush())
		}
		return err
	}
	send := func(m *message) error {
		if zip {
			return write(m.zip())
		}
		return write(m.text())
	}
	own := func(event, name string, value any) error {
		return send(newMessage(h.hub.boot+"-0", event, map[string]any{name: value}))
	}
	may, begun := h.capabilities(r, user), false
	ping := time.NewTicker(pingInterval)
	defer ping.Stop()
	for err := write(first); err == nil; {
		select {
		case m, open := <-v:
			if !open {
				return nil
			}
			if err = send(m); err == nil && !begun {
				begun, err = true, own("patch", "capabilities", may)
			}
		case <-ping.C:
			if user, err = h.authorize(r, Access{Action: "read"}); err != nil {
				return nil
			}
			err = own("ping", "at", time.Now().UTC())
			if now := h.capabilities(r, user); begun && err == nil && !reflect.DeepEqual(now, may) {
				may, err = now, own("patch", "capabilities", now)
			}
		case <-r.Context().Done():
			return nil
		case <-h.hub.ctx.Done():
			return nil
		}
	}
	return nil
}
