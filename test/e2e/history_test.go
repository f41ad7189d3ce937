package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"k8s.io/client-go/rest"

	"github.com/kemudi/kemudi/test/wait"
)

// asked is what a client asked about an object. Each value is written once in a history, so
// that it says which state of the object is meant.
type asked struct {
	path, name string
	verb       string // get, create, update, patch or delete
	old        string // of update the value that is replaced; of delete the one that is removed, or empty: any
	write      string // the value that is to be
}

// told is what came of it.
type told struct {
	read    string // empty: there is no such object
	refused string // the reason, if the object is not as it would have to be
	unknown bool
}

// absent and present say what a reason tells about an object that is not as it would have to be.
const (
	absent   = "NotFound"
	present  = "AlreadyExists"
	conflict = "Conflict"
)

// object is what an object of the API is to its clients: its value, or nothing while there is none.
var object = porcupine.Model{
	Init: func() any { return "" },
	Step: func(state, input, output any) (bool, any) {
		in, out, now := input.(asked), output.(told), state.(string)
		var can bool
		switch in.verb {
		case "get":
			return out.read == now, now
		case "create":
			can = now == ""
		case "update":
			can = now == in.old
		default:
			can = now != "" && (in.old == "" || in.old == now)
		}
		switch {
		case out.unknown && !can:
			return true, now
		case out.refused == absent:
			return now == "", now
		case out.refused == present:
			return now != "", now
		case out.refused == conflict:
			return !can, now
		}
		return can || out.unknown, in.write
	},
	Partition: func(history []porcupine.Operation) (parts [][]porcupine.Operation) {
		by := map[string][]porcupine.Operation{}
		for _, o := range history {
			in := o.Input.(asked)
			by[in.path+in.name] = append(by[in.path+in.name], o)
		}
		return slices.Collect(maps.Values(by))
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %+v", input, output) },
}

// history is what clients of all servers have asked and been told.
type history struct {
	*testing.T
	servers []*rawClient
	epoch   atomic.Int64 // new objects after each fault: what is unknown of one makes all of its reads harder to judge
	begun   time.Time
	acked   atomic.Int64 // the highest revision of a write that was answered

	mu struct {
		sync.Mutex
		list                      []porcupine.Operation
		refusals, unknown, writes int
		written                   map[string]map[int64]string // what was answered, by path and revision
		odd                       map[string]int              // answers that nobody should get
	}
}

// chaosKinds are the kinds of the objects, each with something of its own on the way: plain
// ones, those that claim addresses, those that may be made by an update, and those of no namespace.
var chaosKinds = []struct{ path, object string }{
	{"/api/v1/namespaces/default/configmaps", `{"apiVersion":"v1","kind":"ConfigMap"}`},
	{"/api/v1/namespaces/default/services", `{"apiVersion":"v1","kind":"Service","spec":{"ports":[{"port":80}]}}`},
	{"/apis/coordination.k8s.io/v1/namespaces/default/leases", `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease"}`},
	{"/apis/scheduling.k8s.io/v1/priorityclasses", `{"apiVersion":"scheduling.k8s.io/v1","kind":"PriorityClass","value":1}`},
}

// rawClient asks one server, and never tries again by itself.
type rawClient struct {
	name string
	url  string
	http *http.Client
}

// raw is a client of each server.
func (s *servers) raw(t *testing.T) (list []*rawClient) {
	t.Helper()
	for _, name := range s.names {
		config := s.configOf(name)
		config.Timeout = 0 // each request has its own
		list = append(list, &rawClient{name, config.Host, must(rest.HTTPClientFor(config))(t)})
	}
	return list
}

// reply is an answer with a status of HTTP: an object, a list or a Status.
type reply struct {
	code     int
	Reason   string                `json:"reason"`
	Message  string                `json:"message"`
	Details  struct{ Name string } `json:"details"`
	Metadata meta                  `json:"metadata"`
	Items    []struct {
		Metadata meta `json:"metadata"`
	} `json:"items"`
	raw []byte
}

type meta struct {
	Name            string            `json:"name"`
	ResourceVersion string            `json:"resourceVersion"`
	Annotations     map[string]string `json:"annotations"`
}

// value is where an object has what clients write.
const value = "chaos.test/value"

func (m *meta) revision() int64 {
	rev, _ := strconv.ParseInt(m.ResourceVersion, 10, 64)
	return rev
}

// requestPatience is how long a client waits before it does not know.
const requestPatience = 5 * time.Second

func (c *rawClient) do(ctx context.Context, method, path string, body []byte) (r reply, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestPatience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, c.url+path, bytes.NewReader(body))
	if err != nil {
		return r, err
	}
	req.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		req.Header.Set("Content-Type", "application/merge-patch+json")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return r, err
	}
	defer resp.Body.Close()
	if r.raw, err = io.ReadAll(resp.Body); err != nil {
		return r, err
	}
	r.code = resp.StatusCode
	if json.Unmarshal(r.raw, &r) != nil {
		r.Message = string(r.raw)
	}
	return r, nil
}

