package https

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kemudi/kemudi/internal/client/known"
)

// cluster is what a link remembers of the cluster itself, to tell whether servers are to
// be believed (H6).
type cluster struct {
	is struct {
		sync.Mutex
		uid     string    // of the namespace kube-system; empty: it was never asked for
		seen    int64     // the last revision that any server has told of
		asked   *inquiry  // the last one
		silent  time.Time // when the first of the inquiries began that got no answer to believe; zero: the last one did
		refused error     // why the servers were not believed when they were last asked; nil: they were
	}
}

// inquiry is one question which cluster the servers serve, and at what revision.
type inquiry struct {
	began time.Time
	done  chan struct{} // closed when the rest is there
	uid   string
	rev   int64
	err   error
}

// sameAnswer is how long the answer to an inquiry counts for those who begin.
const sameAnswer = time.Second

// clusterName is what the cluster is remembered by.
const clusterName = "cluster"

// errDisbelieved says that servers answer, and are not believed.
var errDisbelieved = errors.New("the servers are not believed")

// recallCluster reads what was known of the cluster.
func (m *memory) recallCluster() error {
	s, ok, err := m.dir.Read(clusterName)
	if err != nil {
		return fmt.Errorf("%w: if the disk is in order again, remove %s, and this machine takes over what the servers say", err, m.o.Dir)
	}
	if ok && len(s.Objects) == 1 {
		m.is.uid, m.is.seen = string(s.Objects[0]), s.Rev
	}
	return nil
}

// saw notes that a server has told of a revision.
func (m *memory) saw(rev int64) {
	if m == nil {
		return
	}
	m.is.Lock()
	defer m.is.Unlock()
	m.is.seen = max(m.is.seen, rev)
}

// Until is when what is remembered counts, if no server that is believed has answered until
// then. While there is none, it is past: those who wait have waited together. Without a memory it means nothing.
func (t *Transport) Until() time.Time {
	m := t.memory
	if m == nil {
		return time.Time{}
	}
	m.is.Lock()
	defer m.is.Unlock()
	since := m.is.silent
	if since.IsZero() {
		since = time.Now()
	}
	return since.Add(m.o.Patience)
}

// Verify asks the servers whether they are of the cluster that this machine knows, and not at
// an earlier state of it (H6). Without a memory, they are believed.
func (t *Transport) Verify(ctx context.Context) error { return t.verify(ctx, time.Now()) }

// verify is Verify by an answer to what was asked after since.
func (t *Transport) verify(ctx context.Context, since time.Time) error {
	m := t.memory
	if m == nil {
		return nil
	}
	entered := time.Now()
	m.is.Lock()
	seen := m.is.seen
	m.is.Unlock()
	for {
		q, err := t.inquire(ctx, since)
		switch {
		case err != nil:
			return err
		case q.began.Before(since): // it was under way, and says nothing of who answers now
			continue
		case q.err != nil:
			return q.err
		case q.rev < seen && q.began.Before(entered): // others have heard more since it was asked
			since = entered
			continue
		}
		return m.judge(q, seen)
	}
}

// inquire returns the answer to the last inquiry, or of a new one if that was before since
// and is not under way.
func (t *Transport) inquire(ctx context.Context, since time.Time) (*inquiry, error) {
	is := &t.memory.is
	is.Lock()
	q, seen := is.asked, is.seen
	mine := q == nil
	if q != nil {
		select {
		case <-q.done:
			mine = q.began.Before(since)
		default:
		}
	}
	if mine {
		q = &inquiry{began: time.Now(), done: make(chan struct{})}
		is.asked = q
	}
	first := mine && is.silent.IsZero()
	if first {
		is.silent = q.began
	}
	is.Unlock()
	if mine {
		q.err = t.askCluster(ctx, q, seen)
		if first && ctx.Err() != nil && !errors.Is(context.Cause(ctx), context.DeadlineExceeded) { // nobody waits for it any more
			is.Lock()
			is.silent = time.Time{}
			is.Unlock()
		}
		close(q.done)
	}
	select {
	case <-q.done:
		return q, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// askCluster asks which cluster the servers serve: all that is known of a cluster by itself
// is the namespace that it begins with. The revision is the store's, and if a server is
// behind that was seen, it has been given time.
func (t *Transport) askCluster(ctx context.Context, q *inquiry, seen int64) error {
	c := &call{
		method: http.MethodGet, path: "/api/v1/namespaces", query: url.Values{"fieldSelector": {"metadata.name=kube-system"}}, accept: mediaJSON,
		verb: "list", gr: schema.GroupResource{Resource: "namespaces"},
	}
	behind := *c
	if seen > 0 {
		c.known, c.query = true, maps.Clone(c.query)
		c.query.Set("resourceVersion", fmt.Sprint(seen))
		c.query.Set("resourceVersionMatch", string(metav1.ResourceVersionMatchNotOlderThan))
	}
	a, err := t.ask(ctx, c)
	if apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) {
		a, err = t.ask(ctx, &behind)
	}
	if err != nil {
		return err
	}
	var list struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
		Items []struct {
			Metadata struct {
				UID string `json:"uid"`
			} `json:"metadata"`
		} `json:"items"`
	}
	if err := json.Unmarshal(a.body, &list); err != nil {
		return fmt.Errorf("ask which cluster the servers serve: %w", err)
	}
	if len(list.Items) != 1 || list.Items[0].Metadata.UID == "" {
		return errors.New("ask which cluster the servers serve: they have no namespace kube-system yet")
	}
	q.uid = list.Items[0].Metadata.UID
	q.rev, err = revision(list.Metadata.ResourceVersion)
	return err
}

// judge says whether servers that gave an answer are believed; seen is the last revision
// that was known when they were asked.
func (m *memory) judge(q *inquiry, seen int64) error {
	m.is.Lock()
	first := m.is.uid == ""
	var err error
	switch {
	case first:
		m.is.uid = q.uid
	case m.is.uid != q.uid:
		err = fmt.Errorf("%w: they serve another cluster than the one that this machine belongs to (the UID of the namespace kube-system is %s, and was %s). Pods stay as they are. If that cluster is gone for good, run 'kemudi reset' here and join again",
			errDisbelieved, q.uid, m.is.uid)
	case q.rev < seen:
		err = fmt.Errorf("%w: they are at revision %d, and this machine has heard of %d: their data is of an earlier time, as after a restore. Pods stay as they are. To go on with that data, stop the agent, remove %s and start it again; pods that the servers do not know are ended then",
			errDisbelieved, q.rev, seen, m.o.Dir)
	}
	changed := (err == nil) != (m.is.refused == nil)
	m.is.refused = err
	if err == nil {
		m.is.seen, m.is.silent = max(m.is.seen, q.rev), time.Time{}
	}
	m.is.Unlock()
	if err != nil && changed {
		m.link.o.Logger.Error("servers answer that must not be believed; this machine goes on as if there were none", "err", err)
		if m.o.Refused != nil {
			m.o.Refused(err)
		}
	}
	if first {
		if _, err := m.dir.Write(clusterName, known.State{Rev: q.rev, Objects: [][]byte{[]byte(q.uid)}}); err != nil {
			return err
		}
	}
	return err
}
