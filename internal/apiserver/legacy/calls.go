package legacy

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/task"
)

// Where the calls are kept.
const (
	Prefix = "kemudi-legacy-calls-" // of the names of ConfigMaps in kube-system; the server's follows
	Key    = "calls"                // of their data: a list of calls in JSON
	Label  = "kemudi.io/legacy-calls"
)

// Bounds of what is kept (L2), and how long it waits to be written (L3).
const (
	maxCallers = 500
	maxText    = 200 // of an agent or a user's name
	soon       = 5 * time.Second
	seldom     = 15 * time.Minute
	writeTime  = 5 * time.Second
)

// Caller is who calls what, as far as calls are told apart.
type Caller struct {
	Group       string `json:"group"`
	Version     string `json:"version"`
	Resource    string `json:"resource"`
	Subresource string `json:"subresource,omitempty"`
	Agent       string `json:"agent"`   // the User-Agent
	User        string `json:"user"`    // who it is
	Address     string `json:"address"` // where from
}

// Call is what is known of a caller's calls.
type Call struct {
	Caller
	Removed string    `json:"removed,omitempty"` // the release of other Kubernetes clusters that is without the version
	Off     bool      `json:"off,omitempty"`     // the version is turned off: the last call was answered by 404
	Count   int64     `json:"count"`
	First   time.Time `json:"first"`
	Last    time.Time `json:"last"`
}

// Calls are those that are known. Nil notes nothing.
type Calls struct {
	name  string // of the ConfigMap
	log   *slog.Logger
	wake  chan struct{} // one token: there is something to write
	fresh chan struct{} // one token: of a caller that is new

	mu struct {
		sync.Mutex
		calls map[Caller]*Call // nil: none yet (L1)
		dirty bool             // something was not written
	}
}

// New returns calls of a server of that name, of which none is known yet.
func New(server string, log *slog.Logger) *Calls {
	return &Calls{name: Prefix + server, log: log, wake: make(chan struct{}, 1), fresh: make(chan struct{}, 1)}
}

// Note notes a call that is made now.
func (c *Calls) Note(call Call) {
	if c == nil {
		return
	}
	call.Agent, call.User = cut(call.Agent), cut(call.User)
	now := time.Now().UTC().Truncate(time.Second)
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.mu.calls[call.Caller]
	if known == nil {
		call.First = now
		known = c.addLocked(call)
		tell(c.fresh)
	}
	known.Count++
	known.Last, known.Removed, known.Off = now, call.Removed, call.Off
	c.mu.dirty = true
	tell(c.wake)
}

func tell(token chan<- struct{}) {
	select {
	case token <- struct{}{}:
	default: // it has been told
	}
}

// cut bounds what a client has made up.
func cut(s string) string {
	if len(s) > maxText {
		s = strings.ToValidUTF8(s[:maxText], "")
	}
	return s
}

func (c *Calls) addLocked(call Call) *Call {
	if c.mu.calls == nil {
		c.mu.calls = map[Caller]*Call{}
	}
	if len(c.mu.calls) >= maxCallers {
		var oldest *Call
		for _, one := range c.mu.calls {
			if oldest == nil || one.Last.Before(oldest.Last) {
				oldest = one
			}
		}
		delete(c.mu.calls, oldest.Caller)
	}
	c.mu.calls[call.Caller] = &call
	return &call
}

// List is what is known, the last call first.
func (c *Calls) List() (list []Call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range c.mu.calls {
		list = append(list, *one)
	}
	Sort(list)
	return list
}

// Sort puts the last call first.
func Sort(list []Call) { SortBy(list, func(c Call) Call { return c }) }

// SortBy sorts what has calls in the same way.
func SortBy[T any](list []T, of func(T) Call) {
	slices.SortFunc(list, func(x, y T) int {
		a, b := of(x), of(y)
		return cmp.Or(
			b.Last.Compare(a.Last), cmp.Compare(a.Group, b.Group), cmp.Compare(a.Version, b.Version), cmp.Compare(a.Resource, b.Resource),
			cmp.Compare(a.Agent, b.Agent), cmp.Compare(a.User, b.User), cmp.Compare(a.Address, b.Address),
		)
	})
}

// Parse reads what a ConfigMap has.
func Parse(data map[string]string) (list []Call, _ error) {
	if err := json.Unmarshal([]byte(cmp.Or(data[Key], "[]")), &list); err != nil {
		return nil, fmt.Errorf("read %s: %w", Key, err)
	}
	return list, nil
}

// Run reads what was known before, once something is noted, and writes what is, until ctx ends (L1, L3).
func (c *Calls) Run(ctx context.Context, t client.Transport) error {
	maps := client.For(t, core.ConfigMaps)
	recalled, last := false, false
	for !last {
		select {
		case <-c.wake:
			c.settle(ctx)
		case <-ctx.Done():
		}
		last = ctx.Err() != nil               // what was noted by then is written, even if the server has ended before this began
		lasting := context.WithoutCancel(ctx) // also when the server ends
		err := error(nil)
		if !recalled {
			err = c.recall(lasting, maps)
			recalled = err == nil
		}
		if err == nil {
			err = c.write(lasting, maps)
		}
		if err != nil {
			c.log.WarnContext(ctx, "calls of deprecated versions are not kept", "err", err)
		}
	}
	return nil
}

// settle waits as long as what was noted may wait.
func (c *Calls) settle(ctx context.Context) {
	rest := time.NewTimer(seldom)
	defer rest.Stop()
	select {
	case <-c.fresh:
		_ = task.Sleep(ctx, soon) // an error is that the server ends
	case <-rest.C:
	case <-ctx.Done():
	}
}

// recall adds what was known when the server ended.
func (c *Calls) recall(ctx context.Context, maps client.Client[*corev1.ConfigMap]) error {
	c.mu.Lock()
	dirty := c.mu.dirty
	c.mu.Unlock()
	if !dirty {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	kept, err := maps.Get(ctx, metav1.NamespaceSystem, c.name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	list, err := Parse(kept.Data)
	if err != nil {
		c.log.WarnContext(ctx, "what was kept of calls of deprecated versions is given up", "configmap", c.name, "err", err)
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	Sort(list)
	for _, was := range list {
		known := c.mu.calls[was.Caller]
		switch {
		case known != nil:
			known.Count += was.Count
			known.First = was.First
		case len(c.mu.calls) < maxCallers:
			c.addLocked(was)
		}
	}
	return nil
}

// write keeps what is known, if it was not.
func (c *Calls) write(ctx context.Context, maps client.Client[*corev1.ConfigMap]) error {
	c.mu.Lock()
	dirty := c.mu.dirty
	c.mu.dirty = false
	c.mu.Unlock()
	if !dirty {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	err := c.put(ctx, maps)
	if err != nil {
		c.mu.Lock()
		c.mu.dirty = true
		c.mu.Unlock()
	}
	return err
}

func (c *Calls) put(ctx context.Context, maps client.Client[*corev1.ConfigMap]) error {
	text, err := json.Marshal(c.List())
	if err != nil {
		return fmt.Errorf("write calls: %w", err)
	}
	obj := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: c.name, Labels: map[string]string{Label: "true"}},
		Data:       map[string]string{Key: string(text)},
	}
	if _, err = maps.Update(ctx, obj.DeepCopy()); apierrors.IsNotFound(err) {
		_, err = maps.Create(ctx, obj)
	}
	return err
}