// withValue is an object with another name or value.
func withValue(text []byte, name, to string) []byte {
	var o map[string]any
	if json.Unmarshal(text, &o) != nil {
		return nil
	}
	m, _ := o["metadata"].(map[string]any)
	if m == nil {
		m = map[string]any{}
	}
	m["name"], m["annotations"] = name, map[string]string{value: to}
	o["metadata"] = m
	text, err := json.Marshal(o)
	if err != nil {
		return nil
	}
	return text
}

// chaosPause is the time between two questions of a client: a history that is too long is hard to
// judge.
const chaosPause = 5 * time.Millisecond

// client asks one server until ctx ends.
func (h *history) client(ctx context.Context, n int, r *rand.Rand) {
	c := h.servers[n%len(h.servers)]
	last := map[string]reply{}
	for i := 0; ctx.Err() == nil; i++ {
		kind := chaosKinds[r.IntN(len(chaosKinds))]
		in := asked{path: kind.path, name: fmt.Sprintf("e%d-%d", h.epoch.Load(), r.IntN(2))}
		has, known := last[in.path+in.name]
		to := fmt.Sprintf("%d-%d", n, i)
		before := h.acked.Load()
		var failed bool
		switch turn := r.IntN(10); {
		case turn < 2:
			in.verb, in.write = "create", to
			failed = h.write(ctx, c, n, in, func() (reply, error) {
				return c.do(ctx, http.MethodPost, in.path, withValue([]byte(kind.object), in.name, to))
			})
		case turn < 4 && known:
			in.verb, in.old, in.write = "update", has.Metadata.Annotations[value], to
			failed = h.write(ctx, c, n, in, func() (reply, error) {
				return c.do(ctx, http.MethodPut, in.path+"/"+in.name, withValue(has.raw, in.name, to))
			})
		case turn == 4:
			in.verb, in.write = "patch", to
			failed = h.write(ctx, c, n, in, func() (reply, error) {
				return c.do(ctx, http.MethodPatch, in.path+"/"+in.name, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, value, to))
			})
		case turn == 5:
			in.verb = "delete"
			var body []byte
			if known && r.IntN(2) == 0 {
				in.old = has.Metadata.Annotations[value]
				body = fmt.Appendf(nil, `{"preconditions":{"resourceVersion":%q}}`, has.Metadata.ResourceVersion)
			}
			failed = h.write(ctx, c, n, in, func() (reply, error) { return c.do(ctx, http.MethodDelete, in.path+"/"+in.name, body) })
		case turn == 6:
			failed = h.list(ctx, c, n, asked{path: in.path, verb: "get"}, before)
		default:
			in.verb = "get"
			call := h.now()
			got, err := c.do(ctx, http.MethodGet, in.path+"/"+in.name, nil)
			if delete(last, in.path+in.name); err == nil && got.code == http.StatusOK {
				last[in.path+in.name] = got
				h.note(n, in, told{read: got.Metadata.Annotations[value]}, call)
			} else if err == nil && h.missing(in, &got) {
				h.note(n, in, told{}, call)
			} else {
				failed = h.failure(ctx, in, &got, err) != nil
			}
		}
		pause := chaosPause
		if failed {
			pause *= 20
		}
		await(ctx, pause)
	}
}

func (h *history) now() time.Duration { return time.Since(h.begun) }

// missing reports whether a server says that there is no such object.
func (h *history) missing(in asked, r *reply) bool {
	return r.code == http.StatusNotFound && r.Reason == absent && r.Details.Name == in.name
}

var errRefused = errors.New("refused")

// failure is what an answer means that is not about the object: errRefused if nothing was done, else
// another error.
func (h *history) failure(ctx context.Context, in asked, r *reply, err error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.refusals++
	var op *net.OpError
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &op) && op.Op == "dial":
		return errRefused
	case err != nil:
		return err
	case r.code == http.StatusServiceUnavailable, r.code == http.StatusTooManyRequests, r.code == http.StatusInsufficientStorage:
		return errRefused
	case r.code == http.StatusGatewayTimeout:
		return errors.New(r.Message)
	}
	h.mu.odd[fmt.Sprintf("%s: %d %s: %.300s", in.verb, r.code, r.Reason, r.Message)]++
	return errors.New(r.Message)
}

// write asks for a write, and notes what came of it.
func (h *history) write(ctx context.Context, c *rawClient, n int, in asked, do func() (reply, error)) (failed bool) {
	call := h.now()
	r, err := do()
	switch {
	case err == nil && r.code < 300:
		h.answered(in, r.Metadata.revision())
		h.note(n, in, told{}, call)
	case err == nil && h.missing(in, &r):
		h.note(n, in, told{refused: absent}, call)
	case err == nil && r.code == http.StatusConflict && (r.Reason == present || r.Reason == conflict):
		h.note(n, in, told{refused: r.Reason}, call)
	default:
		if !errors.Is(h.failure(ctx, in, &r, err), errRefused) {
			h.note(n, in, told{unknown: true}, call)
		}
		return true
	}
	return false
}

// answered keeps in mind what a server has said to be written. An answer to a delete has no revision.
func (h *history) answered(in asked, rev int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.writes++
	if in.verb == "delete" {
		return
	}
	if h.mu.written[in.path] == nil {
		h.mu.written[in.path] = map[int64]string{}
	}
	h.mu.written[in.path][rev] = in.name + " " + in.write
	for {
		if highest := h.acked.Load(); rev <= highest || h.acked.CompareAndSwap(highest, rev) {
			return
		}
	}
}

// list reads all objects of a kind, which are read at one revision: no earlier than what was
// answered before.
func (h *history) list(ctx context.Context, c *rawClient, n int, in asked, before int64) (failed bool) {
	epoch, call := h.epoch.Load(), h.now()
	got, err := c.do(ctx, http.MethodGet, in.path, nil)
	if err != nil || got.code != http.StatusOK {
		return h.failure(ctx, in, &got, err) != nil
	}
	if rev := got.Metadata.revision(); rev < before {
		h.Errorf("%s: a list of %s is of revision %d, and a write at %d was answered before", c.name, in.path, rev, before)
	}
	is := map[string]string{}
	for i := range got.Items {
		m := &got.Items[i].Metadata
		if is[m.Name] = m.Annotations[value]; m.revision() > got.Metadata.revision() {
			h.Errorf("%s: a list of revision %d has %s at %d", c.name, got.Metadata.revision(), m.Name, m.revision())
		}
	}
	for _, name := range []string{fmt.Sprintf("e%d-0", epoch), fmt.Sprintf("e%d-1", epoch)} {
		in.name = name
		h.note(n, in, told{read: is[name]}, call)
	}
	return false
}

func (h *history) note(n int, in asked, out told, call time.Duration) {
	end := int64(h.now())
	h.mu.Lock()
	defer h.mu.Unlock()
	if out.unknown {
		h.mu.unknown++
		end = math.MaxInt64
	}
	h.mu.list = append(h.mu.list, porcupine.Operation{ClientId: n, Input: in, Output: out, Call: int64(call), Return: end})
}

// judge asks whether there is one order of all that was asked that explains what was told.
func (h *history) judge() {
	h.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Logf("%d asked, %d of them writes that were answered, %d unknown; %d were refused or not answered", len(h.mu.list), h.mu.writes, h.mu.unknown, h.mu.refusals)
	if h.mu.writes < 100 {
		h.Errorf("%d writes were answered, want enough to judge", h.mu.writes)
	}
	for text, times := range h.mu.odd {
		h.Errorf("%d times: %s", times, text)
	}
	switch result, info := porcupine.CheckOperationsVerbose(object, h.mu.list, wait.Patience); result {
	case porcupine.Illegal:
		path := h.ArtifactDir() + "/history.html"
		h.Errorf("no order of the writes explains what clients have read; see %s: %v", path, porcupine.VisualizePath(object, info, path))
		h.blame()
	case porcupine.Unknown:
		h.Errorf("it was not found out in time whether an order explains what clients have read")
	}
	// A lie is noticed.
	lie := slices.Clone(h.mu.list)
	for i := len(lie) - 1; i >= 0; i-- {
		if lie[i].Input.(asked).verb == "get" {
			lie[i].Output = told{read: "never written"}
			break
		}
	}
	if porcupine.CheckOperations(object, lie) {
		h.Error("a read of what was never written is found in order")
	}
}

// blame prints what was asked about the objects that no order explains, as far as that is of use.
func (h *history) blame() {
	for _, part := range object.Partition(h.mu.list) {
		if porcupine.CheckOperationsTimeout(object, part, wait.Patience) == porcupine.Ok {
			continue
		}
		slices.SortFunc(part, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
		// The shortest beginning that is not explained ends with what cannot be.
		bad := 1
		for bad < len(part) && porcupine.CheckOperations(object, part[:bad]) {
			bad++
		}
		for _, o := range part[max(0, bad-15):bad] {
			h.Logf("client %d of %s, %s to %s: %s", o.ClientId, h.servers[o.ClientId%len(h.servers)].name, time.Duration(o.Call), time.Duration(o.Return), object.DescribeOperation(o.Input, o.Output))
		}
	}
}

// watcher follows the objects of one kind, at another server whenever one lets it down.
type watcher struct {
	h    *history
	path string
	at   int // which server it asks

	mu struct {
		sync.Mutex
		rev   int64            // as far as it has come
		saw   map[int64]string // events by their revision
		blind [][2]int64       // what it was not shown: after one revision, until another
	}
}

// seen is what a watcher has been shown.
type seen struct {
	events map[int64]string
	blind  [][2]int64
}

// of says what was seen of a revision, and whether anything could be.
func (s seen) of(rev int64) (event string, could bool) {
	blind := slices.ContainsFunc(s.blind, func(b [2]int64) bool { return rev > b[0] && rev <= b[1] })
	return s.events[rev], !blind
}

// run follows until ctx ends.
func (w *watcher) run(ctx context.Context) {
	for ; ctx.Err() == nil; w.at++ {
		_ = w.follow(ctx, w.h.servers[w.at%len(w.h.servers)])
		await(ctx, chaosPause)
	}
}

func (w *watcher) come() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.rev
}

// follow goes on at a server from where it has come to.
func (w *watcher) follow(ctx context.Context, c *rawClient) error {
	query := url.Values{"watch": {"true"}, "allowWatchBookmarks": {"true"}, "resourceVersion": {strconv.FormatInt(w.come(), 10)}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+w.path+"?"+query.Encode(), nil)
	if err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	for d := json.NewDecoder(resp.Body); ; {
		if resp.StatusCode != http.StatusOK {
			var r reply
			err := d.Decode(&r)
			w.refused(ctx, c, reply{code: resp.StatusCode, Message: r.Message})
			return err
		}
		var e struct {
			Type   string
			Object struct {
				Metadata meta
				Code     int
				Message  string
			}
		}
		if err := d.Decode(&e); err != nil {
			return err
		}
		if e.Type == "ERROR" {
			w.refused(ctx, c, reply{code: e.Object.Code, Message: e.Object.Message})
			return errRefused
		}
		w.note(c, e.Type, &e.Object.Metadata)
	}
}

// refused goes on after what a server says instead of events: that it cannot now, or that it does not
// have what came next any more, as none does after all have been killed. Then it lists anew.
func (w *watcher) refused(ctx context.Context, c *rawClient, r reply) {
	switch r.code {
	case http.StatusServiceUnavailable, http.StatusTooManyRequests, http.StatusGatewayTimeout:
		return
	case http.StatusGone:
		got, err := c.do(ctx, http.MethodGet, w.path, nil)
		if err != nil || got.code != http.StatusOK {
			return
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		rev := got.Metadata.revision()
		if rev < w.mu.rev {
			w.h.Errorf("a watch of %s at %s was at %d, and is to begin anew at %d", w.path, c.name, w.mu.rev, rev)
		}
		w.mu.blind = append(w.mu.blind, [2]int64{w.mu.rev, rev})
		w.mu.rev = rev
		return
	}
	w.h.mu.Lock()
	defer w.h.mu.Unlock()
	w.h.mu.odd[fmt.Sprintf("watch of %s at %s: %d %.300s", w.path, c.name, r.code, r.Message)]++
}

func (w *watcher) note(c *rawClient, kind string, m *meta) {
	w.mu.Lock()
	defer w.mu.Unlock()
	rev := m.revision()
	switch {
	case kind == "BOOKMARK":
		if rev < w.mu.rev {
			w.h.Errorf("a watch of %s at %s has a bookmark of %d after %d", w.path, c.name, rev, w.mu.rev)
		}
		w.mu.rev = max(w.mu.rev, rev)
		return
	case rev <= w.mu.rev:
		w.h.Errorf("a watch of %s at %s goes back: %s of %s at %d after %d", w.path, c.name, kind, m.Name, rev, w.mu.rev)
	}
	w.mu.rev = rev
	w.mu.saw[rev] = kind + " " + m.Name + " " + m.Annotations[value]
}

// wantWatched waits until all watchers of a kind have come to a revision, and expects that they have
// seen the same, and all that was answered to have been written.
func (h *history) wantWatched(path string, watchers []*watcher, rev int64) {
	h.Helper()
	for _, w := range watchers {
		wait.Until(h, func() error {
			if come := w.come(); come < rev {
				return fmt.Errorf("a watch of %s has come to revision %d, want %d", path, come, rev)
			}
			return nil
		})
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	want := watchers[0].until(rev)
	for i, w := range watchers {
		saw, wrong := w.until(rev), 0
		for at, write := range h.mu.written[path] {
			if event, could := saw.of(at); could && event != "ADDED "+write && event != "MODIFIED "+write {
				if wrong++; wrong < 4 {
					h.Errorf("watch %d of %s: got %q at revision %d, where %q was written", i, path, event, at, write)
				}
			}
		}
		for _, events := range []map[int64]string{saw.events, want.events} {
			for at := range events {
				event, could := saw.of(at)
				other, could0 := want.of(at)
				if could && could0 && event != other {
					if wrong++; wrong < 8 {
						h.Errorf("watch %d of %s: got %q at revision %d, and watch 0 got %q", i, path, event, at, other)
					}
				}
			}
		}
		h.Logf("watch %d of %s: %d events, %d wrong, begun anew %d times", i, path, len(saw.events), wrong, len(saw.blind))
	}
}

// until is what it has been shown up to a revision.
func (w *watcher) until(rev int64) seen {
	w.mu.Lock()
	defer w.mu.Unlock()
	events := maps.Clone(w.mu.saw)
	maps.DeleteFunc(events, func(at int64, _ string) bool { return at > rev })
	return seen{events, slices.Clone(w.mu.blind)}
}
